"""Advantages against a greedy rollout of the same prompt (ReMax), which the team plays in the middle of the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dagrl.algorithms import KLController, remax, sum_per_turn, token_to_turn
from dagrl.experience import Experience
from dagrl.nodes.advantages import AdvantagesNode
from dagrl.nodes.base import ExtraPlay
from dagrl.nodes.reward import lay_rewards
from dagrl.types import ExtraRollout, Metrics, Trajectory, Variation
from dagrl.workflow.kinds import Column, Node

NO_BASELINE = "no_baseline"
"""Why samples are not trained on whose greedy rollout failed or has no reward."""

Prompt = tuple[int, str]
"""(step that asked for it, task id)."""


class GreedyAdvantages:
    """What a rollout node earned in a trajectory, less what it earned in the greedy one of the prompt."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.greedy: Mapping[Prompt, Trajectory] = {}
        """Of this step."""

    def write(self, experience: Experience) -> Metrics:
        turns = experience.turns_of(self._node.groups)
        lens = experience.turns.response_len[turns]
        rewards = sum_per_turn(experience.read(Column.REWARDS, turns).double(), lens)
        rows: dict[tuple[int, str, int], int] = {}
        row_of_turn, greedy = [], []
        for turn in turns.tolist():
            owner = int(experience.turns.trajectory[turn])
            row = (owner, experience.node_ids[turn], int(experience.turns.branch[turn]))
            if row not in rows:
                rows[row] = len(rows)
                greedy.append(self._earned(experience.trajectories[owner], row[1]))
            row_of_turn.append(rows[row])
        places = torch.tensor(row_of_turn, dtype=torch.int64)
        scores = torch.zeros(len(rows), dtype=torch.float64).index_add(0, places, rewards)
        known = torch.tensor([score is not None for score in greedy], dtype=torch.bool)
        baselines = torch.tensor([0.0 if score is None else score for score in greedy], dtype=torch.float64)
        advantages = torch.where(known, remax(scores, baselines), 0.0)
        row_of_token = places[token_to_turn(lens)]
        experience.write(Column.ADVANTAGES, turns, advantages.float()[row_of_token])
        experience.write(Column.RETURNS, turns, scores.float()[row_of_token])
        return {"greedy_reward": float(baselines[known].mean())} if bool(known.any()) else {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert not state, "nothing is kept from step to step"

    def _earned(self, sample: Trajectory, node_id: str) -> float | None:
        """By one branch of a rollout node in the greedy rollout; None where there is nothing to compare."""
        greedy = self.greedy.get(prompt_of(sample))
        if greedy is None or sample.unscored is not None:
            return None
        own = [turn for turn in greedy.turns if turn.node_id == node_id]
        return sum(turn.reward for turn in own) / max(len({turn.branch for turn in own}), 1)


class GreedyAdvantagesNode:
    """Has one greedy rollout of every prompt played, then finds the advantages."""

    def __init__(self, node: Node, kl_controller: KLController) -> None:
        self.node = node
        self._advantages = GreedyAdvantages(node)
        self._inner = AdvantagesNode(node, self._advantages, kl_controller)

    async def run_playing(self, experience: Experience, step: int, play: ExtraPlay) -> Metrics:
        scored = [one for one in experience.trajectories if one.unscored is None]
        prompts = {prompt_of(one): one.task for one in scored}
        greedy = [
            ExtraRollout(sample=Trajectory(task=task, sample=0, step=step), variation=Variation(is_greedy=True))
            for (step, _), task in prompts.items()
        ]
        played = dict(zip(prompts, await play.again(greedy), strict=True))
        self._advantages.greedy = {prompt: one for prompt, one in played.items() if one is not None}
        without = [one for one in scored if played[prompt_of(one)] is None]
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


def prompt_of(sample: Trajectory) -> Prompt:
    return sample.step, sample.task.task_id
