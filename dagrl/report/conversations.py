"""Conversations read back from the trajectory log: the turns of each trajectory in order. The door to pyarrow here."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from dagrl.data.trajectory_files import read_columns
from dagrl.errors import StorageError

_OF_TRAJECTORY = ("trajectory", "task_id", "sample", "data_source", "ground_truth", "stop_reason", "num_rounds",
                  "trajectory_reward", "trajectory_seconds")  # fmt: skip
_OF_TURN = ("round", "position", "node", "agent_group", "agent", "branch", "prompt", "response", "observation",
            "reward", "reward_parts", "finish_reason", "seconds", "policy_version")  # fmt: skip
TOKEN_COLUMNS = ("response_ids", "rollout_logprobs", "old_logprobs", "ref_logprobs", "values", "rewards",
                 "advantages", "returns")  # fmt: skip
"""Columns with a value per response token; read only where they are asked for."""
_REQUIRED = ("trajectory", "task_id", "round", "agent", "response", "trajectory_reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenTurn:
    """One agent spoke once."""

    round: int
    position: int
    node: str
    agent_group: int
    agent: str
    branch: int
    prompt: str
    """All that the agent read, decoded."""
    response: str
    observation: str | None
    """What the environment then told this agent."""
    reward: float
    reward_parts: dict[str, float]
    finish_reason: str
    seconds: float
    policy_version: int
    tokens: dict[str, list[float] | None] = field(default_factory=dict)
    """Of the token columns asked for: name to a value per response token; None where no node wrote it."""

    def mean(self, column: str) -> float | None:
        """Mean over the response's tokens; None where there is none."""
        values = self.tokens.get(column)
        return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One trajectory."""

    index: int
    """Its number in the file."""
    task_id: str
    sample: int
    data_source: str
    ground_truth: Any
    stop_reason: str | None
    num_rounds: int
    reward: float
    seconds: float
    turns: tuple[SpokenTurn, ...]
    """In time order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """A trajectory without its turns: enough to list and choose."""

    index: int
    task_id: str
    sample: int
    reward: float
    agents: tuple[str, ...]
    """Who spoke, in the order of their first turns."""


def read_headlines(path: Path) -> list[Headline]:
    """All trajectories of a file, in its order; no texts and tokens are read."""
    table = _read(path, ("trajectory", "task_id", "sample", "trajectory_reward", "agent"))
    rows = {name: table.column(name).to_pylist() for name in table.column_names}
    found: dict[int, tuple[int, dict[str, None]]] = {}
    for row, (index, agent) in enumerate(zip(rows["trajectory"], rows["agent"], strict=True)):
        found.setdefault(index, (row, {}))[1][agent] = None
    return [
        Headline(
            index=index,
            task_id=rows["task_id"][row],
            sample=rows["sample"][row],
            reward=rows["trajectory_reward"][row],
            agents=tuple(agents),
        )
        for index, (row, agents) in found.items()
    ]


def read_conversations(
    path: Path, *, only: Collection[int] | None = None, columns: Sequence[str] = ()
) -> list[Conversation]:
    """The conversations with the numbers `only` (all if None), in the file's order, with the token columns `columns`.

    Raises StorageError where the file is not readable or lacks what a conversation is made of.
    """
    assert set(columns) <= set(TOKEN_COLUMNS), f"token columns are {TOKEN_COLUMNS}"
    table = _read(path, (*_OF_TRAJECTORY, *_OF_TURN, *columns))
    return [_conversation(own, columns) for own in _by_trajectory(_rows(table, only))]


def _read(path: Path, wanted: Sequence[str]) -> pa.Table:
    table = read_columns(path, wanted)
    if missing := [name for name in _REQUIRED if name in wanted and name not in table.column_names]:
        raise StorageError(f"has no column '{missing[0]}': not a file of trajectories", where=str(path))
    return table


def _rows(table: pa.Table, only: Collection[int] | None) -> list[dict[str, Any]]:
    """The rows of the trajectories `only`; rows of others are not turned into Python objects."""
    if only is None:
        return list(table.to_pylist())
    rows: list[dict[str, Any]] = []
    start = 0
    for index, run in groupby(table.column("trajectory").to_pylist()):
        length = sum(1 for _ in run)
        if index in only:
            rows += table.slice(start, length).to_pylist()
        start += length
    return rows


def _by_trajectory(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["trajectory"], []).append(row)
    return iter(groups.values())


def _conversation(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> Conversation:
    first = rows[0]
    return Conversation(
        index=first["trajectory"],
        task_id=first["task_id"],
        sample=first.get("sample", 0),
        data_source=first.get("data_source", ""),
        ground_truth=_from_json(first.get("ground_truth")),
        stop_reason=first.get("stop_reason"),
        num_rounds=first.get("num_rounds", 0),
        reward=first["trajectory_reward"],
        seconds=first.get("trajectory_seconds", 0.0),
        turns=tuple(_turn(row, columns) for row in sorted(rows, key=lambda row: row.get("position", 0))),
    )


def _turn(row: dict[str, Any], columns: Sequence[str]) -> SpokenTurn:
    parts = _from_json(row.get("reward_parts"))
    return SpokenTurn(
        round=row["round"],
        position=row.get("position", 0),
        node=row.get("node", ""),
        agent_group=row.get("agent_group", 0),
        agent=row["agent"],
        branch=row.get("branch", 0),
        prompt=row.get("prompt") or "",
        response=row["response"] or "",
        observation=row.get("observation"),
        reward=row.get("reward", 0.0),
        reward_parts=parts if isinstance(parts, dict) else {},
        finish_reason=row.get("finish_reason", ""),
        seconds=row.get("seconds", 0.0),
        policy_version=row.get("policy_version", 0),
        tokens={name: row.get(name) for name in columns},
    )


def _from_json(text: str | None) -> Any:
    """The value; a text that is not JSON as it is."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text
