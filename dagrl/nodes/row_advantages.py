"""Advantages row by row: an agent's part of a trajectory, or one of its turns, has a score; all its tokens share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from dagrl.algorithms import (
    RelativeFunction,
    RoleBaselines,
    ScoredRows,
    numbered,
    sample_weights,
    signal,
    sum_per_turn,
    token_to_turn,
    weighed,
)
from dagrl.experience import Experience
from dagrl.types import Metrics, Trajectory
from dagrl.workflow.kinds import Column, Node

Owner = tuple[Trajectory, str]
"""Where a row is from: its trajectory, and the rollout node that spoke."""


class RowEstimator(Protocol):
    """Advantage of each row, `[R]` float64, and what to tell of it."""

    def estimate(self, rows: ScoredRows, owners: Sequence[Owner]) -> tuple[Tensor, Metrics]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class AgainstGroup:
    """A score beside the scores of its group."""

    def __init__(self, function: RelativeFunction) -> None:
        self._function = function

    def estimate(self, rows: ScoredRows, owners: Sequence[Owner]) -> tuple[Tensor, Metrics]:
        size = torch.bincount(rows.groups)
        has_signal = signal(rows)
        metrics = {
            "groups": float(len(size)),
            "groups_of_one": float((size == 1).sum()),
            "groups_without_signal": float((~has_signal).double().mean()),
        }
        return self._function(rows), metrics

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert not state, "nothing is kept from step to step"


class AgainstRole:
    """A score beside the moving mean of its role's scores (a role is a rollout node)."""

    def __init__(self) -> None:
        self._baselines = RoleBaselines()

    def estimate(self, rows: ScoredRows, owners: Sequence[Owner]) -> tuple[Tensor, Metrics]:
        advantages = self._baselines.advantages([role for _, role in owners], rows.scores)
        return advantages, {f"baseline/{role}": value for role, value in self._baselines.values.items()}

    def state_dict(self) -> dict[str, Any]:
        return self._baselines.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._baselines.load_state_dict(state)


class RowAdvantages:
    """Finds the rows of a batch, their scores and groups, and writes the advantages of their tokens."""

    def __init__(self, node: Node, estimator: RowEstimator) -> None:
        self._node = node
        self._estimator = estimator

    def write(self, experience: Experience) -> Metrics:
        turns = experience.turns_of(self._node.groups)
        for column in (Column.ADVANTAGES, Column.RETURNS):
            nothing = torch.zeros(int(experience.turns.response_len[turns].sum()))
            experience.write(column, turns, nothing)
        turns = turns[_is_scored(experience)[experience.turns.trajectory[turns]]]
        if not len(turns):
            return {}
        lens = experience.turns.response_len[turns]
        nodes = _node_numbers(experience, turns)
        speakers = numbered(experience.turns.trajectory[turns], nodes, experience.turns.branch[turns])
        by_turn = self._node.algorithm.advantage_level == "turn"
        row_of_turn = torch.arange(len(turns)) if by_turn else speakers
        own = sum_per_turn(experience.read(Column.REWARDS, turns).double(), lens)
        first_turn = _first_of(row_of_turn)
        groups = numbered(*(key[first_turn] for key in self._keys(experience, turns, nodes)))
        by_sample = self._node.algorithm.row_weight == "sample"
        rows = ScoredRows(
            scores=_to_go(own, speakers, self._node.algorithm.gamma) if by_turn else _sums(own, row_of_turn),
            groups=groups,
            lens=_sums(lens, row_of_turn),
            weights=sample_weights(groups, experience.turns.trajectory[turns[first_turn]]) if by_sample else None,
        )
        owners = [
            (experience.trajectories[int(experience.turns.trajectory[turn])], experience.node_ids[turn])
            for turn in turns[first_turn].tolist()
        ]
        advantages, metrics = self._estimator.estimate(rows, owners)
        row_of_token = row_of_turn[token_to_turn(lens)]
        experience.write(Column.ADVANTAGES, turns, weighed(advantages, rows).float()[row_of_token])
        experience.write(Column.RETURNS, turns, rows.scores.float()[row_of_token])
        return metrics

    def state_dict(self) -> dict[str, Any]:
        return self._estimator.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._estimator.load_state_dict(state)

    def _keys(self, experience: Experience, turns: Tensor, nodes: Tensor) -> list[Tensor]:
        """What rows are compared by: for each word of `group_by` a number for each turn."""
        table = experience.turns
        columns = {
            "prompt": table.task[turns],
            "agent": table.agent_group[turns],
            "node": nodes,
            "turn": table.round[turns],
        }
        return [columns[word] for word in self._node.algorithm.group_by]


def _is_scored(experience: Experience) -> Tensor:
    """[N] bool: what has no score is nobody's measure."""
    return torch.tensor([one.unscored is None for one in experience.trajectories], dtype=torch.bool)


def _node_numbers(experience: Experience, turns: Tensor) -> Tensor:
    names = sorted(set(experience.node_ids))
    return torch.tensor([names.index(experience.node_ids[turn]) for turn in turns.tolist()], dtype=torch.int64)


def _first_of(labels: Tensor) -> Tensor:
    """Where each label 0..R-1 appears first."""
    position = torch.arange(len(labels))
    size = int(labels.max()) + 1
    return torch.full((size,), len(labels)).scatter_reduce(0, labels, position, "amin")


def _sums(values: Tensor, labels: Tensor) -> Tensor:
    """[R]: the sum of the `values` under each label 0..R-1."""
    return values.new_zeros(int(labels.max()) + 1).index_add(0, labels, values)


def _to_go(own: Tensor, speakers: Tensor, gamma: float) -> Tensor:
    """Each turn's reward, and those of the same speaker's later turns in the trajectory, discounted turn by turn."""
    later: dict[int, float] = {}
    found = torch.empty_like(own)
    for at in reversed(range(len(own))):
        later[int(speakers[at])] = float(own[at]) + gamma * later.get(int(speakers[at]), 0.0)
        found[at] = later[int(speakers[at])]
    return found
