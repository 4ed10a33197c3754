"""REWARD: scores trajectories, shares the score out by `reward_mode`, and lays it on the stream of tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from dagrl.errors import DagrlError, FaultBudgetError, UserCodeError
from dagrl.experience import Experience, cumulative
from dagrl.nodes.base import AnyLearnNode
from dagrl.nodes.usage import Usage
from dagrl.rewards import REWARDS
from dagrl.rewards.runner import RewardResult, call_own_reward, call_reward
from dagrl.types import Metrics, Trajectory, Turn
from dagrl.workflow import plugins
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import Column, Node, RewardPlacement, reward_placement

Judge = Callable[[Trajectory], RewardResult | None]
"""Scores one trajectory; None where the answer could not be judged in time."""


class RewardNode:
    """Scores with `judge`, or leaves the environment's rewards as they are where `judge` is None."""

    def __init__(
        self,
        node: Node,
        judge: Judge | None,
        *,
        reward_mode: RewardPlacement,
        adds: bool,
        max_failed_fraction: float,
        usage: Usage | None = None,
    ) -> None:
        self.node = node
        self._judge = judge
        self._reward_mode = reward_mode
        self._adds = adds
        self._max_failed_fraction = max_failed_fraction
        self._usage = Usage() if usage is None else usage

    @classmethod
    def of(cls, node: Node, workflow: Workflow, usage: Usage | None = None) -> RewardNode:
        """As the workflow says: the node's own function, the default one, or the environment's rewards alone."""
        config = workflow.spec.config
        adds = node.options.combine == "add"
        judge: Judge | None = None
        if adds or not config.rollout.rewards_with_env:
            name = node.executable_ref
            kwargs = node.options.reward_kwargs
            if name is None:
                judge = partial(call_reward, REWARDS["default"], kwargs=kwargs)
            else:
                own = plugins.load(name, workflow.path.parent)
                limit = config.rollout.reward_timeout_s
                judge = partial(call_own_reward, own, kwargs=kwargs, timeout_s=limit)
        return cls(
            node,
            judge,
            reward_mode=reward_placement(workflow.nodes, node.algorithm),
            adds=adds,
            max_failed_fraction=config.rollout.max_failed_fraction,
            usage=usage,
        )

    def run(self, experience: Experience, step: int) -> Metrics:
        self.score(experience.trajectories)
        num_unplaced = lay_rewards(experience, self.node.groups)
        return reward_summary(experience.trajectories) | {"unplaced": float(num_unplaced)}

    def score(self, trajectories: Sequence[Trajectory]) -> None:
        """Fills `turn.reward` and `trajectory.reward`, or `trajectory.unscored` where no reward can be found; what was
        scored before stays.

        Raises FaultBudgetError when the reward function failed on more than the allowed fraction.
        """
        if self._judge is None:
            return
        errors: list[UserCodeError] = []
        new = [trajectory for trajectory in trajectories if not trajectory.is_scored]
        for trajectory in new:
            trajectory.is_scored = True
            self._usage.judge_calls += 1
            try:
                result = self._judge(trajectory)
            except UserCodeError as error:
                errors.append(error)
                _withhold(trajectory, error.kind)
                continue
            if result is None:
                _withhold(trajectory, "undecided")
            else:
                self._give(trajectory, result)
        if len(errors) > self._max_failed_fraction * len(new):
            raise FaultBudgetError(
                f"the reward function failed on {len(errors)} of {len(new)} trajectories",
                where=f"node '{self.node.node_id}'",
                how=f"first failure: {errors[0]}",
            ) from errors[0]

    def _give(self, trajectory: Trajectory, result: RewardResult) -> None:
        trajectory.unscored = None
        if not self._adds:
            trajectory.reward = 0.0
            for turn in trajectory.turns:
                turn.reward = 0.0
        if self._reward_mode == "by_credit":
            self._refuse_own_rewards(result)
        else:
            for turn, reward in _shares(trajectory, result, self._reward_mode):
                turn.reward += reward
        trajectory.reward += result.score
        if trajectory.turns:
            trajectory.turns[-1].reward_parts.update(result.parts)

    def _refuse_own_rewards(self, result: RewardResult) -> None:
        if result.team is None:
            raise DagrlError(
                "the reward function rewards agents by themselves, and the CREDIT node would share their mean out "
                "again: it would be counted twice",
                where=f"node '{self.node.node_id}'",
                how="let it give one number, or take the CREDIT node away",
            )


