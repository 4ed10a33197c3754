"""ADVANTAGES on a real stream: the hand cases of MARFT, bootstrap on truncation, KL in the reward, normalising."""

import pytest
import torch

from dagrl.algorithms import AdaptiveKL, FixedKL, gae, marft_gae
from dagrl.experience import collate
from dagrl.nodes.advantages import AdvantagesNode
from dagrl.nodes.stream_advantages import StreamAdvantages
from dagrl.types import StopReason
from dagrl.workflow.algorithm_section import AlgorithmSpec
from dagrl.workflow.kinds import Column, NodeKind
from tests.node_builders import node
from tests.stream_builders import trajectory, turn


def filled(trajectories, reward_at_end=1.0, value=0.25):
    """An experience with constant values and the reward on each trajectory's last token."""
    experience = collate(trajectories)
    every = torch.arange(len(experience.turns))
    rewards = torch.zeros(experience.num_tokens)
    ends = experience.turns.response_len.cumsum(0) - 1
    for number in range(len(trajectories)):
        last = (experience.turns.trajectory == number).nonzero().flatten()[-1]
        rewards[ends[last]] = reward_at_end
    experience.write(Column.REWARDS, every, rewards)
    experience.write(Column.VALUES, every, torch.full((experience.num_tokens,), value))
    return experience


def advantages_node(estimator=marft_gae, kl=None, **algorithm):
    spec = AlgorithmSpec(**({"norm_adv": "none"} | algorithm))
    fn = node(NodeKind.ADVANTAGES, groups=(0, 1, 2), algorithm=spec)
    return AdvantagesNode(fn, StreamAdvantages(fn, estimator), FixedKL(0.0) if kl is None else kl)


@pytest.mark.parametrize("num_agents", [1, 2, 3])
def test_with_no_discount_every_return_is_the_teams_reward(num_agents):
    turns = [turn(agent, round, range(2 + agent)) for round in range(2) for agent in range(num_agents)]
    experience = filled([trajectory("a", turns), trajectory("b", turns[:num_agents])])
    advantages_node().run(experience, 0)
    assert torch.allclose(experience.columns[Column.RETURNS], torch.ones(experience.num_tokens))
    assert torch.allclose(experience.columns[Column.ADVANTAGES], torch.full((experience.num_tokens,), 0.75))


def test_a_truncated_trajectory_bootstraps_from_the_value_after_its_last_turn():
    turns = [turn(0, 0, [1, 2]), turn(1, 0, [3])]
    experience = filled([trajectory("a", turns, stop=StopReason.MAX_ROUNDS), trajectory("b", turns)], reward_at_end=0.0)
    experience.turns.last_value = torch.tensor([9.0, 0.5, 9.0, 9.0])
    advantages_node(gamma=0.8).run(experience, 0)
    expected = [0.4, 0.4, 0.4, 0.0, 0.0, 0.0]
    assert experience.columns[Column.RETURNS].tolist() == pytest.approx(expected, abs=1e-6)


def test_each_agent_by_itself_bootstraps_from_its_own_last_turn():
    turns = [turn(0, 0, [1]), turn(1, 0, [3])]
    experience = filled([trajectory("a", turns, stop=StopReason.MAX_ROUNDS)], reward_at_end=0.0)
    experience.turns.last_value = torch.tensor([0.5, 0.25])
    advantages_node(gae, adv_estimator="gae").run(experience, 0)
    assert experience.columns[Column.RETURNS].tolist() == pytest.approx([0.5, 0.25])


@pytest.mark.parametrize(("placement", "returns"), [("team", [1.0, 1.0, 1.0]), ("per_agent", [0.0, 0.0, 1.0])])
def test_the_teams_reward_on_an_agents_last_branch_is_that_of_all_and_its_own_one_is_not(placement, returns):
    said = [turn(0, 0, [1], branch=branch) for branch in range(3)]
    said[-1].reward = 1.0
    experience = filled([trajectory("a", said)])
    algorithm = AlgorithmSpec(norm_adv="none", adv_estimator="gae", gamma_agent=0.5)
    fn = node(NodeKind.ADVANTAGES, groups=(0,), algorithm=algorithm)
    StreamAdvantages(fn, gae, {"agent_0": 0}, placement).write(experience)
    assert experience.columns[Column.RETURNS].tolist() == returns


