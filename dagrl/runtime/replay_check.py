"""What a replayed node gave beside what was logged: byte-identical, within tolerance, or not; and where it is worst."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from dagrl.experience import Experience
from dagrl.runtime.logged_step import LoggedStep
from dagrl.types import Metrics
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import Column, Node, NodeKind, asks_for_play

TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05}
"""Largest |replayed - logged| / (1 + |logged|) by the dtype of the models: another machine, or another number of
threads, adds up in another order."""


class Outcome(StrEnum):
    SAME = "byte-identical"
    CLOSE = "equal within tolerance"
    DIFFERS = "DIFFERS"
    OTHER_WEIGHTS = "not comparable: the weights of the step were not kept"
    CHANGED_LATER = "not comparable: a later node changes it"
    ABSENT = "not logged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One thing that a node gave, beside the log."""

    node_id: str
    what: str
    """A column (`advantages`), `reward`, `metrics`."""
    outcome: Outcome
    count: int
    """Numbers compared."""
    worst: float = 0.0
    """Largest |replayed - logged|."""
    place: str = ""
    """Where that is."""

    @property
    def is_fine(self) -> bool:
        return self.outcome is not Outcome.DIFFERS


@dataclass(frozen=True, slots=True)
class _Pair:
    """The same numbers twice, and how to say where the n-th stands."""

    now: Tensor
    logged: Tensor
    place: Callable[[int], str]


