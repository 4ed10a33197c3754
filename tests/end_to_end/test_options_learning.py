"""Every option of rewards, advantages, losses and updates does what it promises, in real runs of a few steps."""

from __future__ import annotations

import pytest

from dagrl.errors import DagrlError, UserCodeError
from tests.small_teams import GIVE, SCORES, TWO, changed, is_same, node, one_process, run, speaker, team, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def together(tmp_path_factory):
    with one_process(tmp_path_factory.mktemp("cache")):
        yield


def test_nodes_of_each_agent_find_the_advantages_that_one_node_finds(tmp_path):
    lone = team(TWO, reward=GIVE, algorithm={"adv_estimator": "gae", "norm_adv": "agent"})
    place = [one["node_id"] for one in lone["nodes"]].index("advantages")
    own = [lone["nodes"][place] | {"node_id": f"adv_{group}", "agent_group": group} for group in (0, 1)]
    both = lone | {"nodes": [*lone["nodes"][:place], *own, *lone["nodes"][place + 1 :]]}
    for one in both["nodes"]:
        one["dependencies"] = [
            word for name in one["dependencies"] for word in (["adv_0", "adv_1"] if name == "advantages" else [name])
        ]
    single = run(tmp_path / "one", algorithm=lone["config"]["algorithm"])
    double = train(tmp_path / "two", team=both, files={"scores.py": SCORES})
    assert all(is_same(single, double, part) for part in ("agent_0", "agent_1", "critic_0"))


def test_an_estimator_in_the_config_of_its_node_gives_every_agent_the_teams_reward(tmp_path):
    own = changed(team(TWO, reward=GIVE), "advantages", config={"algorithm.adv_estimator": "gae"})
    ran = train(
        tmp_path, "nodes.reward.agent_options.reward_kwargs={bonus: 5.0}", team=own, files={"scores.py": SCORES}
    )
    assert min(ran.series("agent_0/reward")) >= 5.0


def test_an_action_has_one_advantage_and_its_normalisation_changes_the_update(tmp_path):
    long = ("algorithm.action_level=true", "rollout.sampling.max_tokens=4")
    ran = {name: train(tmp_path / name, *long, f"algorithm.action_logprob={name}") for name in ("sum", "mean", "none")}
    for turn in ran["sum"].turns():
        assert len(set(turn["advantages"])) == 1
    assert not is_same(ran["sum"], ran["mean"], "agent_scout")
    assert not is_same(ran["mean"], ran["none"], "agent_scout")


def adaptive(coefs, errors, target, horizon, batch):
    """Ziegler et al. 2019: each step moves the coefficient by the error, at most a fifth, times batch / horizon."""
    return [
        coef * (1 + max(-0.2, min(0.2, error / target - 1)) * batch / horizon) for coef, error in zip(coefs, errors)
    ]


def test_adaptive_coefficients_follow_the_kl_that_was_measured(tmp_path):
    ran = train(tmp_path / "loss", "actor.kl_loss_ctrl=adaptive", "actor.kl_loss_coef=0.1", "actor.kl_loss_horizon=64",
                "actor.kl_loss_target=0.05", "trainer.total_steps=4")  # fmt: skip
    coefs, errors = ran.series("agent_scout/actor/kl_loss_coef"), ran.series("agent_scout/actor/kl_loss")
    assert coefs[1:] == pytest.approx(adaptive(coefs, errors, 0.05, 64, 16)[:-1])
    waits = "nodes.advantages.dependencies=[values_0, values_1, old_0, old_1, ref_0, ref_1]"
    ran = train(tmp_path / "reward", "algorithm.use_kl_in_reward=true", waits, "trainer.total_steps=4",
                "algorithm.kl_ctrl={type: adaptive, kl_coef: 0.1, target_kl: 0.01, horizon: 64}")  # fmt: skip
    coefs, errors = ran.series("advantage/kl_coef"), ran.series("advantage/kl_in_reward")
    assert coefs[1:] == pytest.approx(adaptive(coefs, errors, 0.01, 64, 16)[:-1])
    later = ran.of("scout", "step_000003")
    assert later[0]["rewards"] == pytest.approx(
        [-coefs[2] * (later[0]["old_logprobs"][0] - later[0]["ref_logprobs"][0])]
    )


def test_the_second_agent_of_a_sequential_update_weighs_what_the_first_became(tmp_path):
    plain = train(tmp_path / "plain", "trainer.total_steps=1")
    order = train(tmp_path / "order", "trainer.total_steps=1", "algorithm.update_order=sequential")
    assert is_same(plain, order, "agent_scout")
    assert not is_same(plain, order, "agent_caller")


def test_cycles_train_in_turn_and_schedules_end_with_each_models_own_steps(tmp_path):
    ran = train(
        tmp_path, "nodes.train_0.agent_options.train_cycle=2", "nodes.train_1.agent_options.train_cycle=2",
        "trainer.total_steps=8", "actor.optim.schedule=linear", "actor.ppo_epochs=1", "critic.optim.schedule=linear",
        "critic.optim.warmup_steps=2",
    )  # fmt: skip
    scout, caller = [ran.series(f"agent_{name}/actor/lr") for name in ("scout", "caller")]
    falling = [0.01, 0.0075, 0.005, 0.0025]
    assert scout == [*falling[:2], None, None, *falling[2:], None, None]
    assert caller == [None, None, *falling[:2], None, None, *falling[2:]]
    rising = [0.01 / 3, 0.02 / 3]
    assert ran.series("critic_scout/lr") == pytest.approx([*rising, *(0.01 * (1 - n / 6) for n in range(6))])


