"""`dagrl ps` as a user runs it; none of the commands that look at runs loads torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from dagrl.cli import COMMANDS, exit_code
from tests.command import ROOT
from tests.run_builders import NOON, make_run


def _rows(text: str) -> dict[str, list[str]]:
    return {line.split()[0].rpartition("/")[2]: line.split()[1:] for line in text.splitlines()[1:] if "team/" in line}


def test_runs_are_listed_with_state_step_and_age(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "runs"
    make_run(root, rewards=[0.1, 0.2])
    alive = make_run(root, rewards=[0.1], state="running", now=NOON + timedelta(minutes=1))
    make_run(root, state="running", now=NOON + timedelta(minutes=2)).close()
    assert exit_code(["ps", str(root)]) == 0
    told = capsys.readouterr().out
    rows = _rows(told)
    assert rows["20260102-120000"][:2] == ["done", "2"]
    assert rows["20260102-120100"][:2] == ["running", "1/10"]
    assert rows["20260102-120100"][-1] == str(os.getpid())
    assert rows["20260102-120200"][:2] == ["dead", "0/10"]
    assert "its process is gone" in told
    assert exit_code(["ps", str(root), "--running", "--json"]) == 0
    assert [run["path"] for run in json.loads(capsys.readouterr().out)] == [str(alive.path)]


def test_a_broken_run_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "runs"
    make_run(root, rewards=[0.1])
    broken = make_run(root, now=NOON + timedelta(minutes=1)).path
    (broken / "status.json").write_text("{")
    assert exit_code(["ps", str(root)]) == 0
    told = capsys.readouterr().out
    assert _rows(told)["20260102-120000"][0] == "done"
    assert f"{broken}: is not JSON" in told


def test_no_runs_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["ps", str(tmp_path)]) == 0
    assert "no runs in" in capsys.readouterr().err


def test_commands_that_look_at_runs_load_no_torch() -> None:
    names = [name for name in ("ps", "watch", "show", "compare") if name in COMMANDS]
    modules = [COMMANDS[name][0].partition(":")[0] for name in names] + ["dagrl.report.watch", "dagrl.report.show"]
    code = f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
    code += "sys.exit(int(any(name in sys.modules for name in ('torch', 'transformers', 'tensorboard'))))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert len(names) == 4
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
