"""What pip installs and what CI runs: version ranges, whole wheel, the last line of .ci/run."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]


def setup_literal(name: str) -> Any:
    """A list or mapping at the top of setup.py, which may name the ones before it."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    known: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.List, ast.Tuple, ast.Dict)):
            lines = ast.Module(body=[node], type_ignores=[])
            exec(compile(lines, "setup.py", "exec"), {"__builtins__": {}}, known)
    assert name in known, f"setup.py has no {name}"
    return known[name]


def core() -> dict[str, Requirement]:
    return {Requirement(line).name.lower(): Requirement(line) for line in setup_literal("CORE")}


@pytest.mark.parametrize(
    ("name", "admitted", "refused"),
    [
        ("torch", ["2.11.0", "2.12.1", "2.13.0", "2.13.0+cpu"], ["2.10.0", "2.14.0", "2.15.0", "3.0"]),
        ("transformers", ["5.16.0", "5.19.0", "5.23.0"], ["4.57.0", "5.15.0", "5.24.0"]),
        ("pydantic", ["2.7.0", "2.14.3"], ["1.10.0", "3.0.0"]),
    ],
)
def test_version_ranges(name: str, admitted: list[str], refused: list[str]) -> None:
    specifier = core()[name].specifier
    assert [version for version in admitted if version not in specifier] == []
    assert [version for version in refused if version in specifier] == []


def test_core_holds_what_a_run_needs_and_no_engine() -> None:
    models = {"torch", "transformers", "peft", "safetensors", "numpy"}
    others = {"networkx", "pyyaml", "pyarrow", "datasets", "tensorboard", "pydantic", "typer", "rich", "math-verify"}
    names = core().keys()
    assert models | others <= names
    assert not {"vllm", "ray", "omegaconf", "hydra-core"} & names


def test_extras_that_were_promised_exist() -> None:
    lines_of = setup_literal("EXTRAS")
    extras = {extra: {Requirement(line).name.lower() for line in lines} for extra, lines in lines_of.items()}
    assert extras.keys() == {"vllm", "ray", "envs", "dev"}
    assert extras["envs"] == {"textarena", "reasoning-gym", "gymnasium", "pettingzoo", "pygame"}
    assert {"pytest", "hypothesis", "ruff", "mypy"} <= extras["dev"]


def test_the_version_is_told_once_and_alike() -> None:
    package = (ROOT / "dagrl" / "__init__.py").read_text(encoding="utf-8")
    told = re.findall(r'^__version__ = "(.+)"$', package, re.MULTILINE)
    assert len(told) == 1
    assert f'version="{told[0]}"' in (ROOT / "setup.py").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(ROOT / "setup.py", source)
    for folder in ("dagrl", *setup_literal("SHIPPED")):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path), "."]
    subprocess.run(pip, cwd=source, check=True, capture_output=True)
    wheel = next(tmp_path.glob("dagrl-*.whl"))
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("dagrl/")}
    expected = {path.relative_to(source).as_posix() for path in (source / "dagrl").rglob("*") if path.is_file()}
    assert expected - packed == set()
    shipped = [path for folder in setup_literal("SHIPPED") for path in (source / folder).rglob("*") if path.is_file()]
    assert {f"dagrl/shipped/{path.relative_to(source).as_posix()}" for path in shipped} - packed == set()
    assert "dagrl = dagrl.cli:main" in zipfile.ZipFile(wheel).read("dagrl-0.1.0.dist-info/entry_points.txt").decode()


@pytest.mark.parametrize(
    ("status", "summary"),
    [(0, "3 passed, 1 deselected in 0.10s"), (1, "1 failed, 2 passed in 61.5s (0:01:01)"), (1, "2 errors in 0.20s")],
)
def test_ci_ends_with_pytests_summary_and_makes_status(tmp_path: Path, status: int, summary: str) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    recipe = f"lint:\n\t@exit {status}\npytest:\n\t@echo '{summary}'\ntest: lint pytest\ntest-resilience:\n"
    (tmp_path / "Makefile").write_text(recipe, encoding="utf-8")
    done = subprocess.run([str(tmp_path / ".ci" / "run")], cwd="/", capture_output=True, text=True, env=_without_make())
    assert done.stdout.splitlines()[-1] == summary
    assert (done.returncode == 0) == (status == 0)


def test_make_test_lints_checks_types_and_runs_the_slow_tests_too(tmp_path: Path) -> None:
    make = ["make", "-n", "test", f"VENV={tmp_path}/venv"]
    plan = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True, env=_without_make()).stdout
    assert "ruff check" in plan and "mypy" in plan and '-m "not gpu and not resilience"' in plan
    assert f"{tmp_path}/venv/bin/python -m pip install" in plan


def _without_make() -> dict[str, str]:
    """The environment without what an outer make hands down."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
