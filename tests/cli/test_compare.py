"""`dagrl compare` as a user runs it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from dagrl.cli import exit_code
from tests.command import dagrl
from tests.run_builders import HOOK, NOON, make_run


def _runs(root: Path) -> list[str]:
    """Two seeds of one workflow, one of another with another hook that holds hostile text."""
    made = [
        make_run(root, seed=1, rewards=[0.0, 0.2]),
        make_run(root, seed=2, rewards=[0.0, 0.4], now=NOON + timedelta(minutes=1)),
        make_run(root, lr=0.5, hook=HOOK + "# \x1b[2J\n", rewards=[0.0, 0.9], now=NOON + timedelta(minutes=2)),
    ]
    return [str(folder.path) for folder in made]


def test_a_folder_of_runs_is_all_of_them_grouped_by_seed(tmp_path: Path) -> None:
    _runs(tmp_path / "runs")
    done = dagrl("compare", "runs/team", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "0.3 ± 1.3" in done.stdout, "12.706 times the standard error 0.1"
    assert "+0.6  (one seed: no interval)" in done.stdout
    assert "config.actor.optim.lr  0.01  0.5" in done.stdout
    assert "+# \\x1b[2J" in done.stdout
    assert "\x1b" not in done.stdout


def test_seeds_alone_are_shown_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["compare", *_runs(tmp_path / "runs")[:2]]) == 0
    told = capsys.readouterr().out
    assert [line.split()[0] for line in told.splitlines() if line[:2] in ("A1", "A2")] == ["A1", "A2"]
    assert "settings" not in told


def test_json_holds_every_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["compare", *_runs(tmp_path / "runs"), "--json", "--metric", "reward/mean"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [group["seeds"] for group in told["groups"]] == [["1", "2"], ["1"]]
    (metric,) = told["metrics"]
    assert [curve["steps"] for curve in metric["curves"]] == [[1, 2], [1, 2]]
    assert metric["curves"][1]["difference"]["mean"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["{0}"], "nothing to compare"),
        (["{0}", "{0}"], "given twice"),
        (["{0}", "{1}", "--metric", "reward/maen"], "did you mean 'reward/mean'"),
        (["{0}", "nowhere"], "is no run folder"),
    ],
)
def test_what_cannot_be_compared_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = _runs(tmp_path / "elsewhere")
    assert exit_code(["compare", *(word.format(*runs) for word in words)]) == 2
    assert told in capsys.readouterr().err