def test_the_critics_warm_up_trains_no_policy_and_target_kl_ends_the_epochs(tmp_path):
    ran = train(tmp_path, "trainer.critic_warmup=1", "actor.target_kl=1e-9", "actor.ppo_epochs=4")
    assert ran.series("agent_scout/actor/lr") == [None, 0.01]
    assert None not in ran.series("critic_scout/lr")
    assert ran.series("agent_scout/actor/early_stop") == [None, 1.0]
    assert ran.series("agent_scout/actor/optimizer_steps") == [None, 2.0]


def test_minibatches_are_of_trajectories_and_only_last_rounds_train_where_asked(tmp_path):
    ran = train(tmp_path / "mini", "actor.ppo_mini_batch_size=3", "critic.ppo_mini_batch_size=5", "actor.ppo_epochs=2")
    assert ran.series("agent_scout/actor/optimizer_steps")[0] == 2 * 6
    assert ran.series("critic_scout/optimizer_steps")[0] == 4
    last = {flag: train(tmp_path / flag, f"rollout.use_all_traj={flag}", max_rounds=2) for flag in ("true", "false")}
    assert [turn["response_ids"] for turn in last["true"].turns()] == [
        turn["response_ids"] for turn in last["false"].turns()
    ]
    assert not is_same(last["true"], last["false"], "agent_scout")


ESTIMATOR = """
import torch

def reward_to_go(rewards_T, values_T, layout, bootstrap_N, links, *, action_level=False):
    assert sorted(set(layout.agent_group.tolist())) == [0, 1]
    assert values_T.abs().sum() == 0
    given = torch.full_like(rewards_T, 3.0) + layout.agent_group.repeat_interleave(layout.response_lens)
    return given, given

def broken(rewards_T, values_T, layout, bootstrap_N, links, *, action_level=False):
    return rewards_T[:-1], rewards_T

def loss(logprobs_T, old_logprobs_T, advantages_T, clip):
    from dagrl.algorithms import ppo_loss
    return ppo_loss(logprobs_T, old_logprobs_T, 0.0 * advantages_T, clip)

def wrong(logprobs_T):
    return logprobs_T
"""


@pytest.mark.parametrize("named", ["config", "node"])
def test_an_estimator_of_ones_own_serves_all_agents_and_needs_no_critic(tmp_path, named):
    own = team(TWO, reward=GIVE, critics=False, algorithm={"norm_adv": "none"})
    if named == "node":
        own = changed(own, "advantages", executable_ref="own.py:reward_to_go")
    else:
        own["config"]["algorithm"]["adv_estimator"] = "own.py:reward_to_go"
    ran = train(tmp_path, team=own, files={"own.py": ESTIMATOR, "scores.py": SCORES})
    assert {turn["node"]: set(turn["advantages"]) for turn in ran.turns()} == {"a": {3.0}, "b": {4.0}}


def test_functions_of_ones_own_are_checked_when_loaded_and_when_called(tmp_path):
    files = {"own.py": ESTIMATOR}
    with pytest.raises(DagrlError, match=r"own.py:wrong.*cannot be called"):
        run(tmp_path / "1", TWO, "algorithm.adv_estimator=own.py:wrong", files=files)
    with pytest.raises(DagrlError, match=r"own.py:wrong.*cannot be called"):
        run(tmp_path / "2", TWO, "algorithm.policy_loss=own.py:wrong", files=files)
    with pytest.raises(UserCodeError, match=r"own.py:broken gave advantages of"):
        run(tmp_path / "3", TWO, "algorithm.adv_estimator=own.py:broken", files=files)


def test_a_policy_loss_of_ones_own_is_the_one_that_is_minimised(tmp_path):
    ran = run(tmp_path, TWO, "algorithm.policy_loss=own.py:loss", files={"own.py": ESTIMATOR})
    assert ran.series("agent_0/actor/grad_norm") == [0.0, 0.0]
    assert ran.series("agent_0/actor/policy_loss") == [0.0, 0.0]


COMPUTE = """
def scale(batch, config):
    from dagrl.workflow.kinds import Column
    batch.columns[Column.ADVANTAGES] *= config["factor"] * config["rollout"]["n"]
    return batch
"""


def test_a_compute_node_changes_the_batch_and_is_handed_its_own_config(tmp_path):
    node_of_mine = node("mine", "COMPUTE", after=["advantages"], executable_ref="mine.py:scale", config={"factor": 0.0})
    own = team(TWO, reward=GIVE)
    own["nodes"].append(node_of_mine)
    for one in own["nodes"]:
        if one["node_id"].startswith("train"):
            one["dependencies"] = ["mine"]
    ran = train(tmp_path, team=own, files={"mine.py": COMPUTE, "scores.py": SCORES})
    assert {value for turn in ran.turns() for value in turn["advantages"]} == {0.0}


def test_one_agent_alone_learns_by_ordinary_ppo(tmp_path):
    ran = run(
        tmp_path, (speaker("a"),), "trainer.total_steps=40", "rollout.n=8", "data.train_batch_size=8",
        "rollout.sampling.max_tokens=1", "algorithm.adv_estimator=gae", "actor.ppo_epochs=2",
    )  # fmt: skip
    rewards = ran.series("reward/mean")
    assert rewards[0] < 0.3
    assert rewards[-1] > 0.8
