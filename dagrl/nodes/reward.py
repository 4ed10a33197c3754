"""REWARD: scores trajectories, shares the score out by `reward_mode`, and lays it on the stream of tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from dagrl.backends.base import Chats
from dagrl.errors import DagrlError, FaultBudgetError, UserCodeError
from dagrl.experience import Experience, cumulative
from dagrl.nodes.base import AnyLearnNode
from dagrl.nodes.model_judge import ModelJudge, server_of
from dagrl.nodes.reward_parts import BatchJudge, OneByOne, RewardPart, Withheld
from dagrl.nodes.usage import Usage
from dagrl.rewards import REWARDS
from dagrl.rewards.judge import Rubric
from dagrl.rewards.runner import RewardResult, call_own_reward, call_reward
from dagrl.rewards.verdicts import confusion, is_verdict
from dagrl.types import SOLVED, Metrics, Trajectory, Turn
from dagrl.workflow import plugins
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import Column, Node, RewardPlacement, reward_placement
from dagrl.workflow.reward_options import JUDGE, OutcomeWeights, RewardPartSpec


class RewardNode:
    """Sums up its parts, or leaves the environment's rewards as they are where it has none."""

    def __init__(
        self,
        node: Node,
        parts: Sequence[RewardPart],
        *,
        reward_mode: RewardPlacement,
        adds: bool,
        max_failed_fraction: float,
        usage: Usage | None = None,
    ) -> None:
        self.node = node
        self._parts = tuple(parts)
        self._reward_mode = reward_mode
        self._adds = adds
        self._max_failed_fraction = max_failed_fraction
        self._usage = Usage() if usage is None else usage

    @classmethod
    def of(cls, node: Node, workflow: Workflow, servers: Chats, usage: Usage | None = None) -> RewardNode:
        """As the workflow says: the node's own function or list, the default one, or the environment's rewards."""
        config = workflow.spec.config
        adds = node.options.combine == "add"
        scores = adds or not config.rollout.rewards_with_env
        return cls(
            node,
            _parts(node, partial(_judge, workflow, servers)) if scores else (),
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

        `correct_reward_weight` and `incorrect_reward_weight` change what turns get, not the trajectory's number. Raises
        FaultBudgetError when a reward function failed on more than the allowed fraction.
        """
        num_new = sum(not trajectory.is_scored for trajectory in trajectories)
        self.check_failures(self.score_some(trajectories), num_new)

    def score_some(self, trajectories: Sequence[Trajectory]) -> list[UserCodeError]:
        """As `score`, for a part of what is to be scored: gives the failures, for `check_failures` of the whole."""
        return self._score(trajectories, self._parts, self.node.options.outcome_weights)

    def check_failures(self, errors: Sequence[UserCodeError], num_scored: int) -> None:
        """Raises FaultBudgetError when the function failed on more than the allowed fraction."""
        if len(errors) > self._max_failed_fraction * num_scored:
            raise FaultBudgetError(
                f"the reward function failed on {len(errors)} of {num_scored} trajectories",
                where=f"node '{self.node.node_id}'",
                how=f"first failure: {errors[0]}",
            ) from errors[0]

    def score_outcome(self, trajectories: Sequence[Trajectory]) -> None:
        """The same by the first part alone and unweighed: what was right, as held-out problems are counted."""
        outcome = [RewardPart(judge=part.judge) for part in self._parts[:1]]
        num_new = sum(not trajectory.is_scored for trajectory in trajectories)
        self.check_failures(self._score(trajectories, outcome, OutcomeWeights()), num_new)

    def _score(
        self, trajectories: Sequence[Trajectory], parts: Sequence[RewardPart], weights: OutcomeWeights
    ) -> list[UserCodeError]:
        if not parts:
            return []
        pending = [trajectory for trajectory in trajectories if not trajectory.is_scored]
        errors: list[UserCodeError] = []
        outcomes: dict[int, bool] = {}
        for part in parts:
            judged = list(zip(pending, part.judge.judge_all(pending, self._usage), strict=True))
            pending = []
            for trajectory, verdict in judged:
                trajectory.is_scored = True
                if isinstance(verdict, Withheld):
                    errors += [] if verdict.error is None else [verdict.error]
                    _withhold(trajectory, verdict.kind)
                    continue
                if part is parts[0]:
                    self._begin(trajectory)
                    outcomes[id(trajectory)] = self._is_right(trajectory, verdict, weights.outcome_node)
                self._give(trajectory, verdict, part)
                pending.append(trajectory)
        for trajectory in pending:
            _weigh(trajectory, weights, is_right=outcomes[id(trajectory)])
        return errors

    def _begin(self, trajectory: Trajectory) -> None:
        trajectory.unscored = None
        if not self._adds:
            trajectory.reward = 0.0
            for turn in trajectory.turns:
                turn.reward = 0.0

    def _give(self, trajectory: Trajectory, result: RewardResult, part: RewardPart) -> None:
        if self._reward_mode == "by_credit":
            self._refuse_own_rewards(result)
        else:
            for turn, reward in _shares(trajectory, result, self._reward_mode):
                turn.reward += part.weight * reward
        trajectory.reward += part.weight * result.score
        if trajectory.turns:
            trajectory.turns[-1].reward_parts.update(part.told(result))

    def _refuse_own_rewards(self, result: RewardResult) -> None:
        if result.team is None:
            raise DagrlError(
                "the reward function rewards agents by themselves, and the CREDIT node would share their mean out "
                "again: it would be counted twice",
                where=f"node '{self.node.node_id}'",
                how="let it give one number, or take the CREDIT node away",
            )

    def _is_right(self, trajectory: Trajectory, result: RewardResult, outcome_node: str | None) -> bool:
        """Whether the team, or the last turn of the node that decides, earned a full reward; not if it never spoke."""
        turns = [turn for turn in trajectory.turns if outcome_node in (None, turn.node_id)]
        if not turns:
            return False
        if result.team is not None or (outcome_node is None and result.outcome is not None):
            return result.score >= SOLVED
        earned = [reward for turn, reward in _shares(trajectory, result, self._reward_mode) if turn is turns[-1]]
        return sum(earned) >= SOLVED


def _parts(node: Node, judge: Callable[[RewardPartSpec], BatchJudge]) -> tuple[RewardPart, ...]:
    if not node.options.rewards:
        only = RewardPartSpec(fn=node.executable_ref or "default", kwargs=node.options.reward_kwargs)
        return (RewardPart(judge=judge(only)),)
    return tuple(RewardPart(judge=judge(part), weight=part.weight, name=part.shown) for part in node.options.rewards)


def _judge(workflow: Workflow, servers: Chats, part: RewardPartSpec) -> BatchJudge:
    if part.fn == JUDGE:
        rubric = Rubric(**part.kwargs)
        return ModelJudge(rubric, servers.chat(server_of(rubric)))
    if part.fn in REWARDS:
        return OneByOne(partial(call_reward, REWARDS[part.fn], kwargs=part.kwargs))
    own = plugins.load(part.fn, workflow.path.parent)
    timeout_s = workflow.spec.config.rollout.reward_timeout_s
    return OneByOne(partial(call_own_reward, own, kwargs=part.kwargs, timeout_s=timeout_s))


def _weigh(trajectory: Trajectory, weights: OutcomeWeights, *, is_right: bool) -> None:
    for turn in trajectory.turns:
        turn.reward *= weights.of(turn.node_id, is_right=is_right)


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
    if reward_mode == "team_by_speaker":
        last_of_speaker = {(turn.node_id, turn.branch): turn for turn in trajectory.turns}
        return shares + [(turn, result.team) for turn in last_of_speaker.values()]
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
                if not is_verdict(name):
                    parts.setdefault(name, []).append(value)
    metrics |= {f"parts/{name}": sum(values) / len(values) for name, values in sorted(parts.items())}
    return metrics | confusion(scored)
