"""`dagrl watch` follows a run that is being written, and ends when the run does."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from dagrl.cli import exit_code
from dagrl.report.reader import RunReader
from dagrl.report.screen import Screen
from dagrl.report.watch import follow, overview, row_line
from tests.command import start
from tests.run_builders import make_run, write_metrics


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_new_steps_come_as_lines_until_the_run_is_done(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs", rewards=[0.1], state="running")
    process = start("watch", str(folder.path), "--interval", "0.05", cwd=tmp_path)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("step 1/10 | reward 0.100")
        write_metrics(folder.path, [{"reward/mean": 0.25}], first_step=2)
        assert process.stdout.readline().startswith("step 2/10 | reward 0.250")
        write_metrics(folder.path, [{"val/accuracy": 0.5}], first_step=2)
        folder.write_status("done", 2)
        assert process.stdout.read().splitlines() == [
            "held-out after step 2: accuracy 0.500",
            f"team/{folder.path.name}: done at step 2/10",
        ]
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("interrupted", 0), ("failed", 1), ("running", 1)])
def test_the_exit_code_says_how_the_run_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, code: int
) -> None:
    folder = make_run(tmp_path / "runs", rewards=[0.1], state=state)
    folder.close()
    assert exit_code(["watch", str(folder.path)]) == code
    assert ("is dead" if state == "running" else state) in capsys.readouterr().out


def test_a_finished_run_shows_its_last_steps_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "runs", rewards=[0.5] * 30)
    assert exit_code(["watch", "latest", "--root", str(tmp_path / "runs")]) == 0
    assert re.findall(r"^step (\d+)", capsys.readouterr().out, re.MULTILINE) == [str(n) for n in range(21, 31)]
    assert folder.path.name.startswith("2026")


def test_on_a_terminal_one_screen_shows_curves_agents_and_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    folder = make_run(tmp_path / "runs")
    row = {"agent_thinker/policy/entropy": 1.5, "perf/seconds/play": 0.3, "perf/seconds/\x1b[2Jnode": 0.1}
    write_metrics(folder.path, [{"reward/mean": step / 10, **row} for step in range(5)])
    stream = _Terminal()
    assert follow(RunReader(folder.path), Screen(stream), interval_s=0.05).state == "done"
    shown = stream.getvalue()
    for expected in ("done | step 0/10", "reward/mean", "▁", "█", "thinker", "1.5", "300", "75%", "\\x1b[2Jnode"):
        assert expected in shown
    assert "\x1b[2J" not in shown


def test_a_run_that_gives_no_sign_of_life_is_pointed_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs", rewards=[0.1, 0.2], state="running")
    run = RunReader(folder.path)
    status = run.status()
    assert status.heartbeat is not None
    texts = [[text for text, _ in overview(run, status, status.heartbeat + later)] for later in (1, 1000)]
    assert [any("no sign of life for 16m40s" in text for text in lines) for lines in texts] == [False, True]


def test_failures_and_numbers_that_are_not_finite_are_pointed_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs")
    write_metrics(folder.path, [{"trajectory/failed": 2.0}, {"trajectory/failed": 1.0, "critic/loss": float("nan")}])
    run = RunReader(folder.path)
    texts = [text for text, _ in overview(run, run.status(), 0.0)]
    assert "not finite in the last step: critic/loss" in texts
    assert any(text.startswith("3 trajectories failed so far") for text in texts)


def test_the_time_left_is_counted_from_the_last_steps() -> None:
    rows = [{"step": step, "time": 100.0 + 2 * step, "reward/mean": 0.0} for step in (1, 2, 3)]
    assert row_line(rows[-1], rows, 13).endswith("ETA 20s")
    assert "ETA" not in row_line(rows[-1], rows, None)
    assert "ETA" not in row_line(rows[0], rows[:1], 13)
