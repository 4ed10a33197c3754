"""`dagrl run` on a small real project, in a process of its own: it learns, leaves what it promises, and ends well."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from dagrl.data.trajectory_files import read_trajectories
from dagrl.runtime import checkpoint
from dagrl.runtime.metrics import read_metrics
from dagrl.runtime.run_folder import read_status
from dagrl.workflow.graph import load_workflow
from tests.command import start
from tests.fork_server import completed as dagrl
from tests.tiny_project import write_project
from tests.trace_event_format import faults

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run: (what the command printed, its run folder)."""
    folder = tmp_path_factory.mktemp("project")
    workflow = write_project(folder)
    done = dagrl("run", "--workflow", str(workflow), "--run-dir", "out", "trainer.test_freq=20", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, folder / "out"


def metrics_named(rows, name):
    return [row[name] for row in rows if name in row]


def test_the_team_learns_and_needs_the_scout(trained):
    _, run = trained
    rows = read_metrics(run / "metrics.jsonl")
    accuracy = metrics_named(rows, "val/accuracy")
    assert accuracy[0] <= 0.25
    assert accuracy[-1] >= accuracy[0] + 0.4
    without = read_trajectories(run / "trajectories" / "eval_000040_without_scout.parquet")
    solved = [row["trajectory_reward"] == 1.0 for row in without]
    assert sum(solved) / len(solved) <= 0.5


def test_the_report_shows_accuracy_before_after_and_without_an_agent(trained):
    printed, _ = trained
    assert "before" in printed
    assert "after" in printed
    assert "without scout" in printed


def test_the_trace_is_as_the_format_asks(trained):
    _, run = trained
    text = (run / "trace.json").read_text()
    spans = [event for event in json.loads(text) if event["ph"] == "X"]
    assert {"step", "phase", "node", "speak", "engine", "env"} <= {event["cat"] for event in spans}
    assert faults(text) == []


def test_each_agent_in_the_checkpoint_loads_in_transformers_and_the_shared_critic_is_there_once(trained):
    _, run = trained
    saved = run / "checkpoints" / "step_000040"
    assert checkpoint.verify(saved) == ()
    names = {path.name for path in saved.iterdir() if path.is_dir()}
    assert names == {"agent_scout", "agent_caller", "critic_scout", "trainer_state"}
    for agent in ("agent_scout", "agent_caller"):
        model = AutoModelForCausalLM.from_pretrained(saved / agent)
        assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(saved / agent))


def test_the_resolved_workflow_and_the_copied_code_load_by_themselves(trained):
    _, run = trained
    resolved = load_workflow(run / "workflow.yaml")
    assert resolved.spec.config.trainer.test_freq == 20
    hashes = json.loads((run / "code" / "hashes.json").read_text())
    assert set(hashes) == {"recipe.py", "hooks.py", "environment.py"}
    assert (run / "overrides.txt").read_text() == "trainer.test_freq=20\n"


def test_every_step_is_in_the_metrics_and_every_turn_in_the_trajectories(trained):
    _, run = trained
    rows = read_metrics(run / "metrics.jsonl")
    assert [row["step"] for row in rows if "reward/mean" in row] == list(range(1, 41))
    turns = read_trajectories(run / "trajectories" / "step_000001.parquet")
    assert len(turns) == 16 * 4 * 2
    for row in turns:
        assert len(row["response_ids"]) == len(row["old_logprobs"]) == len(row["advantages"]) == len(row["values"])
    assert read_status(run)["state"] == "done"


