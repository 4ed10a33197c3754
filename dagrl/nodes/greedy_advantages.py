"""Advantages against a greedy rollout of the same prompt (ReMax), which the team plays in the middle of the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dagrl.algorithms import KLController, ScoredRows, remax
from dagrl.experience import Experience
from dagrl.nodes.advantages import AdvantagesNode
from dagrl.nodes.base import ExtraPlay
from dagrl.nodes.reward import lay_rewards
from dagrl.nodes.row_advantages import Owner, RowAdvantages
from dagrl.types import ExtraRollout, Metrics, PromptKey, Trajectory, Variation
from dagrl.workflow.kinds import Node

NO_BASELINE = "no_baseline"
"""Why samples are not trained on whose greedy rollout failed or has no reward."""


class AgainstGreedy:
    """What a rollout node earned in a trajectory, less what it earned in the greedy one of the prompt."""

    def __init__(self) -> None:
        self.greedy: Mapping[PromptKey, Trajectory] = {}
        """Of this step: one for every prompt that rows are from."""

    def estimate(self, rows: ScoredRows, owners: Sequence[Owner]) -> tuple[Tensor, Metrics]:
        baselines = torch.tensor([self._earned(*owner) for owner in owners], dtype=torch.float64)
        return remax(rows.scores, baselines), {"greedy_reward": float(baselines.mean())}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert not state, "nothing is kept from step to step"

    def _earned(self, sample: Trajectory, role: str) -> float:
        """By one branch of the rollout node in the greedy rollout."""
        own = [turn for turn in self.greedy[sample.prompt_key].turns if turn.node_id == role]
        return sum(turn.reward for turn in own) / max(len({turn.branch for turn in own}), 1)


class GreedyAdvantagesNode:
    """Has one greedy rollout of every prompt played, then finds the advantages."""

    def __init__(self, node: Node, kl_controller: KLController) -> None:
        self.node = node
        self._estimator = AgainstGreedy()
        self._inner = AdvantagesNode(node, RowAdvantages(node, self._estimator), kl_controller)

    async def run_playing(self, experience: Experience, step: int, play: ExtraPlay) -> Metrics:
        scored = [one for one in experience.trajectories if one.unscored is None]
        prompts = {one.prompt_key: one.task for one in scored}
        greedy = [
            ExtraRollout(sample=Trajectory(task=task, sample=0, step=step), variation=Variation(is_greedy=True))
            for (step, _), task in prompts.items()
        ]
        played = dict(zip(prompts, await play.again(greedy), strict=True))
        self._estimator.greedy = {prompt: one for prompt, one in played.items() if one is not None}
        without = [one for one in scored if played[one.prompt_key] is None]
        for one in without:
            one.unscored = NO_BASELINE
        if without:
            lost = [number for number, one in enumerate(experience.trajectories) if one.unscored == NO_BASELINE]
            experience.excuse(lost, NO_BASELINE)
            lay_rewards(experience, self.node.groups)
        metrics = self._inner.run(experience, step)
        return metrics | {"extra_rollouts": float(len(greedy)), "without_baseline": float(len(without))}

    def state_dict(self) -> dict[str, Any]:
        return self._inner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._inner.load_state_dict(state)
