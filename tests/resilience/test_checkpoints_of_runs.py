"""Real runs: checkpoints by the clock, numbers that are not finite, a full disk, another model."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from dagrl.runtime import checkpoint
from dagrl.runtime.hashes import sha256_of
from tests.command import COMMAND, dagrl, environment
from tests.tiny_project import write_project

pytestmark = pytest.mark.resilience

STEPS = 3


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, total_steps=STEPS)
    return folder


@pytest.fixture(scope="module")
def whole(project):
    done = dagrl("run", "-w", "calling.yaml", "--run-dir", "whole", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    return project / "whole"


def steps(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def repeats(run: Path) -> dict[str, bytes]:
    """What must repeat byte for byte."""
    files = [run / "metrics.jsonl", *(run / "checkpoints" / f"step_{STEPS:06d}").rglob("*.safetensors")]
    return {file.relative_to(run).as_posix(): file.read_bytes() for file in files}


def test_checkpoints_by_the_clock_change_nothing_and_a_run_resumed_from_one_repeats(project, whole):
    """So short an interval is over after every step."""
    done = dagrl("run", "-w", "calling.yaml", "--run-dir", "clock", "trainer.save_minutes=1e-9", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    run = project / "clock"
    assert steps(run) == [f"step_{step:06d}" for step in (1, 2, 3)]
    assert repeats(run) == repeats(whole)
    shutil.rmtree(run / "checkpoints" / "step_000003")
    (run / "checkpoints" / ".tmp-step_000003-1").mkdir()
    (run / ".tmp-status.json-1").write_text("half")
    resumed = dagrl("run", "--resume", "clock", cwd=project)
    assert resumed.returncode == 0, resumed.stderr
    assert "after step 2" in resumed.stdout
    assert repeats(run) == repeats(whole)
    assert not list(run.rglob(".tmp-*"))


def test_weights_that_are_not_finite_end_the_run_and_the_checkpoint_before_is_whole(project, whole):
    run = project / "infinite"
    shutil.copytree(whole, run)
    words = (f"trainer.total_steps={STEPS + 1}", "actor.optim.lr=1e39", "actor.ppo_epochs=1", "--allow-changes")
    done = dagrl("run", "--resume", "infinite", *words, cwd=project)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "agent_" in done.stderr and "holds NaN or infinity" in done.stderr
    assert "Traceback" not in done.stderr
    assert steps(run) == [f"step_{STEPS:06d}"]
    assert checkpoint.verify(run / "checkpoints" / f"step_{STEPS:06d}") == ()


def test_a_disk_too_small_for_a_checkpoint_is_one_line_and_the_run_goes_on_once_there_is_room(project, whole):
    run = project / "full"
    shutil.copytree(whole, run)
    kept = checkpoint.newest(run / "checkpoints").path
    weights = max(file.stat().st_size for file in kept.rglob("*") if file.is_file())
    words = ["run", "--resume", "full", f"trainer.total_steps={STEPS + 1}", "--allow-changes"]
    failed = subprocess.run(
        [*COMMAND, *words],
        cwd=project,
        env=environment(project / "cache"),
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (weights - 1, resource.RLIM_INFINITY)),
    )
    assert failed.returncode == 5, failed.stdout + failed.stderr
    assert "File too large" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert steps(run) == [f"step_{STEPS:06d}"]
    done = dagrl(*words, cwd=project)
    assert done.returncode == 0, done.stderr
    assert steps(run) == [f"step_{step:06d}" for step in (STEPS, STEPS + 1)]


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        (
            ("dag_id=other", "model.recipe_kwargs={hidden: 16}", "critic.kind=value_head"),
            (
                "workflow: dag_id was 'calling', is 'other'",
                "agent scout: hidden_size was 32, is 16",
                "critic of scout: value head was",
            ),
        ),
        (
            ("model.dtype=bfloat16", "agent_groups.0.adapter={r: 2}", "agent_groups.1.name=looker"),
            (
                "agent scout: dtype was 'torch.float32', is 'torch.bfloat16'",
                "agent scout: adapter r was None, is 2",
                "workflow: agents was ['scout', 'caller'], is ['scout', 'looker']",
            ),
        ),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_by_the_fields_even_where_changes_are_allowed(
    project, whole, tmp_path, changes, fields
):
    shutil.copytree(whole, tmp_path / "run")
    done = dagrl("run", "--resume", str(tmp_path / "run"), *changes, "--allow-changes", cwd=project)
    assert done.returncode == 5, done.stdout + done.stderr
    assert [field for field in fields if field not in done.stderr] == []
    assert "Traceback" not in done.stderr


def test_a_checkpoint_of_another_tokenizer_is_refused(project, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    path = checkpoint.newest(tmp_path / "run" / "checkpoints").path
    manifest = json.loads((path / "MANIFEST.json").read_text())
    manifest["content"]["identity"]["agent caller"]["vocabulary"] = "0" * 12
    manifest["sha256"] = sha256_of(manifest["content"])
    (path / "MANIFEST.json").write_text(json.dumps(manifest))
    done = dagrl("run", "--resume", str(tmp_path / "run"), cwd=project)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "agent caller: vocabulary was '000000000000', is '" in done.stderr
