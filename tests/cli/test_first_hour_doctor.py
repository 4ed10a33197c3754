"""`dagrl doctor` and completion: what is missing is told with its way out; Tab offers what can be typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dagrl.cli import COMMANDS, exit_code
from dagrl.cli.completion import override_paths
from dagrl.runtime import doctor
from dagrl.runtime.doctor import Level, Requirement, diagnose_with, read_requirement
from dagrl.workflow.sections import TrainerSpec
from tests.command import COMMAND, environment

CORE = [Requirement(name="torch", range=">=2.11,<2.14", extra=None)]


def test_a_machine_that_is_right_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAGRL_CACHE", str(tmp_path / "cache"))
    assert exit_code(["doctor", "--runs", str(tmp_path / "runs")]) == 0
    told = capsys.readouterr().out
    assert "Ready for: the demo (make demo), training on the CPU" in told
    for word in ("python 3", "device:", "runs folder", "cache", "memory", "network: not needed"):
        assert word in told
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_a_runs_folder_that_cannot_be_written_is_told_with_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["doctor", "--runs", "/proc/no/runs"]) == 1
    told = capsys.readouterr().out
    assert "NO  runs folder /proc/no/runs" in told and "= choose another: config.trainer.runs_dir=FOLDER" in told
    assert "Not ready for: the demo" in told


@pytest.mark.parametrize(
    ("version", "words"),
    [(None, "torch is not installed"), ("2.14.0", "torch 2.14.0 does not fit"), ("2.9", "torch 2.9 does")],
)
def test_a_package_that_is_missing_or_does_not_fit_is_told_with_the_command(
    version: str | None, words: str, tmp_path: Path
) -> None:
    found = diagnose_with(tmp_path, version_of=lambda name: version, requirements=CORE)
    bad = [check for check in found.checks if check.level is Level.BAD]
    assert [words in check.text for check in bad] == [True]
    assert bad[0].how == "pip install 'torch>=2.11,<2.14'"
    assert not found.is_well


def test_a_torch_that_cannot_be_imported_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = diagnose_with(tmp_path, version_of={"torch": "2.13"}.get, requirements=CORE)
    assert any("torch cannot be used" in check.text for check in found.checks if check.level is Level.BAD)


def test_missing_extras_stop_nothing(tmp_path: Path) -> None:
    extra = Requirement(name="vllm", range="", extra="vllm")
    versions = {"torch": "2.13.0+cpu"}
    found = diagnose_with(tmp_path, version_of=versions.get, requirements=[*CORE, extra])
    assert found.is_well
    assert any("vllm is not installed" in check.text and check.level is Level.OPTIONAL for check in found.checks)


@pytest.mark.parametrize(
    ("line", "name", "bounds", "extra"),
    [
        ("torch<2.14,>=2.11", "torch", "<2.14,>=2.11", None),
        ('ray>=2.47; extra == "ray"', "ray", ">=2.47", "ray"),
        ("vllm; extra == 'vllm'", "vllm", "", "vllm"),
        ("math-verify (>=0.8)", "math-verify", ">=0.8", None),
    ],
)
def test_lines_of_package_metadata_are_read(line: str, name: str, bounds: str, extra: str | None) -> None:
    assert read_requirement(line) == Requirement(name=name, range=bounds, extra=extra)


@pytest.mark.parametrize(
    ("version", "is_admitted"),
    [("2.11", True), ("2.11.0", True), ("2.13.1+cu128", True), ("2.14", False), ("2.10.9", False), ("3", False)],
)
def test_versions_are_compared_by_their_numbers(version: str, is_admitted: bool) -> None:
    assert CORE[0].admits(version) == is_admitted


def test_little_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", 1 << 60)
    found = diagnose_with(tmp_path, version_of={"torch": "2.13"}.get, requirements=CORE)
    assert sum("only" in check.text for check in found.checks if check.level is Level.BAD) == 3


def offered(line: str, tmp_path: Path) -> list[str]:
    """What bash would be given at Tab after `line`."""
    words = line.split(" ")
    asked = {
        **environment(tmp_path),
        "_DAGRL_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(COMMAND, env=asked, cwd=tmp_path, capture_output=True, text=True)
    return done.stdout.split()


def test_commands_names_and_options_are_completed(tmp_path: Path) -> None:
    assert set(offered("dagrl ", tmp_path)) == COMMANDS.keys()
    assert offered("dagrl cp marft_d", tmp_path) == ["marft_deepscaler"]
    assert "--smoke" in offered("dagrl run --sm", tmp_path)
    assert offered("dagrl run -w x.yaml config.trainer.see", tmp_path) == ["config.trainer.seed="]


def test_override_paths_go_down_level_by_level() -> None:
    assert override_paths("conf")[0].startswith("config.") and all(path.endswith(".") for path in override_paths("c"))
    assert set(override_paths("config.trainer.")) >= {f"config.trainer.{name}=" for name in TrainerSpec.model_fields}
    assert override_paths("config.actor.op") == ["config.actor.optim."]
    assert override_paths("config.nothing.") == []
    assert override_paths("config.trainer.seed.") == []
