"""Several held-out sets: what each is called, how each is sampled, which counts, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from dagrl.cli import exit_code
from dagrl.data.trajectory_files import read_trajectories
from dagrl.errors import WorkflowError
from dagrl.runtime.evaluate import summed_up
from dagrl.runtime.held_out_scores import detailed_scores
from dagrl.runtime.line_log import read_lines
from dagrl.runtime.verify import verify
from dagrl.types import FinishReason, SamplingParams, Task, Trajectory, Turn
from dagrl.workflow.graph import load_workflow
from dagrl.workflow.held_out import HeldOutSet, held_out_sets
from tests.small_teams import TWO, one_process, team
from tests.tiny_project import write_project

SETS = "trainer.eval=[{files: easy.jsonl}, {name: hard, files: [b.jsonl, c.jsonl], k: 4, temperature: 1, seed: 5}]"
X, Y = (Task(task_id=name, prompt="?", data_source="letters") for name in "xy")


def workflow(folder, *overrides):
    return load_workflow(write_project(folder), ["data.val_files=[]", *overrides])


def test_a_set_is_called_by_its_first_file_and_takes_what_it_does_not_say_from_val_kwargs(tmp_path):
    told = workflow(tmp_path, SETS, "rollout.val_kwargs.n=2", "trainer.best_set=hard").spec.config
    hard, easy = held_out_sets(told)
    assert (hard.name, hard.k, hard.counts, hard.files) == ("hard", 4, True, ("b.jsonl", "c.jsonl"))
    assert (easy.name, easy.k, easy.counts) == ("easy", 2, False)
    usual = SamplingParams(temperature=0.0, max_tokens=7)
    assert hard.params(usual) == replace(usual, temperature=1.0)
    assert (easy.params(usual), easy.seed(None), hard.seed(None)) == (usual, None, 5)


def test_val_files_are_the_shorthand_for_one_set_without_a_name(tmp_path):
    told = load_workflow(write_project(tmp_path), ["rollout.val_kwargs.n=3"]).spec.config
    assert held_out_sets(told) == (HeldOutSet(files=("val.jsonl",), k=3),)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trainer.eval=[{files: a.jsonl}]", "data.val_files=val.jsonl"], "both name held-out problems"),
        (["trainer.eval=[{files: a.jsonl}, {files: x/a.jsonl}]"], "several held-out sets are called 'a'"),
        (["trainer.eval=[{files: a.jsonl, name: 'a b'}]"], "'a b' cannot name a held-out set"),
        (["trainer.eval=[{files: a.jsonl, name: agent_a}]"], "'agent_a' cannot name a held-out set"),
        (["trainer.eval=[{files: a.jsonl}]", "trainer.best_set=b"], "best_set names 'b', which is no set"),
        (["trainer.best_set=b"], "best_set names 'b', which is no set"),
        (["trainer.eval=[{files: a.jsonl, temprature: 1}]"], "(?s)unknown key 'temprature'.*mean 'temperature'"),
        (["trainer.eval=[{files: []}]"], "at least 1 member"),
        (["trainer.eval=[{name: a}]"], "'files' is missing"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, overrides, message):
    with pytest.raises(WorkflowError, match=message):
        workflow(tmp_path, *overrides)


def test_an_unknown_key_of_a_set_is_refused_at_its_line(tmp_path):
    path = write_project(tmp_path)
    text = path.read_text().replace("    val_files: val.jsonl\n", "")
    path.write_text(text.replace("  trainer:\n", "  trainer:\n    eval:\n      - files: val.jsonl\n        kk: 3\n"))
    line = path.read_text().splitlines().index("        kk: 3") + 1
    with pytest.raises(WorkflowError, match="unknown key 'kk'") as found:
        load_workflow(path)
    assert [one.line for one in found.value.findings] == [line]


def said(group, text, reward, *, cut=False, round=0):
    return Turn(
        node_id="ab"[group], agent_group=group, round=round, prompt_ids=(1,), response_ids=(2,) * len(text),
        rollout_logprobs=None, temperature=1.0, finish_reason=FinishReason.LENGTH if cut else FinishReason.STOP,
        policy_version=0, response_text=text, reward=reward,
    )  # fmt: skip


def test_scores_by_round_by_agent_and_of_k_samples_are_those_worked_by_hand():
    played = [
        Trajectory(task=X, sample=0, step=0, reward=1.0, num_rounds=1, turns=[said(0, "7", 1.0), said(1, "77", 0.5)]),
        Trajectory(task=X, sample=1, step=0, reward=1.0, num_rounds=2,
                   turns=[said(0, "5", 0.0), said(0, "7", 1.0, round=1)]),
        Trajectory(task=Y, sample=0, step=0, reward=0.0, num_rounds=2, turns=[said(0, "333", 0.0, cut=True)]),
        Trajectory(task=Y, sample=1, step=0, reward=math.nan, num_rounds=1, unscored="undecided",
                   turns=[said(0, "1", 0.0)]),
    ]  # fmt: skip
    held_out = HeldOutSet(name="aime", k=2, counts=False)
    evaluation = summed_up([X, Y], played, {}, step=0, without=None, held_out=held_out)
    assert evaluation.metrics()["val/aime/accuracy"] == 0.5
    assert "val/accuracy" not in evaluation.metrics()
    told = detailed_scores(evaluation, [X, Y], 2, ["first", "second"])
    assert told == pytest.approx(
        {
            "val/aime/round_2/accuracy": 0.5,
            "val/aime/agent_first/turns": 5 / 4,
            "val/aime/agent_first/response_tokens": 7 / 5,
            "val/aime/agent_first/cut": 1 / 5,
            "val/aime/agent_first/reward": 2 / 4,
            "val/aime/agent_second/turns": 1 / 4,
            "val/aime/agent_second/response_tokens": 2.0,
            "val/aime/agent_second/cut": 0.0,
            "val/aime/agent_second/reward": 0.5,
            "val/aime/pass_at_k": 1.0,  # of X alone: Y has one verdict
            "val/aime/maj_at_k": 0.5,
        }
    )


REWARD = """
def judge(data_source, solution_str, ground_truth, extra_info):
    return {"score": float(ground_truth in "ab"), "verdict": {"b": ("yes", "yes" if ground_truth in "ab" else "no")}}
