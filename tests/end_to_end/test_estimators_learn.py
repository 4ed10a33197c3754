"""Estimators that compare: what they write in a real run is what their formula says, and a team learns by them."""

from __future__ import annotations

import statistics
from collections import defaultdict

import pytest

from tests.small_teams import one_process, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def together(tmp_path_factory):
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


def by_group(turns, keys):
    """The rewards of each group, every trajectory's turn of an agent being one (the game has one round)."""
    groups = defaultdict(list)
    for turn in turns:
        groups[tuple(turn[key] for key in keys)].append(turn["reward"])
    return groups


@pytest.mark.parametrize(
    ("group_by", "keys"), [("[prompt]", ("task_id",)), ("[prompt, agent]", ("task_id", "node")), ("[agent]", ("node",))]
)
def test_the_advantages_of_a_run_are_those_of_its_rewards(tmp_path, group_by, keys):
    ran = train(tmp_path, "algorithm.adv_estimator=rloo", f"algorithm.group_by={group_by}", "trainer.total_steps=1")
    turns = ran.turns()
    groups = by_group(turns, keys)
    assert any(len(set(rewards)) > 1 for rewards in groups.values())
    for turn in turns:
        rewards = groups[tuple(turn[key] for key in keys)]
        others = (sum(rewards) - turn["reward"]) / (len(rewards) - 1)
        expected = 0.0 if len(set(rewards)) == 1 else turn["reward"] - others
        assert turn["advantages"] == pytest.approx([expected] * len(turn["advantages"]), abs=1e-6)


@pytest.mark.resilience
@pytest.mark.parametrize(("estimator", "loss"), [("grpo", "gspo")])
def test_a_team_becomes_better_without_a_critic(tmp_path, estimator, loss):
    ran = train(
        tmp_path,
        f"algorithm.adv_estimator={estimator}",
        f"algorithm.policy_loss={loss}",
        "actor.rollout_correction=tis",
        "data.train_batch_size=32",
        "trainer.total_steps=24",
    )
    rewards = ran.series("reward/mean")
    assert statistics.fmean(rewards[-4:]) > statistics.fmean(rewards[:4]) + 0.1
    assert ran.series("agent_scout/actor/rollout_weight_mean")[0] == pytest.approx(1.0, abs=1e-3)


def test_m2po_measures_its_distance_to_the_sampler_before_every_optimizer_step(tmp_path):
    loss = ("algorithm.policy_loss=m2po", "actor.old_logprobs=rollout", "algorithm.m2_threshold=1e-4")
    often = ("actor.ppo_epochs=4", "actor.optim.lr=0.05", "trainer.total_steps=1")
    ran = train(tmp_path, "algorithm.adv_estimator=rloo", *loss, *often)
    for agent in ("scout", "caller"):
        told = {name: ran.series(f"agent_{agent}/actor/{name}")[0] for name in ("m2_before", "m2_after", "m2_masked")}
        # On policy in the first epoch, far from it in the next ones.
        assert told["m2_before"] > 1e-4 >= told["m2_after"]
        assert 0.0 < told["m2_masked"] < 1.0
