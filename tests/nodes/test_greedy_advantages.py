"""ReMax on a real stream: each agent beside itself in the greedy rollout of the prompt."""

import asyncio

import pytest
import torch

from dagrl.algorithms import FixedKL, remax
from dagrl.experience import collate
from dagrl.nodes.greedy_advantages import NO_BASELINE, GreedyAdvantagesNode
from dagrl.nodes.reward import lay_rewards
from dagrl.workflow.algorithm_section import AlgorithmSpec
from dagrl.workflow.kinds import Column, NodeKind
from tests.node_builders import node
from tests.stream_builders import trajectory, turn


class Greedy:
    """Plays by heart: the rewards of the two agents in each prompt's greedy rollout; None fails."""

    def __init__(self, **rewards):
        self.rewards = rewards
        self.asked = []

    async def again(self, wanted):
        self.asked += wanted
        return [self._played(self.rewards[one.sample.task.task_id]) for one in wanted]

    def _played(self, rewards):
        if rewards is None:
            return None
        return trajectory("any", [turn(agent, 0, [5], reward=reward) for agent, reward in enumerate(rewards)])


def sampled(**prompts):
    """Two agents, the first of two tokens and the second of three; their rewards by prompt and sample."""
    samples = [
        trajectory(name, [turn(agent, 0, range(2 + agent), reward=reward) for agent, reward in enumerate(pair)])
        for name, pairs in prompts.items()
        for pair in pairs
    ]
    experience = collate(samples)
    lay_rewards(experience, (0, 1))
    return experience


def advantages(experience, play):
    algorithm = AlgorithmSpec(adv_estimator="remax")
    own = GreedyAdvantagesNode(node(NodeKind.ADVANTAGES, groups=(0, 1), algorithm=algorithm), FixedKL(0.0))
    metrics = asyncio.run(own.run_playing(experience, 0, play))
    parts = experience.columns[Column.ADVANTAGES].split(experience.turns.response_len.tolist())
    return [part.tolist() for part in parts], metrics


def test_remax_is_the_reward_less_that_of_the_greedy_answer():
    found = remax(torch.tensor([1.0, 0.0, 0.3]), torch.tensor([0.3, 0.3, 0.3]))
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx([0.7, -0.3, 0.0])


def test_each_agent_is_compared_with_itself_and_all_its_tokens_share_the_advantage():
    play = Greedy(a=[1.0, 0.25], b=[0.0, 0.0])
    found, metrics = advantages(sampled(a=[(1.0, 1.0), (0.0, 0.5)], b=[(0.5, 2.0)]), play)
    assert found == [[0.0] * 2, [0.75] * 3, [-1.0] * 2, [0.25] * 3, [0.5] * 2, [2.0] * 3]
    assert [one.variation.is_greedy for one in play.asked] == [True, True]
    assert metrics["extra_rollouts"] == 2 and metrics["without_baseline"] == 0


def test_samples_whose_greedy_rollout_failed_are_not_trained_and_say_why():
    experience = sampled(a=[(1.0, 1.0)], b=[(0.5, 2.0)])
    found, metrics = advantages(experience, Greedy(a=None, b=[0.5, 1.0]))
    assert found == [[0.0] * 2, [0.0] * 3, [0.0] * 2, [1.0] * 3]
    assert metrics["without_baseline"] == 1
    assert experience.excuses == {0: NO_BASELINE}
    assert experience.trajectories[0].unscored == NO_BASELINE
    assert experience.turns.is_trained.tolist() == [False, False, True, True]
