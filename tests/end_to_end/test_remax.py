"""The estimator `remax` in whole runs: one greedy rollout of every prompt is its baseline."""

from __future__ import annotations

import json

import pytest

from dagrl.errors import WorkflowError
from tests.small_teams import GIVE, SCORES, TWO, one_process, team, train


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


def run(folder, *overrides):
    made = team(TWO, reward=GIVE, critics=False, algorithm={"adv_estimator": "remax"})
    return train(folder, *overrides, team=made, files={"scores.py": SCORES})


def test_advantages_are_rewards_less_the_reward_of_one_greedy_rollout_of_each_prompt(tmp_path):
    ran = run(tmp_path, "data.train_batch_size=16")
    baselines = {}
    for turn in ran.turns():
        assert len(set(turn["advantages"])) <= 1
        if turn["advantages"]:
            baselines.setdefault(turn["task_id"], set()).add(turn["reward"] - turn["advantages"][0])
    assert all(len(own) == 1 for own in baselines.values())
    assert {value for own in baselines.values() for value in own} <= {0.0, 1.0}
    rows = [json.loads(line) for line in (ran.folder / "ledger.jsonl").read_text().splitlines()]
    assert [row["extra"] for row in rows] == [16, 16]
    assert ran.series("advantage/extra_rollouts") == [16, 16]


def test_samples_that_are_the_greedy_ones_are_refused(tmp_path):
    with pytest.raises(WorkflowError, match="all agents are sampled with temperature 0"):
        run(tmp_path, "rollout.sampling.temperature=0")
