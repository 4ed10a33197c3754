"""DYNAMIC_SAMPLING in whole runs: what it keeps, asks for, carries over and writes into the books; resumed runs."""

from __future__ import annotations

import hashlib
import json
import shutil
from itertools import pairwise

import pytest

from dagrl.errors import FaultBudgetError, WorkflowError
from dagrl.runtime.console import Console
from dagrl.runtime.metrics import read_metrics
from dagrl.runtime.resume import find_point
from dagrl.runtime.run_folder import RunFolder
from dagrl.runtime.session import run_workflow
from dagrl.runtime.signals import StopSignals
from tests.small_teams import node, one_process, speaker, team, train

SCORES = """
def first(data_source, solution_str, ground_truth, extra_info):
    return float(solution_str[:1] == ground_truth)

def same(data_source, solution_str, ground_truth, extra_info):
    return 1.0

def broken(data_source, solution_str, ground_truth, extra_info):
    raise ValueError("always")

def by_agent(trajectory):
    said = trajectory.turns[0].response_text[:1]
    return {0: float(said == trajectory.task.ground_truth), 1: 0.5}
"""
PAIR = (speaker("a"), speaker("b", 1, ["a"]))
QUICK = ("data.train_batch_size=3", "rollout.n=3", "trainer.total_steps=3")


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


def sampled(*, reward="scores.py:first", credit=None, reward_mode=None, **options):
    """Two agents in a row, with a DYNAMIC_SAMPLING node after the reward, and a CREDIT node after it if asked for."""
    algorithm = {"adv_estimator": "grpo", "reward_mode": reward_mode}
    made = team(PAIR, reward={"executable_ref": reward}, critics=False, algorithm=algorithm)
    last = "credit" if credit else "sampling"
    nodes = [
        one | {"dependencies": [last if name == "reward" else name for name in one["dependencies"]]}
        for one in made["nodes"]
    ]
    nodes.append(node("sampling", "COMPUTE", role="DYNAMIC_SAMPLING", after=["reward"],
                      options={"dynamic_sampling": options}))  # fmt: skip
    if credit:
        nodes.append(node("credit", "COMPUTE", role="CREDIT", after=["sampling"], options={"credit": credit}))
    return made | {"nodes": nodes}


def run(folder, made, *overrides):
    return train(folder, *QUICK, *overrides, team=made, files={"scores.py": SCORES})


def ledger(ran):
    rows = [json.loads(line) for line in (ran.folder / "ledger.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == "step"]


def groups(ran, step):
    """Rewards by prompt."""
    found = {}
    for turn in ran.of("b", f"step_{step:06d}"):
        found.setdefault(turn["task_id"], []).append(turn["trajectory_reward"])
    return found


def test_a_step_trains_on_a_full_batch_of_prompts_whose_samples_differ(tmp_path):
    ran = run(tmp_path, sampled(max_extra_batches=50))
    for step in (1, 2, 3):
        found = groups(ran, step)
        assert len(found) == 3
        assert all(len(own) == 3 and len(set(own)) == 2 for own in found.values())
    rows = ledger(ran)
    assert [len(row["tasks"]) * 3 for row in rows] == [row["issued"] for row in rows]
    assert all({reason for *_, reason in row["dropped"]} == {"no_signal"} for row in rows)
    assert rows[-1]["totals"]["trained"] == 3 * 9
    assert ran.series("sampling/missing") == [0] * 3
    assert all(share > 0 for share in ran.series("sampling/dropped"))


def test_what_is_kept_beyond_the_batch_is_trained_by_the_next_step_and_asked_for_less(tmp_path):
    ran = run(tmp_path, sampled(oversample=4, max_extra_batches=50))
    rows = ledger(ran)
    assert any(row["carried"] for row in rows)
    for before, row in pairwise(rows):
        carried = {task for _, task, _ in before["carried"]}
        assert carried <= groups(ran, row["step"]).keys() | {task for _, task, _ in row["carried"]}
    assert ran.series("sampling/carried") == [len(row["carried"]) / 3 for row in rows]
    assert all(len(groups(ran, step)) == 3 for step in (1, 2, 3))


def test_asking_ends_at_its_bound_and_the_step_trains_on_what_there_is_and_says_so(tmp_path, capsys):
    ran = run(tmp_path, sampled(max_extra_batches=1))
    assert ran.series("sampling/extra_batches") == [1] * 3
    assert any(missing > 0 for missing in ran.series("sampling/missing"))
    assert "asked 1 times for more prompts" in capsys.readouterr().out
    assert [len(groups(ran, step + 1)) for step in range(3)] == ran.series("sampling/kept")


def test_a_step_without_any_signal_trains_nobody_and_the_run_goes_on(tmp_path):
    ran = run(tmp_path, sampled(reward="scores.py:same", max_extra_batches=2), "trainer.total_steps=2")
    assert ran.series("trajectory/count") == [0, 0]
    rows = ledger(ran)
    assert [row["trained"] for row in rows] == [0, 0]
    assert [len(row["dropped"]) for row in rows] == [3 * 9] * 2


def test_data_that_is_all_in_the_step_already_ends_the_asking(tmp_path):
    options = ("data.train_batch_size=60", "trainer.total_steps=1", "rollout.n=2")
    ran = run(tmp_path, sampled(reward="scores.py:same", max_extra_batches=5), *options)
    assert ran.series("sampling/extra_batches") == [1]
    assert len(set(ledger(ran)[0]["tasks"])) == 64


def test_turns_of_an_agent_without_signal_are_left_out_where_another_has_some(tmp_path):
    ran = run(tmp_path, sampled(reward="scores.py:by_agent", reward_mode="per_agent", max_extra_batches=50))
    assert {turn["is_trained"] for turn in ran.of("a")} == {True}
    assert {turn["is_trained"] for turn in ran.of("b")} == {False}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_0": ["reward"]}, "add 'sampling' to its dependencies"),
        ({}, "rollout.n is 1"),
    ],
)
def test_nodes_that_would_work_on_dropped_samples_and_single_samples_are_refused(tmp_path, change, message):
    made = sampled()
    nodes = [one | {"dependencies": change.get(one["node_id"], one["dependencies"])} for one in made["nodes"]]
    with pytest.raises(WorkflowError, match=message):
        run(tmp_path, made | {"nodes": nodes}, *([] if change else ["rollout.n=1"]))


