"""What ships is found where dagrl was installed from a wheel, far from any checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAIN = "import sys; from dagrl.cli import main; sys.exit(main())"


def install(target: Path, work: Path) -> None:
    """Builds a wheel from a copy of the source and unpacks it into `target`."""
    source = work / "source"
    source.mkdir()
    for name in ("setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    for name in ("dagrl", "workflows", "envs", "templates", "data_preprocess"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(work), "."]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    wheel = next(work.glob("dagrl-*.whl"))
    unpack = [*pip, "install", "--no-deps", "-q", "--target", str(target), str(wheel)]
    subprocess.run(unpack, cwd=work, check=True, capture_output=True)
    shutil.rmtree(source)


@pytest.mark.resilience
def test_an_installed_dagrl_lists_copies_and_makes(tmp_path: Path) -> None:
    target, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    install(target, tmp_path)
    installed = {**os.environ, "PYTHONPATH": str(target), "DAGRL_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", MAIN, *words]
        return subprocess.run(command, cwd=here, env=installed, capture_output=True, text=True)

    told = run("ls", "workflows")
    assert "marft_deepscaler" in told.stdout, told.stderr
    for words in (
        ("cp", "marft", "my.yaml"),
        ("validate", "my.yaml", "--deep"),
        ("new", "project", "team"),
        ("validate", "team/workflow.yaml", "--deep"),
        ("run", "--workflow", "team/workflow.yaml", "--smoke"),
        ("new", "env", "game"),
        ("check-env", "envs/game.py:Game", "--ground-truth", "7"),
    ):
        done = run(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    where = subprocess.run([sys.executable, "-c", "import dagrl; print(dagrl.__file__)"], env=installed, cwd=here,
                           capture_output=True, text=True)  # fmt: skip
    assert where.stdout.strip() == str(target / "dagrl" / "__init__.py")