def scorer_of(nodes: Mapping[str, AnyLearnNode]) -> RewardNode | None:
    """The REWARD node among the learn nodes of a workflow; None where it has none."""
    return next((node for node in nodes.values() if isinstance(node, RewardNode)), None)


def _withhold(trajectory: Trajectory, kind: str) -> None:
    """No reward is not a reward of 0: nothing is learnt from it, and its number says that there is none."""
    trajectory.unscored = kind
    trajectory.reward = math.nan
    for turn in trajectory.turns:
        turn.reward = 0.0


def _shares(trajectory: Trajectory, result: RewardResult, reward_mode: RewardPlacement) -> list[tuple[Turn, float]]:
    """Which turn gets how much; an agent that did not speak gets nothing."""
    last_of_group = {turn.agent_group: turn for turn in trajectory.turns}
    shares = [(last_of_group[group], reward) for group, reward in result.by_group.items() if group in last_of_group]
    for (group, place), reward in result.by_turn.items():
        own = trajectory.of_group(group)
        shares += [(own[place], reward)] if -len(own) <= place < len(own) else []
    if result.team is None or not trajectory.turns:
        return shares
    if reward_mode in ("team", "per_agent"):
        return shares + [(turn, result.team) for turn in last_of_group.values()]
    return [*shares, (trajectory.turns[-1], result.team)]


def lay_rewards(experience: Experience, groups: Sequence[int]) -> int:
    """Brings the rewards that stand in the turns into the table and onto the stream; what has none goes untrained.
    Gives the number of rewards that found no place."""
    played = enumerate(experience.trajectories)
    unscored = {index: one.unscored for index, one in played if one.unscored is not None}
    for index, reason in unscored.items():
        experience.excuse([index], f"reward_{reason}")
    table = experience.turns
    table.reward = torch.tensor(
        [turn.reward for trajectory in experience.trajectories for turn in trajectory.turns], dtype=torch.float32
    )
    table.is_trained &= ~torch.isin(table.trajectory, torch.tensor(sorted(unscored), dtype=torch.int64))
    return place(experience, groups)


def place(experience: Experience, groups: Sequence[int]) -> int:
    """Writes each turn's reward at its last token; that of an empty turn goes to the nearest earlier turn with a
    response, of any agent of `groups`. Gives the number of rewards that found no place."""
    table = experience.turns
    rewards = torch.zeros(experience.num_tokens)
    ends = cumulative(table.response_len)[1:] - 1
    spoken = experience.turns_of(groups)
    rewards[ends[spoken]] = table.reward[spoken]
    is_own = torch.isin(table.agent_group, torch.tensor(list(groups), dtype=torch.int64))
    num_unplaced = 0
    for index in (is_own & (table.response_len == 0) & (table.reward != 0)).nonzero().flatten().tolist():
        earlier = spoken[(spoken < index) & (table.trajectory[spoken] == table.trajectory[index])]
        if len(earlier):
            rewards[ends[earlier[-1]]] += table.reward[index]
        else:
            num_unplaced += 1
    experience.write(Column.REWARDS, spoken, rewards[experience.sequences.tokens_of(spoken)])
    return num_unplaced


def reward_summary(trajectories: Sequence[Trajectory]) -> Metrics:
    """Of the rewards of a step; trajectories without one are counted."""
    scored = [trajectory for trajectory in trajectories if trajectory.unscored is None]
    metrics = {"unknown": float(len(trajectories) - len(scored))}
    if scored:
        rewards = torch.tensor([trajectory.reward for trajectory in scored], dtype=torch.float64)
        metrics |= {"mean": float(rewards.mean()), "std": float(rewards.std(correction=0))}
        metrics |= {"min": float(rewards.min()), "max": float(rewards.max())}
    parts: dict[str, list[float]] = {}
    for trajectory in scored:
        for turn in trajectory.turns:
            for name, value in turn.reward_parts.items():
                parts.setdefault(name, []).append(value)
    return metrics | {f"parts/{name}": sum(values) / len(values) for name, values in sorted(parts.items())}
