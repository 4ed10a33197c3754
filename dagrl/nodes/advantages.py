"""ADVANTAGES: rewards and values become advantages and returns; the KL penalty enters the reward here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dagrl.algorithms import (
    AdvantageFunction,
    KLController,
    Links,
    kl_estimate,
    last_token_of_turn,
    normalise_advantages,
    token_to_turn,
)
from dagrl.experience import Experience
from dagrl.nodes.stream import layout_of
from dagrl.types import Metrics
from dagrl.workflow.kinds import Column, Node, is_chained, old_logprobs_column
from dagrl.workflow.sections import ADV_ESTIMATORS


class AdvantagesNode:
    """Runs one estimator: `gae` over each agent by itself, what chains and the user's own over all agents at once."""

    def __init__(self, node: Node, estimator: AdvantageFunction, kl_controller: KLController) -> None:
        self.node = node
        self._estimator = estimator
        self._kl = kl_controller

    def run(self, experience: Experience, step: int) -> Metrics:
        metrics = self._penalise_kl(experience) if self.node.algorithm.use_kl_in_reward else {}
        groups = self.node.groups
        is_joint = self._is_users or is_chained(self.node.algorithm)
        for together in [groups] if is_joint else [(group,) for group in groups]:
            self._estimate(experience, together)
        return metrics | self._normalise(experience)

    def state_dict(self) -> dict[str, Any]:
        return self._kl.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._kl.load_state_dict(state)

    def _penalise_kl(self, experience: Experience) -> Metrics:
        """Takes coef * KL(policy || reference) off the reward of every token."""
        turns = experience.turns_of(self.node.groups)
        if not len(turns):
            return {}
        old = experience.read(old_logprobs_column(self.node.actor), turns)
        kl = kl_estimate(old, experience.read(Column.REF_LOGPROBS, turns), self.node.algorithm.kl_penalty)
        rewards = experience.read(Column.REWARDS, turns) - self._kl.coef * kl
        experience.write(Column.REWARDS, turns, rewards)
        metrics = {"kl_in_reward": float(kl.mean()), "kl_coef": self._kl.coef}
        self._kl.update(metrics["kl_in_reward"], len(experience.trajectories))
        return metrics

    def _estimate(self, experience: Experience, groups: tuple[int, ...]) -> None:
        turns = experience.turns_of(groups)
        if not len(turns):
            return
        layout, _ = layout_of(experience, turns)
        algorithm = self.node.algorithm
        links = Links(
            gamma=algorithm.gamma,
            lam=algorithm.lam,
            gamma_agent=algorithm.gamma_agent,
            lam_agent=algorithm.lam_agent,
            gamma_token=algorithm.gamma_token,
            lam_token=algorithm.lam_token,
        )
        advantages, returns = self._estimator(
            experience.read(Column.REWARDS, turns),
            self._values(experience, turns),
            layout,
            _bootstrap(experience, turns, layout.trajectory),
            links,
            action_level=algorithm.action_level,
        )
        experience.write(Column.ADVANTAGES, turns, advantages)
        experience.write(Column.RETURNS, turns, returns)

    @property
    def _is_users(self) -> bool:
        return self.node.algorithm.adv_estimator not in ADV_ESTIMATORS

    def _values(self, experience: Experience, turns: Tensor) -> Tensor:
        """[M] values; for an estimator of the user's 0 where an agent has no critic."""
        if not self._is_users:
            return experience.read(Column.VALUES, turns)
        tokens = experience.sequences.tokens_of(turns)
        values = experience.columns.get(Column.VALUES)
        return torch.zeros(len(tokens)) if values is None else values[tokens]

    def _normalise(self, experience: Experience) -> Metrics:
        """Normalises over the tokens (or, at action level, the actions) that are trained."""
        turns = experience.turns_of(self.node.groups, only_trained=True)
        if not len(turns):
            return {}
        lens = experience.turns.response_len[turns]
        advantages = experience.read(Column.ADVANTAGES, turns)
        agents = experience.turns.agent_group[turns]
        metrics = {
            "mean": float(advantages.mean()),
            "std": float(advantages.std(correction=0)),
            "returns_mean": float(experience.read(Column.RETURNS, turns).mean()),
        }
        if self.node.algorithm.action_level:
            per_action = advantages[last_token_of_turn(lens)]
            normalised = normalise_advantages(per_action, agents, self.node.algorithm.norm_adv)[token_to_turn(lens)]
        else:
            normalised = normalise_advantages(advantages, agents[token_to_turn(lens)], self.node.algorithm.norm_adv)
        experience.write(Column.ADVANTAGES, turns, normalised)
        return metrics


def _bootstrap(experience: Experience, turns: Tensor, numbers: Tensor) -> Tensor:
    """[N] value after the last of `turns` of each trajectory that was cut off; 0 where it terminated."""
    last_of = turns[torch.bincount(numbers).cumsum(0) - 1]
    table = experience.turns
    return torch.where(table.truncated[last_of], table.last_value[last_of], 0.0)
