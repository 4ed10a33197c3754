"""`dagrl replay`: a logged step comes out as it was logged, a failed trajectory fails again, pdb stops in both."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from dagrl.cli import exit_code
from tests.fork_server import completed as dagrl
from tests.tiny_project import write_project

pytestmark = pytest.mark.slow

REWARD = """
def score(data_source, solution_str, ground_truth, extra_info):
    right = solution_str.startswith(ground_truth)
    return float(right)
"""
STEPS = 5
WHOLE_STEP = "reward -> old_0 -> old_1 -> ref_0 -> ref_1 -> values_0 -> values_1 -> advantages -> critic_0 -> "


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A run with checkpoints of steps 2, 4 and 5, whose hook fails after a `c` and whose environment after a `b`."""
    folder = tmp_path_factory.mktemp("replayed")
    workflow = write_project(folder, total_steps=STEPS, max_rounds=2)
    (folder / "own.py").write_text(REWARD)
    text = workflow.read_text().replace("rewards_with_env: true", "rewards_with_env: false")
    text = text.replace("env_workers: 1", "env_workers: 1\n    max_failed_fraction: 0.9")
    text = text.replace("node_type: REWARD,", "node_type: REWARD, executable_ref: own.py:score,")
    workflow.write_text(text)
    hooks, world = folder / "hooks.py", folder / "environment.py"
    fault = "    if len(prompt_id) > 3 and tokenizer.decode(letters) == 'c':\n        letters = letters[7]\n"
    hooks.write_text(
        hooks.read_text().replace("    return prompt_id + letters", fault + "    return prompt_id + letters")
    )
    fault = "        self.left -= 1\n        if self.left == 0 and actions[0] == 'b':\n            {}['key of b']\n"
    world.write_text(world.read_text().replace("        self.left -= 1\n", fault))
    options = ("trainer.save_freq=2", "data.val_files=[]", "trainer.val_without=[]")
    done = dagrl("run", "--workflow", "calling.yaml", "--run-dir", "run", *options, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def replayed(project, monkeypatch, capfd):
    """Runs the command in this process; gives its exit code and what it printed."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("DAGRL_CACHE", str(project / "cache"))

    def run(*words: str) -> tuple[int, str]:
        code = exit_code(["replay", *words])
        out, err = capfd.readouterr()
        return code, out + err

    num_threads = torch.get_num_threads()
    yield run
    torch.set_num_threads(num_threads)


def files_of(run: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in run.rglob("*") if file.is_file()}


def capsule(project: Path, kind: str) -> str:
    """A failed trajectory of training whose checkpoint was kept."""
    files = sorted((project / "run" / "failures").glob("step5_train*.json"))
    return next(str(file) for file in files if json.loads(file.read_text())["kind"] == kind)


def test_a_whole_step_comes_out_byte_for_byte_weights_too_and_nothing_is_written(project, replayed):
    before = files_of(project / "run")
    code, told = replayed("run", "--step", str(STEPS))
    assert code == 0, told
    assert f"step {STEPS}: {WHOLE_STEP}" in told
    assert "the checkpoint of step 4, which this step had" in told
    assert f"weights after step {STEPS}: byte-identical with the checkpoint" in told
    assert "advantages: byte-identical: advantages (" in told and "train_1: byte-identical: metrics (" in told
    assert "not comparable" not in told and "tolerance" not in told and "DIFFER" not in told
    assert files_of(project / "run") == before


def test_the_first_step_is_replayed_with_the_initial_weights(replayed):
    code, told = replayed("run", "--step", "1")
    assert code == 0 and "the run's initial weights, which this step had" in told
    assert "not comparable" not in told and "tolerance" not in told


def test_without_the_weights_of_the_step_it_is_said_what_cannot_be_compared(replayed):
    code, told = replayed("run", "--step", "4")
    assert code == 0
    assert "the checkpoint of step 2; those after step 3, which this step had, were not kept" in told
    assert "reward: byte-identical: reward (" in told and "ref_0: byte-identical: ref_logprobs (" in told
    for what in ("old_0: old_logprobs", "values_1: values", "advantages: advantages", "train_0: metrics"):
        line = next(line for line in told.splitlines() if what in line)
        assert "not comparable: the weights of the step were not kept; largest difference" in line
    assert "agrees with the log where it can be compared" in told


def test_one_node_runs_alone_on_what_the_log_holds_of_the_others(replayed):
    code, told = replayed("run", "--step", "4", "--node", "advantages")
    assert code == 0 and "step 4: advantages\n" in told
    assert "advantages: byte-identical: advantages (" in told and told.endswith("agrees with the log\n")


def test_the_step_runs_from_a_node_on_by_the_name_of_a_merged_one_too(replayed):
    code, told = replayed("run", "--step", str(STEPS), "--from", "critic_1")
    assert code == 0 and f"step {STEPS}: critic_0 -> train_0 -> train_1\n" in told
    assert "weights after step 5: byte-identical" in told


def test_what_is_not_as_logged_is_found_and_named(project, replayed):
    other = project / "other"
    shutil.copytree(project / "run", other)
    file = other / "trajectories" / "step_000005.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    changed = next(n for n, row in enumerate(rows) if row["advantages"])
    rows[changed]["advantages"][0] += 0.5
    column = pa.array([row["advantages"] for row in rows], table.schema.field("advantages").type)
    pq.write_table(table.set_column(table.schema.get_field_index("advantages"), "advantages", column), file)
    code, told = replayed("other", "--step", "5", "--node", "advantages")
    assert code == 1 and "DOES NOT AGREE" in told
    row = rows[changed]
    place = f"task {row['task_id']}, sample {row['sample']}, {row['agent']}, round {row['round'] + 1}"
    assert f"DIFFERS; largest difference 0.5: {place}" in told


@pytest.mark.parametrize(
    ("kind", "frame", "error"),
    [
        ("post_process_raised", "letters = letters[7]", "IndexError: list index out of range"),
        ("env_raised", "{}['key of b']", "KeyError: 'key of b'"),
    ],
)
def test_a_failed_trajectory_fails_again_with_the_users_traceback(project, replayed, kind, frame, error):
    code, told = replayed(capsule(project, kind))
    assert code == 1, told
    assert f"the fault occurs again: {kind}" in told
    assert "Traceback (most recent call last):" in told and frame in told and error in told
    assert "dagrl/hooks.py" not in told and "worker.py" not in told
    content = json.loads(Path(capsule(project, kind)).read_text())
    anew = 0 if kind == "env_raised" else 1
    assert f"{len(content['turns'])} answers as they were, {anew} given anew by the checkpoint of step 4" in told


def test_pdb_stops_in_the_node_and_the_users_function_and_looks_at_what_it_raised(project, replayed, monkeypatch):
    broken = project / "broken"
    shutil.copytree(project, broken, ignore=shutil.ignore_patterns("broken", "other", "cache"))
    resolved = broken / "run" / "workflow.yaml"
    resolved.write_text(resolved.read_text().replace(str(project), str(broken)))
    (broken / "own.py").write_text(REWARD.replace("right = ", "right = thing + "))
    (broken / "hooks.py").write_text((project / "hooks.py").read_text().replace("letters[7]", "letters[:0]"))
    world = broken / "environment.py"
    world.write_text(world.read_text().replace("{}['key of b']", "pass"))
    monkeypatch.chdir(broken)
    commands = "c\np 'answer ' + solution_str\nc\np 'truth ' + ground_truth\nq\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(commands))
    code, told = replayed("run", "--step", "5", "--node", "reward", "--pdb")
    assert code == 6 and "NameError: name 'thing' is not defined" in told
    assert "nodes/reward.py" in told.splitlines()[0]
    assert "own.py(3)score()" in told and "'answer " in told and "'truth " in told
    code, told = replayed(capsule(broken, "post_process_raised"))
    assert code == 0, told
    assert "the fault no longer occurs" in told and "+        letters = letters[:0]" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run",), "--step is not given"),
        (("run", "--step", "99"), "there are steps 1-5"),
        (("run", "--step", "4", "--node", "scout"), "plays, and is not part of a step's learning"),
        (("run", "--step", "4", "--node", "advantage"), "did you mean 'advantages'"),
        (("run", "--step", "4", "--node", "old_0", "--from", "old_0"), "exclude each other"),
        (("run/status.json",), "lies in no run folder"),
        (("run/code/hashes.json",), "is not a failed trajectory"),
    ],
)
def test_what_cannot_be_replayed_is_refused_by_name(replayed, words, message):
    code, told = replayed(*words)
    assert code in (2, 5) and message in told
    assert "Traceback" not in told
