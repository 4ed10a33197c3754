"""Held-out samples without a verdict are counted apart, wherever numbers of an evaluation are shown or kept."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from dagrl.cli import exit_code
from dagrl.data.trajectory_files import read_trajectories
from dagrl.errors import FaultBudgetError
from dagrl.runtime.evaluate import summed_up
from dagrl.runtime.line_log import read_lines
from dagrl.runtime.narration import evaluation_line
from dagrl.types import Task, Trajectory
from tests.small_teams import TWO, one_process, team, train
from tests.tiny_project import write_project

X, Y, Z = (Task(task_id=name, prompt="?", data_source="letters") for name in "xyz")


def sample(task: Task, number: int, reward: float | None) -> Trajectory:
    """`reward` None: nobody could find one."""
    unscored = "undecided" if reward is None else None
    return Trajectory(task=task, sample=number, step=0, reward=math.nan if reward is None else reward, num_rounds=1,
                      unscored=unscored)  # fmt: skip


def test_a_problem_is_solved_as_far_as_its_verdicts_say_and_unknown_where_it_has_none():
    played = [sample(X, 0, 1.0), sample(X, 1, None), sample(Y, 0, 0.0), sample(Y, 1, 1.0), sample(Z, 0, None)]
    found = summed_up([X, Y, Z], played, {"env_timeout": 1}, step=3, without=None)
    assert found.solved == (1.0, 0.5, None)
    assert found.accuracy.mean == 0.75
    assert (found.failed, found.unknown) == ({"env_timeout": 1}, {"undecided": 2})
    assert found.mean_reward == pytest.approx(2 / 3)
    metrics = found.metrics()
    assert (metrics["val/failed"], metrics["val/unknown"], metrics["val/problems"]) == (1.0, 2.0, 2.0)
    assert metrics["val/letters/reward"] == pytest.approx(2 / 3)
    assert evaluation_line(found).endswith(" of 2 (1 failed, 2 without a reward: left out)")


def test_an_evaluation_without_any_verdict_has_no_accuracy():
    found = summed_up([X], [sample(X, 0, None)], {}, step=0, without=None)
    assert math.isnan(found.accuracy.mean) and math.isnan(found.mean_reward)
    assert evaluation_line(found) == "held-out after step 0: unknown of 0 (1 without a reward: left out)"


REWARD = """
from dagrl.rewards.runner import Undecided

def judge(data_source, solution_str, ground_truth, extra_info):
    if ground_truth == "b":
        raise Undecided("too late")
    return 1.0
"""
HOOKS = """
def pre_process(tokenizer, prompt_id, obs=None):
    if tokenizer.decode(prompt_id).endswith("c"):
        raise ValueError("c is no letter")
    return prompt_id
"""
"""Of the sixteen held-out problems the four with `b` have no reward, the four with `c` fail, the others are solved."""


@pytest.mark.slow
def test_a_run_and_dagrl_eval_leave_them_out_say_so_and_keep_them(tmp_path, capsys):
    speakers = [dict(one) for one in TWO]
    speakers[0]["agent_options"] = {"process_path": "failing.py"}
    workflow = team(
        speakers, reward={"executable_ref": "judge.py:judge"}, rollout={"max_failed_fraction": 1.0},
        data={"val_files": "val.jsonl", "train_batch_size": 4}, trainer={"total_steps": 1},
    )  # fmt: skip
    write_project(tmp_path)
    for name, text in {"judge.py": REWARD, "failing.py": HOOKS, "team.json": json.dumps(workflow)}.items():
        (tmp_path / name).write_text(text)
    run = tmp_path / "out"
    with one_process(tmp_path / "models"):
        assert exit_code(["run", "--workflow", str(tmp_path / "team.json"), "--run-dir", str(run)]) == 0
        told = capsys.readouterr().out
        assert exit_code(["eval", str(run), str(run), "--k", "2"]) == 0
    assert "8 problems (4 failed, 4 without a reward: left out), after step 1" in told
    _check_run(run)
    _check_judgements(capsys.readouterr().out, run)
    assert exit_code(["show", str(run), "--eval", "--worst", "9"]) == 0
    told = capsys.readouterr().out
    assert "mean reward 1.000, 4 without a reward; 9 shown" in told
    heads = [line for line in told.splitlines() if line.startswith("===")]
    assert ["reward unknown" in line for line in heads] == [False] * 8 + [True], "those without a reward come last"


def _check_run(run: Path) -> None:
    rows = [row for row in read_lines(run / "metrics.jsonl") if "val/accuracy" in row]
    assert [row["step"] for row in rows] == [0, 1]
    for row in rows:
        told = [row[f"val/{name}"] for name in ("accuracy", "problems", "failed", "unknown", "reward")]
        assert told == [1.0, 8.0, 4.0, 4.0, 1.0]
    books = [row for row in read_lines(run / "ledger.jsonl") if row["kind"] == "evaluation"]
    assert {(row["held_out"], row["failed"], row["unknown"]) for row in books} == {(16, 4, 4)}
    turns = read_trajectories(run / "trajectories" / "eval_000001.parquet")
    assert len({turn["task_id"] for turn in turns if math.isnan(turn["trajectory_reward"])}) == 4
    failures = sorted((run / "failures").glob("eval1_*"))
    assert len(failures) == 4 and json.loads(failures[0].read_text())["step"] == 1


def _check_judgements(told: str, run: Path) -> None:
    assert "samples failed in user code: 8 (pre_process_raised 8)" in told
    assert "samples played, but without a reward: 8 (undecided 8)" in told
    assert "avg@2 with all of them not solved: 0.500" in told
    assert "8 of 16" in told and "pass@2 8" in told
    assert "8 failed, 8 without a reward; a problem that it has no verdict on is in no pair" in told
    for file in (run / "evaluations").glob("*.json"):
        team = json.loads(file.read_text())
        assert (team["failed"], team["unknown"]) == ({"pre_process_raised": 8}, {"undecided": 8})
        assert sum(problem["solved"] == [None, None] for problem in team["problems"]) == 8


@pytest.mark.slow
def test_an_error_of_a_node_names_the_step_as_it_is_shown_everywhere_else(tmp_path):
    broken = REWARD.replace("raise Undecided", "raise ValueError").replace('== "b"', '!= ""')
    workflow = team(TWO, reward={"executable_ref": "judge.py:judge"})
    with one_process(tmp_path / "models"), pytest.raises(FaultBudgetError, match="step 1, node 'reward'"):
        train(tmp_path, team=workflow, files={"judge.py": broken})
