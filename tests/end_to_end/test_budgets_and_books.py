"""Real runs: the ledger beside what other files of the run say, and runs that end when a budget is spent."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from dagrl.runtime.console import Console
from dagrl.runtime.resume import find_point
from dagrl.runtime.run_folder import RunFolder
from dagrl.runtime.session import run_workflow
from dagrl.runtime.signals import StopSignals
from dagrl.workflow.graph import load_workflow
from tests.small_teams import SCORES, one_process, run, speaker, train

pytestmark = pytest.mark.slow

FALTERING = (
    SCORES
    + """
def faltering(data_source, solution_str, ground_truth, extra_info):
    if extra_info["index"] % 4 == 1:
        raise RuntimeError("no score")
    return 1.0
"""
)
HOOKS = """
def pre_process(tokenizer, prompt_id, trajectory):
    if trajectory.task.extra_info["index"] % 4 == 3 and trajectory.sample == 1:
        raise ValueError("no prompt")
    return prompt_id
"""


@pytest.fixture(scope="module", autouse=True)
def together(tmp_path_factory):
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


def ledger(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def test_the_books_say_what_trajectories_and_failures_say(tmp_path):
    rows = [{"prompt": "?a", "ground_truth": "a", "extra_info": {"index": n}} for n in range(8)]
    ran = run(
        tmp_path,
        files={
            "scores.py": FALTERING,
            "own_hooks.py": HOOKS,
            "train.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        },
        reward={"executable_ref": "scores.py:faltering"},
        play=(speaker("a", process_path="own_hooks.py"), speaker("b", 1, ["a"])),
        rollout={"max_failed_fraction": 1.0},
    )
    steps = ledger(ran.folder)
    assert [row["step"] for row in steps] == [1, 2]
    played = Counter()
    for number, row in enumerate(steps, start=1):
        turns = ran.turns(f"step_{number:06d}")
        seen = {(turn["task_id"], turn["sample"]) for turn in turns}
        issued = {(task, sample) for task in row["tasks"] for sample in range(2)}
        reasons = {(task, sample): reason for _, task, sample, reason in row["dropped"]}
        broken = {key for key in issued if int(key[0].split(":")[1]) % 4 == 3 and key[1] == 1}
        unjudged = {key for key in seen if int(key[0].split(":")[1]) % 4 == 1}
        assert issued - seen == broken
        assert reasons == dict.fromkeys(broken, "pre_process_raised") | dict.fromkeys(unjudged, "reward_raised")
        assert row["issued"] == 8 == row["trained"] + len(reasons)
        for name in ("0", "1"):
            own = [turn for turn in turns if turn["agent"] == name]
            trained = [turn for turn in own if (turn["task_id"], turn["sample"]) not in unjudged]
            assert row["agents"][name] == {
                "prompt_tokens": sum(len(turn["prompt_ids"]) for turn in own),
                "tokens": sum(len(turn["response_ids"]) for turn in own),
                "trained_tokens": sum(len(turn["response_ids"]) for turn in trained),
            }
            played.update(tokens=row["agents"][name]["tokens"])
        assert row["judge_calls"] == len(seen)
        assert row["hook_calls"] == row["issued"]
        assert row["env_calls"] == 0
    assert {failure["kind"] for failure in map(_json, (ran.folder / "failures").iterdir())} == {"pre_process_raised"}
    assert steps[-1]["totals"]["tokens"] == played["tokens"] == ran.rows[-1]["ledger/tokens"]
    assert steps[-1]["totals"]["issued"] == 16


def _json(path: Path) -> dict:
    return json.loads(path.read_text())


def test_a_run_ends_after_the_step_in_which_its_budget_is_spent_and_a_resumed_one_says_so(tmp_path, capsys):
    # A step plays 4 prompts 4 times: a reset and a step of one environment for each, 32 calls.
    ran = train(tmp_path, "config.stop_when.env_calls=33", "trainer.save_freq=1", total_steps=5)
    assert len(ran.rows) == 2
    assert ledger(ran.folder)[-1]["totals"]["env_calls"] == 64
    assert (ran.folder / "checkpoints" / "step_000002").is_dir()
    assert json.loads((ran.folder / "status.json").read_text())["state"] == "done"
    assert "env_calls 32 of 33 (97%)" in capsys.readouterr().out
    before = {name: (ran.folder / name).read_bytes() for name in ("metrics.jsonl", "ledger.jsonl")}
    report = _go_on(ran.folder, tmp_path, "config.stop_when.env_calls=33")
    assert (report.num_steps, str(report.spent)) == (2, "env_calls 64 of 33")
    assert "the budget is spent (env_calls 64 of 33)" in capsys.readouterr().out
    assert before == {name: (ran.folder / name).read_bytes() for name in before}
    further = _go_on(ran.folder, tmp_path, "config.stop_when.env_calls=96")
    assert (further.num_steps, further.spent.used) == (3, 96.0)


def _go_on(folder: Path, project: Path, *overrides: str):
    quick = ("data.train_batch_size=4", "data.val_files=[]", "trainer.val_without=[]", "trainer.save_freq=1")
    workflow = load_workflow(project / "calling.yaml", [*quick, *overrides], load_plugins=True)
    held = RunFolder(folder)
    try:
        return run_workflow(workflow, held, Console(), stop=StopSignals(), point=find_point(folder, steps_back=False))
    finally:
        held.close()


def test_seconds_of_earlier_parts_count_and_an_evaluation_can_spend_a_budget(tmp_path):
    ran = train(tmp_path, "data.val_files=val.jsonl", "config.stop_when.seconds=1e-6")
    assert ran.rows == []
    assert [row["kind"] for row in ledger(ran.folder)] == ["evaluation"]
    report = _go_on(ran.folder, tmp_path, "config.stop_when.seconds=1e-6", "data.val_files=val.jsonl")
    assert (report.num_steps, report.spent.name) == (0, "seconds")


def test_a_target_for_held_out_accuracy_ends_a_run(tmp_path):
    everybody = "class Calling:\n    def reset(self, prompt=None):\n        return None\n\n"
    everybody += "    def __init__(self, rounds=1):\n        pass\n\n"
    everybody += "    def step(self, actions, ground_truth):\n        return None, 1.0, True\n"
    ran = train(
        tmp_path,
        "data.val_files=val.jsonl",
        "config.stop_when.held_out_accuracy=1.0",
        "trainer.val_before_train=false",
        "trainer.test_freq=1",
        files={"environment.py": everybody},
        total_steps=3,
    )
    assert [row["kind"] for row in ledger(ran.folder)] == ["step", "evaluation"]