class Checker:
    """Compares with the log of one step."""

    def __init__(
        self, workflow: Workflow, logged: LoggedStep, metrics: Mapping[str, Any], *, has_weights: bool
    ) -> None:
        """`metrics` is the step's row of the log; `has_weights`: the models are those that the step had."""
        self._workflow = workflow
        self._live = workflow.live(logged.step)
        self._rows = logged.rows
        self._metrics = metrics
        self._has_weights = has_weights
        self._tolerance = max(TOLERANCES[group.model.dtype] for group in workflow.groups)

    def compare(
        self, experience: Experience, chosen: Sequence[Node], metrics: Mapping[str, Metrics]
    ) -> tuple[Agreement, ...]:
        """`experience` as the `chosen` nodes left it, `metrics` by node."""
        found: list[Agreement] = []
        strange = self._with_strange_weights(chosen)
        for node in chosen:
            changed = self._changed_later(node, chosen)
            pairs = list(self._numbers(experience, node))
            if metrics[node.node_id]:
                pairs.append(("metrics", self._metric_pair(metrics[node.node_id])))
            for what, pair in pairs:
                excuse = Outcome.CHANGED_LATER if what in changed else None
                excuse = Outcome.OTHER_WEIGHTS if node.node_id in strange else excuse
                found.append(self._judge(node, what, pair, excuse))
        return tuple(found)

    def _judge(self, node: Node, what: str, pair: _Pair, excuse: Outcome | None) -> Agreement:
        """`excuse`: why the two may differ."""
        gaps = (pair.now.double() - pair.logged.double()).abs()
        gaps[~torch.isfinite(gaps)] = math.inf
        same = _bits(pair.now) == _bits(pair.logged)
        gaps[same] = 0.0
        worst = int(gaps.argmax()) if len(gaps) else 0
        if not len(gaps):
            outcome = Outcome.ABSENT
        elif bool(same.all()):
            outcome = Outcome.SAME
        elif excuse is not None:
            outcome = excuse
        else:
            is_close = bool((gaps <= self._tolerance * (1 + pair.logged.double().abs())).all())
            outcome = Outcome.CLOSE if is_close else Outcome.DIFFERS
        return Agreement(
            node_id=node.node_id,
            what=what,
            outcome=outcome,
            count=len(gaps),
            worst=float(gaps[worst]) if len(gaps) else 0.0,
            place=pair.place(worst) if len(gaps) and outcome is not Outcome.SAME else "",
        )

    def _numbers(self, experience: Experience, node: Node) -> Iterator[tuple[str, _Pair]]:
        if node.kind is NodeKind.REWARD:
            now = [turn.reward for trajectory in experience.trajectories for turn in trajectory.turns]
            logged = [row["reward"] for row in self._rows]
            yield "reward", _Pair(torch.tensor(now), torch.tensor(logged), self._place)
        columns: dict[Column, set[int]] = {}
        for column, group in self._workflow.contract(node).writes:
            columns.setdefault(column, set()).add(group)
        if node.kind is NodeKind.COMPUTE:
            columns = {column: set(node.groups) for column in experience.columns}
        for column in sorted(columns):
            yield str(column), self._column_pair(experience, column, columns[column])

    def _column_pair(self, experience: Experience, column: Column, groups: set[int]) -> _Pair:
        """Turns that only one of the two has count as infinitely far apart."""
        turns = [n for n, row in enumerate(self._rows) if row["agent_group"] in groups]
        lens = experience.turns.response_len
        starts = experience.sequences.response_offsets
        now, logged, owners = [torch.zeros(0)], [torch.zeros(0)], []
        for n in turns:
            length, told = int(lens[n]), self._rows[n][column]
            is_written = column in experience.written and bool(experience.written[column][n])
            if not length or (told is None and not is_written):
                continue
            own = experience.columns[column][starts[n] : starts[n] + length] if is_written else None
            now.append(torch.full((length,), math.nan) if own is None else own)
            logged.append(torch.full((length,), math.inf) if told is None else torch.tensor(told))
            owners += [n] * length
        return _Pair(torch.cat(now), torch.cat(logged), lambda at: self._place(owners[at]))

    def _metric_pair(self, metrics: Metrics) -> _Pair:
        names = sorted(name for name in metrics if name in self._metrics)
        now = [metrics[name] for name in names]
        logged = [math.nan if self._metrics[name] is None else float(self._metrics[name]) for name in names]
        finite = [math.nan if not math.isfinite(value) else float(value) for value in now]
        return _Pair(
            torch.tensor(finite, dtype=torch.float64), torch.tensor(logged, dtype=torch.float64), lambda n: names[n]
        )

    def _place(self, turn: int) -> str:
        row = self._rows[turn]
        return f"task {row['task_id']}, sample {row['sample']}, {row['agent']}, round {row['round'] + 1}"

    def _with_strange_weights(self, chosen: Sequence[Node]) -> set[str]:
        """Nodes whose outcome depends on weights, optimizers or controllers that are not those of the step."""
        strange: set[str] = set()
        columns: set[tuple[Column, int]] = set()
        for node in [] if self._has_weights else chosen:
            told = self._workflow.contract(node)
            has_control = node.kind is NodeKind.ADVANTAGES and node.algorithm.kl_ctrl.type == "adaptive"
            has_model = bool(told.reads_model) or told.trains_model is not None
            if has_control or has_model or told.reads & columns or (node.kind is NodeKind.COMPUTE and columns):
                strange.add(node.node_id)
                columns |= told.writes
        return strange

    def _changed_later(self, node: Node, chosen: Sequence[Node]) -> set[str]:
        """What a node that was not replayed changes after `node` has written it."""
        ran = {one.node_id for one in chosen}
        later = [one for one in self._live[self._live.index(node) + 1 :] if one.node_id not in ran]
        if any(one.kind is NodeKind.COMPUTE for one in later):
            return {*map(str, Column), "reward"}
        if any(asks_for_play(one) for one in later):
            return {str(Column.REWARDS), "reward", "metrics"}
        if any(one.kind is NodeKind.ADVANTAGES and one.algorithm.use_kl_in_reward for one in later):
            return {str(Column.REWARDS)}
        return set()


def _bits(values: Tensor) -> Tensor:
    return values.view(torch.int64 if values.dtype is torch.float64 else torch.int32)
