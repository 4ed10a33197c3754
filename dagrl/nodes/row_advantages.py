"""Advantages row by row: an agent's part of a trajectory, or one of its turns, has a score; all its tokens share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from dagrl.algorithms import RelativeFunction, RoleBaselines, ScoredRows, numbered, signal, sum_per_turn, token_to_turn
from dagrl.experience import Experience
from dagrl.types import Metrics
from dagrl.workflow.kinds import Column, Node


class RowEstimator(Protocol):
    """Advantage of each row, `[R]` float64, and what to tell of it."""

    def estimate(self, rows: ScoredRows, roles: Sequence[str]) -> tuple[Tensor, Metrics]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class AgainstGroup:
    """A score beside the scores of its group."""

    def __init__(self, function: RelativeFunction) -> None:
        self._function = function

    def estimate(self, rows: ScoredRows, roles: Sequence[str]) -> tuple[Tensor, Metrics]:
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

    def estimate(self, rows: ScoredRows, roles: Sequence[str]) -> tuple[Tensor, Metrics]:
        advantages = self._baselines.advantages(roles, rows.scores)
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
        row_of_turn = self._rows(experience, turns)
        first_turn = _first_of(row_of_turn)
        scores = self._scores(experience, turns, row_of_turn)
        rows = ScoredRows(
            scores=scores,
            groups=numbered(*self._keys(experience, turns[first_turn])),
            lens=torch.zeros(len(scores), dtype=torch.int64).index_add(0, row_of_turn, lens),
        )
        roles = [experience.node_ids[turn] for turn in turns[first_turn].tolist()]
        advantages, metrics = self._estimator.estimate(rows, roles)
        row_of_token = row_of_turn[token_to_turn(lens)]
        experience.write(Column.ADVANTAGES, turns, advantages.float()[row_of_token])
        experience.write(Column.RETURNS, turns, scores.float()[row_of_token])
        return metrics

    def state_dict(self) -> dict[str, Any]:
        return self._estimator.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._estimator.load_state_dict(state)

    def _rows(self, experience: Experience, turns: Tensor) -> Tensor:
        """Row of each of `turns`, `[M]` int64, numbered in the order in which rows begin."""
        if self._node.algorithm.advantage_level == "turn":
            return torch.arange(len(turns))
        table = experience.turns
        return _in_order(numbered(table.trajectory[turns], _node_numbers(experience, turns), table.branch[turns]))

    def _scores(self, experience: Experience, turns: Tensor, row_of_turn: Tensor) -> Tensor:
        """[R] float64: the sum of a row's rewards; of a turn, its own and those of the speaker's later turns."""
        table = experience.turns
        lens = table.response_len[turns]
        own = sum_per_turn(experience.read(Column.REWARDS, turns).double(), lens)
        own = torch.where(lens == 0, table.reward[turns].double(), own)
        if self._node.algorithm.advantage_level == "turn":
            speakers = numbered(table.trajectory[turns], _node_numbers(experience, turns), table.branch[turns])
            return _to_go(own, speakers, self._node.algorithm.gamma)
        return torch.zeros(int(row_of_turn.max()) + 1, dtype=torch.float64).index_add(0, row_of_turn, own)

    def _keys(self, experience: Experience, turns: Tensor) -> list[Tensor]:
        """What rows are compared by, a column for each word of `group_by`; `turns` are the first of each row."""
        table = experience.turns
        columns = {
            "prompt": table.task[turns],
            "agent": table.agent_group[turns],
            "node": _node_numbers(experience, turns),
            "turn": table.round[turns],
        }
        return [columns[word] for word in self._node.algorithm.group_by]


def _is_scored(experience: Experience) -> Tensor:
    """[N] bool: what has no score is nobody's measure."""
    return torch.tensor([one.unscored is None for one in experience.trajectories], dtype=torch.bool)


def _node_numbers(experience: Experience, turns: Tensor) -> Tensor:
    names = sorted(set(experience.node_ids))
    return torch.tensor([names.index(experience.node_ids[turn]) for turn in turns.tolist()], dtype=torch.int64)


def _in_order(labels: Tensor) -> Tensor:
    """`labels` numbered anew by their first appearance."""
    first = _first_of(labels)
    new = torch.empty_like(first)
    new[first.argsort()] = torch.arange(len(first))
    return new[labels]


def _first_of(labels: Tensor) -> Tensor:
    """Where each label 0..R-1 appears first."""
    position = torch.arange(len(labels))
    size = int(labels.max()) + 1
    return torch.full((size,), len(labels)).scatter_reduce(0, labels, position, "amin")


def _to_go(own: Tensor, speakers: Tensor, gamma: float) -> Tensor:
    """Each turn's reward, and those of the same speaker's later turns in the trajectory, discounted turn by turn."""
    later: dict[int, float] = {}
    found = torch.empty_like(own)
    for at in reversed(range(len(own))):
        later[int(speakers[at])] = float(own[at]) + gamma * later.get(int(speakers[at]), 0.0)
        found[at] = later[int(speakers[at])]
    return found
