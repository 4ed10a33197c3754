"""CREDIT: shares the team's reward out among the agents, with extra rollouts where its rule needs them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from dagrl.errors import DagrlError, FaultBudgetError
from dagrl.experience import Experience
from dagrl.nodes.base import ExtraPlay, by_prompt
from dagrl.nodes.credit_rules import Credits, Known, Missing, Rule
from dagrl.nodes.reward import lay_rewards
from dagrl.types import ExtraRollout, Metrics, Trajectory
from dagrl.workflow.kinds import Node

UNCREDITED = "no_credit"
"""Why a sample is not trained on whose credits could not be found."""


class CreditNode:
    """Replaces the team's reward, which the REWARD node left to it, by what each player brought."""

    def __init__(
        self,
        node: Node,
        rule: Rule,
        *,
        players: Sequence[str],
        is_mute: Callable[[ExtraRollout], bool],
        max_failed_fraction: float,
    ) -> None:
        """`players`: rollout nodes. `is_mute`: whether nobody at all would speak; such a rollout is worth 0."""
        self.node = node
        self._rule = rule
        self._players = tuple(players)
        self._is_mute = is_mute
        self._max_failed_fraction = max_failed_fraction

    async def run_playing(self, experience: Experience, step: int, play: ExtraPlay) -> Metrics:
        scored = [one for one in experience.trajectories if one.unscored is None and one.turns]
        self._refuse_own_rewards(scored)
        prompts = by_prompt(scored)
        plans = [self._rule.wanted(samples) for samples in prompts]
        wanted = [one for plan in plans for one in plan]
        rewards = iter(await self._rewards(wanted, play))
        found: list[tuple[Trajectory, Credits]] = []
        missing: list[Missing] = []
        for samples, plan in zip(prompts, plans):
            credits = self._rule.credits(samples, [next(rewards) for _ in plan])
            for sample, own in zip(samples, credits, strict=True):
                if isinstance(own, Missing):
                    sample.unscored = UNCREDITED
                    missing.append(own)
                else:
                    found.append((sample, own))
                    self._give(sample, own)
        self._check_budget(missing, len(scored))
        experience.excuse(
            [n for n, one in enumerate(experience.trajectories) if one.unscored == UNCREDITED], UNCREDITED
        )
        lay_rewards(experience, self.node.groups)
        return self._metrics(found, num_wanted=len(wanted), num_lost=len(missing))

    async def _rewards(self, wanted: Sequence[ExtraRollout], play: ExtraPlay) -> list[Known]:
        """The team's reward of each."""
        spoken = [one for one in wanted if not self._is_mute(one)]
        played = iter(await play.again(spoken))
        rewards: list[Known] = []
        for one in wanted:
            if self._is_mute(one):
                rewards.append(0.0)
            else:
                trajectory = next(played)
                rewards.append(None if trajectory is None else trajectory.reward)
        return rewards

    def _give(self, sample: Trajectory, credits: Credits) -> None:
        share = self.node.options.credit.team_share * sample.reward
        for turn, credit in credits:
            turn.reward += credit
        if share:
            last = {(turn.node_id, turn.branch): turn for turn in sample.turns if turn.node_id in self._players}
            for turn in last.values():
                turn.reward += share

    def _refuse_own_rewards(self, scored: Sequence[Trajectory]) -> None:
        for sample in scored:
            if any(not one.is_team_reward and any(one.rewards.values()) for one in sample.observations):
                raise DagrlError(
                    "the environment rewards agents by themselves, and this node would share the team's mean of that "
                    "out among them again: it would be counted twice",
                    how="let the environment's step give one number, or take the CREDIT node away",
                )

    def _check_budget(self, missing: Sequence[Missing], num_scored: int) -> None:
        if len(missing) > self._max_failed_fraction * num_scored:
            raise FaultBudgetError(
                f"the credits of {len(missing)} of {num_scored} trajectories could not be found",
                how=f"the first: {missing[0]}",
            )

    def _metrics(self, found: Sequence[tuple[Trajectory, Credits]], *, num_wanted: int, num_lost: int) -> Metrics:
        by_player: dict[str, list[float]] = defaultdict(list)
        for _, credits in found:
            for turn, credit in credits:
                by_player[turn.node_id].append(credit)
        metrics = {"extra_rollouts": float(num_wanted), "unknown": float(num_lost)}
        for player in self._players:
            if own := by_player[player]:
                metrics[f"mean/{player}"] = sum(own) / len(own)
                metrics[f"size/{player}"] = sum(map(abs, own)) / len(own)
        return metrics