@pytest.mark.parametrize("value", [0.25, None])
def test_an_estimator_of_the_users_gets_all_agents_at_once_and_values_where_a_critic_wrote_them(value):
    experience = filled([trajectory("a", [turn(0, 0, [1, 2]), turn(1, 0, [3])])], value=0.0 if value is None else value)
    if value is None:
        del experience.columns[Column.VALUES]
    calls = []

    def rewards_and_values(rewards_T, values_T, layout, bootstrap_N, links, *, action_level):
        calls.append((values_T.tolist(), layout.agent_group.tolist()))
        return rewards_T, values_T

    fn = advantages_node(rewards_and_values, adv_estimator="mine.py:estimator")
    fn.run(experience, 0)
    assert calls == [([value or 0.0] * 3, [0, 1])]
    assert experience.columns[Column.ADVANTAGES].tolist() == [0.0, 0.0, 1.0]
    assert fn.state_dict()["advantages"] == {}


def test_kl_is_taken_off_the_reward_of_every_token_of_every_agent():
    experience = filled([trajectory("a", [turn(0, 0, [1, 2]), turn(1, 0, [3])])], value=0.0)
    every = torch.arange(2)
    experience.write(Column.OLD_LOGPROBS, every, torch.tensor([-1.0, -1.0, -1.0]))
    experience.write(Column.REF_LOGPROBS, every, torch.tensor([-1.5, -2.0, -4.0]))
    metrics = advantages_node(use_kl_in_reward=True, kl=FixedKL(0.1)).run(experience, 0)
    assert experience.columns[Column.REWARDS].tolist() == pytest.approx([-0.05, -0.1, 0.7])
    assert experience.columns[Column.RETURNS].tolist() == pytest.approx([0.55, 0.6, 0.7])
    assert metrics["kl_in_reward"] == pytest.approx(1.5)


def test_the_adaptive_coefficient_is_part_of_the_nodes_state():
    experience = filled([trajectory("a", [turn(0, 0, [1])])])
    experience.write(Column.OLD_LOGPROBS, torch.arange(1), torch.tensor([-1.0]))
    experience.write(Column.REF_LOGPROBS, torch.arange(1), torch.tensor([-2.0]))
    first = advantages_node(use_kl_in_reward=True, kl=AdaptiveKL(0.1, target=0.01, horizon=10))
    first.run(experience, 0)
    assert first.state_dict()["kl"]["coef"] == pytest.approx(0.1 * (1 + 0.2 * 1 / 10))
    second = advantages_node(use_kl_in_reward=True, kl=AdaptiveKL(0.1, target=0.01, horizon=10))
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()


@pytest.mark.parametrize("mode", ["batch", "agent"])
def test_normalising_is_over_trained_tokens_and_leaves_returns_alone(mode):
    torch.manual_seed(0)
    turns = [turn(agent, 0, range(3)) for agent in range(2)]
    experience = filled([trajectory(str(n), turns) for n in range(4)])
    experience.write(Column.VALUES, torch.arange(8), torch.rand(24))
    advantages_node(norm_adv=mode).run(experience, 0)
    advantages = experience.columns[Column.ADVANTAGES]
    parts = (
        [advantages]
        if mode == "batch"
        else [experience.read(Column.ADVANTAGES, experience.turns_of([g])) for g in (0, 1)]
    )
    for part in parts:
        assert float(part.mean()) == pytest.approx(0, abs=1e-6)
        assert float(part.std()) == pytest.approx(1, abs=1e-5)
    assert torch.allclose(experience.columns[Column.RETURNS], torch.ones(24))


def test_at_action_level_a_long_response_does_not_weigh_more_in_the_moments():
    turns = [turn(0, 0, range(1)), turn(1, 0, range(9))]
    experience = filled([trajectory("a", turns)], value=0.0)
    values = torch.tensor([0.0] + [0.5] * 9)
    experience.write(Column.VALUES, torch.arange(2), values)
    advantages_node(action_level=True, norm_adv="batch").run(experience, 0)
    # actions have A = 1 and 0.5: mean 0.75, sample std 0.3536
    expected = [0.7071] + [-0.7071] * 9
    assert experience.columns[Column.ADVANTAGES].tolist() == pytest.approx(expected, abs=1e-3)