SETS = "trainer.eval=[{name: warm, files: val.jsonl, k: 2, temperature: 1.0}, {name: greedy, files: val.jsonl}]"


@pytest.mark.slow
def test_an_evaluation_throws_away_nothing_that_waits_for_the_next_step_and_changes_no_update(tmp_path):
    options = ("trainer.total_steps=3", "trainer.save_freq=1")
    alone = run(tmp_path / "alone", sampled(oversample=3), *options)
    judged = run(tmp_path / "judged", sampled(oversample=3), *options, SETS, "trainer.test_freq=1")
    assert any(row["carried"] for row in ledger(alone)), "nothing is in flight where the evaluations come"
    kept = ("step", "tasks", "issued", "trained", "dropped", "carried", "agents")
    assert [[row[name] for name in kept] for row in ledger(judged)] == [
        [row[name] for name in kept] for row in ledger(alone)
    ]
    parts = [fingerprint(one.folder) for one in (alone, judged)]
    logs = [{name: one for name, one in part.items() if not name.endswith(".jsonl")} for part in parts]
    assert logs[0] == logs[1]
    rows = [row for row in read_metrics(judged.folder / "metrics.jsonl") if "val/accuracy" in row]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]


def fates(row):
    """By the reason: tasks in whole that were dropped."""
    found = {}
    for _, task, _, reason in row["dropped"]:
        found.setdefault(reason, []).append(task)
    assert all(tasks.count(task) == 3 for tasks in found.values() for task in tasks)
    return {reason: list(dict.fromkeys(tasks)) for reason, tasks in found.items()}


def test_aborting_trains_on_what_carrying_over_would_and_drops_what_comes_later_in_the_data(tmp_path):
    options = ("trainer.total_steps=2", "algorithm.norm_adv=none")
    carried = run(tmp_path / "carry", sampled(oversample=4, max_extra_batches=50), *options)
    aborted = run(tmp_path / "abort", sampled(oversample=4, max_extra_batches=50, surplus="abort"), *options)
    names = ("task_id", "sample", "node", "response_ids", "advantages")
    said = [[[turn[name] for name in names] for turn in ran.turns()] for ran in (carried, aborted)]
    assert said[0] == said[1]
    for step, row in enumerate(ledger(aborted), 1):
        fate, trained = fates(row), list(groups(aborted, step))
        assert set(fate) <= {"no_signal", "aborted"} and "aborted" in fate
        assert len(trained) == 3 and row["carried"] == []
        assert row["tasks"][-len(fate["aborted"]) :] == fate["aborted"], "a tail of what was asked for"
        assert row["tasks"] == sorted(trained + fate.get("no_signal", []), key=row["tasks"].index) + fate["aborted"]
    assert aborted.series("ledger/dropped/aborted")[-1] == sum(
        3 * len(fates(row)["aborted"]) for row in ledger(aborted)
    )
    assert aborted.series("ledger/tokens")[0] < carried.series("ledger/tokens")[0]


def test_a_reward_function_that_fails_ends_an_aborting_run_too(tmp_path):
    made = sampled(reward="scores.py:broken", surplus="abort")
    with pytest.raises(FaultBudgetError, match="failed on 9 of 9"):
        run(tmp_path, made)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("credit", "surplus"), [(None, "carry"), ({"rule": "siblings"}, "carry"), (None, "abort")]
)
def test_a_resumed_run_with_prompts_carried_over_is_byte_for_byte_the_one_never_stopped(tmp_path, credit, surplus):
    made = sampled(oversample=3, credit=credit, surplus=surplus)
    ran = run(tmp_path, made, "trainer.total_steps=3", "trainer.save_freq=1", "trainer.test_freq=2", SETS,
              "trainer.probe_freq=1")  # fmt: skip
    if surplus == "carry":
        assert ledger(ran)[0]["carried"], "nothing waits at the checkpoint that is resumed"
    else:
        assert "aborted" in fates(ledger(ran)[0])
    resumed = tmp_path / "resumed"
    shutil.copytree(ran.folder, resumed)
    for step in (2, 3):
        shutil.rmtree(resumed / "checkpoints" / f"step_{step:06d}")
    folder = RunFolder(resumed)
    point = find_point(resumed, steps_back=False)
    assert point.step == 1
    run_workflow(ran.workflow, folder, Console(), stop=StopSignals(), point=point)
    folder.close()
    assert fingerprint(resumed) == fingerprint(ran.folder)


def fingerprint(run):
    files = [run / "metrics.jsonl", run / "ledger.jsonl", *(run / "trajectories").glob("step_*.parquet")]
    files += (run / "checkpoints" / "step_000003").rglob("*.safetensors")
    return {
        file.relative_to(run).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if not file.name.endswith(".timings.parquet")
    }
