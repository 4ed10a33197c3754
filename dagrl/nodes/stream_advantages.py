"""Advantages token by token along the stream: GAE, MARFT's chain through all agents, functions of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dagrl.algorithms import AdvantageFunction, Links, Moments, TurnLayout, last_token_of_turn
from dagrl.experience import Experience
from dagrl.nodes.stream import layout_of
from dagrl.types import Metrics
from dagrl.workflow.algorithm_section import ADV_ESTIMATORS, ESTIMATORS_WITH_CRITIC
from dagrl.workflow.kinds import Column, Node, RewardPlacement, is_chained


class StreamAdvantages:
    """Runs one estimator over each agent by itself; what chains and the user's own over all agents at once."""

    def __init__(
        self,
        node: Node,
        estimator: AdvantageFunction,
        stages: Mapping[str, int] | None = None,
        placement: RewardPlacement = "per_agent",
    ) -> None:
        """`stages`: each rollout node's place in the order of a round; None: one turn after another. `placement`:
        where rewards stand."""
        self._placement = placement
        self._node = node
        self._estimator = estimator
        self._stages = stages

    def write(self, experience: Experience) -> Metrics:
        groups = self._node.groups
        is_joint = self._is_users or is_chained(self._node.algorithm)
        for together in [groups] if is_joint else [(group,) for group in groups]:
            self._estimate(experience, together)
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert not state, "nothing is kept from step to step"

    def _estimate(self, experience: Experience, groups: tuple[int, ...]) -> None:
        turns = experience.turns_of(groups)
        if not len(turns):
            return
        layout, _ = layout_of(experience, turns, self._stages)
        algorithm = self._node.algorithm
        links = Links(
            gamma=algorithm.gamma,
            lam=algorithm.lam,
            gamma_agent=algorithm.gamma_agent,
            lam_agent=algorithm.lam_agent,
            gamma_token=algorithm.gamma_token,
            lam_token=algorithm.lam_token,
        )
        advantages, returns = self._estimator(
            self._rewards(experience, turns, layout),
            self._values(experience, turns),
            layout,
            _bootstrap(experience, turns, layout.trajectory),
            links,
            action_level=algorithm.action_level,
        )
        experience.write(Column.ADVANTAGES, turns, advantages)
        experience.write(Column.RETURNS, turns, returns)

    def _rewards(self, experience: Experience, turns: Tensor, layout: TurnLayout) -> Tensor:
        """`reward_mode: team` puts an agent's reward on one of the turns that it speaks last, at the same time; to an
        estimator that looks at each agent by itself it is the reward of all of them."""
        rewards = experience.read(Column.REWARDS, turns)
        if self._placement != "team" or layout.stage is None or is_chained(self._node.algorithm) or self._is_users:
            return rewards
        moments = Moments.of(layout, layout.stage)
        own = experience.turns.reward[turns].double()[layout.response_lens > 0]
        rewards = rewards.double()
        rewards[last_token_of_turn(layout.response_lens)] += moments.sum(own)[moments.of_turn] - own
        return rewards.float()

    @property
    def _is_users(self) -> bool:
        return self._node.algorithm.adv_estimator not in ADV_ESTIMATORS

    def _values(self, experience: Experience, turns: Tensor) -> Tensor:
        """[M] values; 0 for an estimator without critic, and for one of the user's where an agent has no critic."""
        if self._node.algorithm.adv_estimator in ESTIMATORS_WITH_CRITIC:
            return experience.read(Column.VALUES, turns)
        tokens = experience.sequences.tokens_of(turns)
        values = experience.columns.get(Column.VALUES) if self._is_users else None
        return torch.zeros(len(tokens)) if values is None else values[tokens]


def _bootstrap(experience: Experience, turns: Tensor, numbers: Tensor) -> Tensor:
    """[N] value after the last of `turns` of each trajectory that was cut off; 0 where it terminated."""
    last_of = turns[torch.bincount(numbers).cumsum(0) - 1]
    table = experience.turns
    return torch.where(table.truncated[last_of], table.last_value[last_of], 0.0)
