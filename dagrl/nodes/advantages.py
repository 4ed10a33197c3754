"""ADVANTAGES: rewards and values become advantages and returns; the KL penalty enters the reward here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from dagrl.algorithms import KLController, kl_estimate, last_token_of_turn, normalise_advantages, token_to_turn
from dagrl.experience import Experience
from dagrl.types import Metrics
from dagrl.workflow.kinds import Column, Node, norm_adv_of, old_logprobs_column


class Advantages(Protocol):
    """Writes the columns `advantages` and `returns` of a node's agents; may keep a state from step to step."""

    def write(self, experience: Experience) -> Metrics: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class AdvantagesNode:
    """Takes the KL off the rewards, has the advantages written, and normalises them."""

    def __init__(self, node: Node, advantages: Advantages, kl_controller: KLController) -> None:
        self.node = node
        self._advantages = advantages
        self._kl = kl_controller

    def run(self, experience: Experience, step: int) -> Metrics:
        metrics = self._penalise_kl(experience) if self.node.algorithm.use_kl_in_reward else {}
        metrics |= self._advantages.write(experience)
        return metrics | self._normalise(experience)

    def state_dict(self) -> dict[str, Any]:
        return {"kl": self._kl.state_dict(), "advantages": self._advantages.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._kl.load_state_dict(state["kl"])
        self._advantages.load_state_dict(state["advantages"])

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
        if math.isfinite(metrics["kl_in_reward"]):
            self._kl.update(metrics["kl_in_reward"], len(experience.trajectories))
        return metrics

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
            normalised = normalise_advantages(per_action, agents, norm_adv_of(self.node.algorithm))[token_to_turn(lens)]
        else:
            normalised = normalise_advantages(advantages, agents[token_to_turn(lens)], norm_adv_of(self.node.algorithm))
        experience.write(Column.ADVANTAGES, turns, normalised)
        return metrics
