"""`dagrl run --resume`: as if the run had never been stopped; refusals that name what is wrong."""

from __future__ import annotations

import hashlib
import re
import shutil
import signal
from pathlib import Path

import pytest

from dagrl.runtime import checkpoint
from tests.command import start
from tests.fork_server import completed as dagrl
from tests.tiny_project import write_project

pytestmark = pytest.mark.slow

STEPS = 12
OPTIONS = ("trainer.save_freq=3", "trainer.test_freq=4")


def fingerprint(run: Path) -> dict[str, str]:
    """SHA-256 of everything that must repeat byte for byte."""
    files = [run / "metrics.jsonl", run / "ledger.jsonl", *(run / "trajectories").glob("*.parquet")]
    files += [file for file in (run / "checkpoints" / f"step_{STEPS:06d}").rglob("*") if file.suffix == ".safetensors"]
    return {
        file.relative_to(run).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if not file.name.endswith(".timings.parquet")
    }


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, total_steps=STEPS, max_rounds=2)
    return folder


@pytest.fixture(scope="module")
def whole(project):
    """A run that was never stopped."""
    done = dagrl("run", "--workflow", "calling.yaml", "--run-dir", "whole", *OPTIONS, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    return project / "whole"


def stopped(project: Path, name: str, number: signal.Signals, after: str = "step 5/") -> Path:
    """A run that got signal `number` when a line beginning with `after` was printed."""
    running = start("run", "--workflow", "calling.yaml", "--run-dir", name, *OPTIONS, cwd=project)
    for line in running.stdout:
        if line.startswith(after):
            running.send_signal(number)
            break
    running.communicate(timeout=120)
    return project / name


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(one, marks=pytest.mark.resilience) for one in (signal.SIGTERM, signal.SIGINT))],
)
def test_a_resumed_run_is_bit_identical_to_one_that_was_never_stopped(project, whole, number):
    run = stopped(project, f"stopped_{number.name}", number)
    done = dagrl("run", "--resume", str(run), cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    first = int(re.search(r"after step (\d+)", done.stdout)[1])
    assert 3 <= first < STEPS
    assert fingerprint(run) == fingerprint(whole)


@pytest.mark.resilience
def test_the_report_of_a_resumed_run_still_knows_the_accuracy_before(project, whole):
    run = stopped(project, "report", signal.SIGTERM)
    done = dagrl("run", "--resume", str(run), cwd=project)
    assert re.search(r"before .*after step 0", done.stdout)


def test_changed_hooks_are_refused_with_the_difference_and_can_be_allowed(project, whole):
    shutil.copytree(whole, project / "changed")
    hooks = project / "hooks.py"
    before = hooks.read_text()
    hooks.write_text(before.replace("seen + (obs or [])", "seen"))
    try:
        refused = dagrl("run", "--resume", "changed", cwd=project)
        allowed = dagrl("run", "--resume", "changed", "--allow-changes", cwd=project)
    finally:
        hooks.write_text(before)
    assert refused.returncode == 2
    assert "-    return seen + (obs or [])" in refused.stderr
    assert "--allow-changes" in refused.stderr
    assert allowed.returncode == 0, allowed.stderr


def test_more_steps_than_the_run_began_with_are_a_change_too(project, whole):
    shutil.copytree(whole, project / "longer")
    refused = dagrl("run", "--resume", "longer", f"trainer.total_steps={STEPS + 1}", cwd=project)
    assert refused.returncode == 2
    assert f"+    total_steps: {STEPS + 1}" in refused.stderr
    allowed = dagrl("run", "--resume", "longer", f"trainer.total_steps={STEPS + 1}", "--allow-changes", cwd=project)
    assert allowed.returncode == 0, allowed.stderr
    assert f"step {STEPS + 1}/{STEPS + 1}" in allowed.stdout
    assert (project / "longer" / f"workflow.until_step_{STEPS}.yaml").exists()


def test_a_damaged_checkpoint_is_an_error_that_names_the_part_and_latest_steps_back(project):
    write_project(project / "other", total_steps=4) if (project / "other").mkdir() is None else None
    other = project / "other"
    done = dagrl("run", "--workflow", "calling.yaml", "trainer.save_freq=2", cwd=other)
    assert done.returncode == 0, done.stderr
    run = (other / "runs" / "calling" / "latest").resolve()
    newest = checkpoint.newest(run / "checkpoints").path
    part = newest / "agent_scout" / "model.safetensors"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    refused = dagrl("run", "--resume", str(run), cwd=other)
    assert refused.returncode == 5
    assert "agent_scout/model.safetensors" in refused.stderr
    back = dagrl("run", "--resume", "latest", cwd=other)
    assert back.returncode == 0, back.stderr
    assert "after step 2" in back.stdout
    assert "step_000004" in back.stderr
    assert checkpoint.verify(newest) == ()


def test_a_run_that_is_being_written_is_not_resumed_and_one_without_checkpoint_never_starts_anew(project):
    running = start("run", "--workflow", "calling.yaml", "--run-dir", "busy", "trainer.total_steps=100000", cwd=project)
    for line in running.stdout:
        if line.startswith("step 1/"):
            break
    busy = dagrl("run", "--resume", "busy", "trainer.total_steps=100000", cwd=project)
    running.kill()
    running.communicate(timeout=60)
    assert busy.returncode == 2
    assert "another process" in busy.stderr
    empty = dagrl("run", "--resume", "busy", cwd=project)
    assert empty.returncode == 5
    assert "no whole checkpoint" in empty.stderr