"""


def finished(folder, made, files, *options):
    """The folder of a run by the command, with all that a run leaves behind."""
    write_project(folder)
    for name, text in {**files, "team.json": json.dumps(made)}.items():
        (folder / name).write_text(text)
    run = folder / "out"
    assert exit_code(["run", "--workflow", str(folder / "team.json"), "--run-dir", str(run), *options]) == 0
    return run


@pytest.mark.slow
def test_a_run_plays_every_set_in_its_own_way_and_goes_by_the_one_that_counts(tmp_path, capsys):
    sets = [{"name": "greedy", "files": "val.jsonl"}, {"name": "warm", "files": "val.jsonl", "k": 3, "temperature": 1}]
    made = team(
        TWO, reward={"executable_ref": "judge.py:judge"}, data={"train_batch_size": 4}, trainer={"eval": sets}
    )  # fmt: skip
    options = ("trainer.best_set=warm", "trainer.val_without=[a]", "trainer.test_freq=1")
    with one_process(tmp_path / "models"):
        run = finished(tmp_path, made, {"judge.py": REWARD}, *options)
        folder = str(run)
        assert exit_code(["eval", folder, "--set", "greedy"]) == 0
        assert exit_code(["eval", folder, "--set", "gredy"]) == 2
    told = capsys.readouterr()
    assert "did you mean 'greedy'" in told.err
    assert "warm gain" in told.out and "greedy gain" in told.out
    table = [line.split() for line in told.out.splitlines()]
    assert ["b", "yes", "no", "50.0%"] in table and ["agent", "reward/turn"] in [line[:2] for line in table]
    rows = [row for row in read_lines(run / "metrics.jsonl") if "val/accuracy" in row]
    assert [row["step"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert row["val/accuracy"] == row["val/warm/accuracy"] == row["val/greedy/accuracy"] == 0.5
        assert row["val/problems"] == 16 and row["val/warm/agent_0/turns"] == 1
        assert row["val/warm/verdict/b/yes/no"] == row["val/greedy/verdict/b/yes/yes"] == 0.5
        assert "val/warm/pass_at_k" in row and "val/greedy/pass_at_k" not in row
    last = read_lines(run / "metrics.jsonl")[-1]
    assert last["val/warm/without/a/accuracy"] == 0.5
    books = [row for row in read_lines(run / "ledger.jsonl") if row["kind"] == "evaluation"]
    assert [(row["step"], row["set"], row["without"], row["held_out"]) for row in books] == [
        (0, "warm", None, 48), (0, "greedy", None, 16), (1, "warm", None, 48), (1, "greedy", None, 16),
        (2, "warm", None, 48), (2, "greedy", None, 16), (2, "warm", "a", 48),
    ]  # fmt: skip
    turns = read_trajectories(run / "trajectories" / "eval_000001@greedy.parquet")
    assert {turn["task_id"] for turn in turns} == {f"greedy:{row}" for row in range(16)}
    warm = read_trajectories(run / "trajectories" / "eval_000001.parquet")
    assert len(warm) == 96 and len({turn["response"] for turn in warm}) > len({turn["response"] for turn in turns})
    verdict = verify(run, None)
    assert not verdict.damaged and 1 in verdict.steps
    assert exit_code(["show", folder, "--eval", "--set", "greedy", "--step", "1"]) == 0
    assert "held out after step 1, greedy: 16 trajectories" in capsys.readouterr().out
    assert exit_code(["show", folder, "--eval", "--set", "warm"]) == 2


@pytest.mark.slow
def test_a_sample_that_fails_on_a_set_can_be_played_again_as_it_was(tmp_path, capsys):
    hook = 'def pre_process(tokenizer, prompt_id):\n    assert not tokenizer.decode(prompt_id).endswith("c")\n'
    speakers = [dict(one) for one in TWO]
    speakers[1]["agent_options"] = {"process_path": "failing.py"}
    sets = [{"name": "warm", "files": "val.jsonl", "k": 2, "temperature": 1.0, "seed": 9}]
    made = team(
        speakers, reward={"executable_ref": "judge.py:judge"}, rollout={"max_failed_fraction": 1.0},
        data={"train_batch_size": 4}, trainer={"eval": sets},
    )  # fmt: skip
    with one_process(tmp_path / "models"):
        files = {"judge.py": REWARD, "failing.py": hook + "    return prompt_id\n"}
        run = finished(tmp_path, made, files, "trainer.total_steps=1")
        failure = sorted((run / "failures").glob("eval0@warm_*"))[0]
        assert json.loads(failure.read_text())["held_out"] == "warm"
        assert exit_code(["replay", str(failure)]) == 1
    told = capsys.readouterr().out
    assert "the evaluation after step 0, warm" in told
    assert "1 answers as they were" in told, "the first agent's answer was not found by its seed"
