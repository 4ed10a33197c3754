"""`dagrl trace` as a user runs it: text, JSON, a run that goes on, a run that was killed and resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from dagrl.cli import exit_code
from dagrl.report.reader import RunReader
from dagrl.report.timeline import read_timeline
from dagrl.runtime.run_folder import read_status
from dagrl.trace_events import TRACE_FILE, Kind
from tests.command import start
from tests.fork_server import completed as dagrl
from tests.run_builders import make_run
from tests.tiny_project import write_project
from tests.traced_runs import eventually, write_by_hand


def test_a_run_that_is_being_written_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "runs", rewards=[0.5], state="running").path
    write_by_hand(run, is_open=True)
    assert exit_code(["trace", str(run)]) == 0
    assert "1 steps traced of 1: 28.00 s a step" in capsys.readouterr().out
    assert exit_code(["trace", str(run), "--step", "1"]) == 0
    assert "critical path of learning: 9.00 s of 17.00 s" in capsys.readouterr().out
    assert exit_code(["trace", "latest", "--root", str(tmp_path / "runs"), "--json"]) == 0
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert step["critical_path"] == {"nodes": ["reward", "values_0", "advantages", "train_0"], "seconds": 9.0}
    assert step["shares"]["environments"] == 4.0


def test_mistakes_end_with_2_and_broken_files_with_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "runs", rewards=[0.5]).path
    assert exit_code(["trace", str(run)]) == 2
    assert "config.trainer.trace_steps must be above 0" in capsys.readouterr().err
    write_by_hand(run)
    assert exit_code(["trace", str(run), "--step", "7"]) == 2
    assert "step 7 is not in the trace" in capsys.readouterr().err
    (run / TRACE_FILE).write_text("[\nnonsense\n")
    assert exit_code(["trace", str(run)]) == 5
    assert "trace.json:2" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_killed_and_resumed_has_every_step_once_and_its_times_add_up(tmp_path: Path) -> None:
    write_project(tmp_path, total_steps=8, max_rounds=2)
    running = start("run", "--workflow", "calling.yaml", "--run-dir", "r", "trainer.save_freq=2", cwd=tmp_path)
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("step 3/"):
            break
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=60)
    done = dagrl("run", "--resume", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "after step 8" not in done.stdout.partition("held-out")[0], "it had not been killed in time"

    events = json.loads((tmp_path / "r" / TRACE_FILE).read_text())
    assert [event["name"] for event in events if event.get("cat") == "step"] == [f"step {n}" for n in range(1, 9)]
    timeline = read_timeline(tmp_path / "r")
    rows = {row["step"]: row for row in RunReader(tmp_path / "r").metrics() if "reward/mean" in row}
    for number, step in timeline.steps.items():
        shares = step.shares()
        assert shares.total == pytest.approx(step.seconds, abs=1e-3)
        assert min(shares.engine, shares.env_busy, shares.rewards, shares.learning) > 0
        assert step.phase_seconds("play") == pytest.approx(rows[number]["perf/seconds/play"], abs=1e-5)
        for work in step.learn_work:
            assert work.seconds == pytest.approx(rows[number][f"perf/seconds/{work.name}"], abs=1e-5)
        for kind in (Kind.SPEAK, Kind.HOOK):
            assert {span.name for span in step.of(kind)} == {"scout", "caller"}
        assert {span.name for span in step.of(Kind.ENV)} == {"caller@env"}
        waits = {work.name: work.after for work in step.learn_work}
        assert waits["train_0"] == ("advantages", "old_0", "ref_0")
        assert "values_1" in waits["critic_0"]
        legs = step.of(Kind.LAST)
        assert legs[-1].end_us <= step.whole.end_us
        assert sum(leg.duration_us for leg in legs) / 1e6 <= step.phase_seconds("play") + 1e-3
    shown = dagrl("trace", "r", "--step", "5", cwd=tmp_path)
    assert shown.returncode == 0
    assert "critical path of learning" in shown.stdout


@pytest.mark.slow
def test_the_status_of_a_run_names_the_environment_that_it_waits_for(tmp_path: Path) -> None:
    write_project(tmp_path, total_steps=5)
    environment = tmp_path / "environment.py"
    waits = "        import time, pathlib\n        while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
    counts = "        self.left -= 1\n"
    environment.write_text(environment.read_text().replace(counts, waits + counts))
    running = start("run", "--workflow", "calling.yaml", "--run-dir", "r", "rollout.env_timeout_s=600", cwd=tmp_path)
    try:
        eventually(lambda: (tmp_path / "r" / "status.json").exists())
        eventually(lambda: "caller@env" in read_status(tmp_path / "r").get("doing", {}).get("nodes", {}), 120)
        listed = dagrl("ps", str(tmp_path), cwd=tmp_path)
        assert "evaluate: caller@env" in listed.stdout
    finally:
        (tmp_path / "go").touch()
        running.kill()
        running.communicate(timeout=60)