def test_the_same_seed_gives_the_same_weights_and_rewards(trained, tmp_path):
    _, first = trained
    workflow = write_project(tmp_path)
    done = dagrl("run", "--workflow", str(workflow), "--run-dir", "again", "trainer.test_freq=20", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("agent_scout", "agent_caller", "critic_scout"):
        weights = [
            run / "checkpoints" / "step_000040" / part / "model.safetensors" for run in (first, tmp_path / "again")
        ]
        assert weights[0].read_bytes() == weights[1].read_bytes(), part
    rewards = [metrics_named(read_metrics(run / "metrics.jsonl"), "reward/mean") for run in (first, tmp_path / "again")]
    assert rewards[0] == rewards[1]


def test_a_team_that_does_not_improve_ends_with_exit_code_1(tmp_path):
    workflow = write_project(tmp_path, total_steps=1)
    done = dagrl("run", "--workflow", str(workflow), "trainer.min_improvement=0.9", "actor.optim.lr=0", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_ctrl_c_finishes_the_step_saves_and_ends_with_130(tmp_path):
    workflow = write_project(tmp_path, total_steps=100000)
    running = start(
        "run", "--workflow", str(workflow), "--run-dir", "out", "trainer.val_before_train=false", cwd=tmp_path
    )
    seen = ""
    for line in running.stdout:
        seen += line
        if re.match(r"step 2/", line):
            running.send_signal(signal.SIGINT)
            break
    seen += running.communicate(timeout=120)[0]
    assert running.returncode == 130, seen
    assert "Traceback" not in seen
    run = tmp_path / "out"
    saved = checkpoint.newest(run / "checkpoints").path
    rows = read_metrics(run / "metrics.jsonl")
    assert checkpoint.step_of(saved) == rows[-1]["step"] >= 2
    assert read_status(run)["state"] == "interrupted"
    assert read_trajectories(run / "trajectories" / f"step_{rows[-1]['step']:06d}.parquet")


NO_EVALUATION = ("data.val_files=[]", "trainer.val_without=[]")
BROKEN_ENVIRONMENT = """
class Calling:
    def __init__(self, rounds=1): pass
    def reset(self, prompt=None): return None
    def step(self, actions, ground_truth):
        if ground_truth == "a":
            raise KeyError("lost")
        return None, 1.0, True
"""


def test_an_environment_that_breaks_too_often_stops_the_run_with_its_own_line_and_exit_code_6(tmp_path):
    workflow = write_project(tmp_path, total_steps=3)
    (tmp_path / "environment.py").write_text(BROKEN_ENVIRONMENT)
    done = dagrl("run", "--workflow", str(workflow), "--run-dir", "out", *NO_EVALUATION, cwd=tmp_path)
    assert done.returncode == 6, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "environment.py:7" in done.stderr
    assert "KeyError" in done.stderr
    failures = list((tmp_path / "out" / "failures").glob("*.json"))
    assert json.loads(failures[0].read_text())["task"]["ground_truth"] == "a"


def test_a_few_broken_trajectories_are_dropped_and_counted(tmp_path):
    workflow = write_project(tmp_path, total_steps=1)
    (tmp_path / "environment.py").write_text(BROKEN_ENVIRONMENT)
    done = dagrl(
        "run", "--workflow", str(workflow), "--run-dir", "out", "rollout.max_failed_fraction=0.9", *NO_EVALUATION,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    row = read_metrics(tmp_path / "out" / "metrics.jsonl")[-1]
    assert row["trajectory/failed"] + row["trajectory/count"] == 64
    assert row["trajectory/failed/env_raised"] == row["trajectory/failed"] > 0
    assert len(list((tmp_path / "out" / "failures").glob("*.json"))) == row["trajectory/failed"]


def test_dry_run_loads_no_model_and_writes_nothing(tmp_path):
    workflow = write_project(tmp_path)
    done = dagrl("run", "--workflow", str(workflow), "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "critic_0" in done.stdout
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "cache").exists()


def test_smoke_makes_two_steps(tmp_path):
    workflow = write_project(tmp_path)
    done = dagrl("run", "--workflow", str(workflow), "--smoke", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 2/2" in done.stdout
    assert (tmp_path / "runs" / "calling" / "latest").exists()


def test_a_run_folder_is_never_overwritten(tmp_path):
    workflow = write_project(tmp_path)
    Path(tmp_path / "out").mkdir()
    (tmp_path / "out" / "keep.txt").write_text("mine")
    done = dagrl("run", "--workflow", str(workflow), "--run-dir", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert (tmp_path / "out" / "keep.txt").read_text() == "mine"
    assert len(list((tmp_path / "out").iterdir())) == 1
