"""A step's trajectories read back from the trajectory log, as the learn graph gets them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from dagrl.data.trajectory_files import read_trajectories
from dagrl.errors import StorageError
from dagrl.experience import Experience, collate
from dagrl.images import read_image
from dagrl.types import FinishReason, Image, Observation, StopReason, Task, Trajectory, Turn
from dagrl.workflow.kinds import Column

_NEEDED = ("is_trained", "last_value", "observations", "temperature")
"""Columns that only a replay reads; logs of other tools may lack them."""

Rows = Sequence[Mapping[str, Any]]
"""A row per turn, in the order of the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """What one step of a run left in its trajectory log."""

    step: int
    """From 0; the file is numbered from 1."""
    rows: Rows
    trajectories: tuple[Trajectory, ...]
    """In the order that they were trained in."""
    num_unknown_tasks: int
    """Tasks that the run's data no longer holds; their prompt is empty."""

    def experience(self, *, use_all_traj: bool) -> Experience:
        """The stream before any node has run."""
        return collate(self.trajectories, use_all_traj=use_all_traj)


def read_step(path: Path, step: int, tasks: Iterable[Task]) -> LoggedStep:
    """The step (from 0) that `path` holds; `tasks` are those of the run's data. Raises StorageError."""
    rows = read_trajectories(path)
    missing = [name for name in _NEEDED if rows and name not in rows[0]]
    if missing:
        raise StorageError(f"cannot be replayed: it has no column '{missing[0]}'", where=str(path))
    wanted = {row["task_id"] for row in rows}
    known = {task.task_id: task for task in tasks if task.task_id in wanted}
    images = _images(rows, path)
    trajectories = tuple(
        _trajectory(list(own), step, known, images) for _, own in groupby(rows, key=lambda row: row["trajectory"])
    )
    return LoggedStep(
        step=step, rows=rows, trajectories=trajectories, num_unknown_tasks=len(wanted) - len(known)
    )  # fmt: skip


def preload(experience: Experience, column: Column, groups: Iterable[int], rows: Rows) -> None:
    """Takes what the log holds of `column` for the turns of `groups`."""
    wanted = set(groups)
    told = [n for n, row in enumerate(rows) if row["agent_group"] in wanted and row[column] is not None]
    values = [value for n in told for value in rows[n][column]]
    if told:
        experience.write(column, torch.tensor(told), torch.tensor(values, dtype=torch.float32))


def take_outcome(experience: Experience, rows: Rows) -> None:
    """Takes what the REWARD and VALUES nodes left in the table of turns."""
    experience.turns.is_trained = torch.tensor([row["is_trained"] for row in rows], dtype=torch.bool)
    experience.turns.last_value = torch.tensor([row["last_value"] for row in rows], dtype=torch.float32)


def _images(rows: Rows, path: Path) -> dict[str, Image]:
    """By their hash."""
    told = [one for row in rows for one in row.get("images") or () if one["data"] is not None]
    try:
        found = [read_image(one["data"]) for one in told]
    except ValueError as error:
        raise StorageError(f"holds an image that cannot be read: {error}", where=str(path)) from error
    return {image.digest: image for image in found}


def _trajectory(rows: Rows, step: int, known: Mapping[str, Task], images: Mapping[str, Image]) -> Trajectory:
    first = rows[0]
    stop = first["stop_reason"]
    return Trajectory(
        task=known.get(first["task_id"]) or _task(first),
        sample=first["sample"],
        step=first.get("issued_in", step + 1) - 1,
        turns=[_turn(row, images) for row in rows],
        observations=[_observation(told) for row in rows for told in json.loads(row["observations"] or "[]")],
        stop_reason=None if stop is None else StopReason(stop),
        reward=first["trajectory_reward"],
        unscored="unknown" if math.isnan(first["trajectory_reward"]) else None,
        num_rounds=first["num_rounds"],
    )


def _task(row: Mapping[str, Any]) -> Task:
    return Task(
        task_id=row["task_id"],
        prompt="",
        ground_truth=json.loads(row["ground_truth"]),
        data_source=row["data_source"],
    )


def _turn(row: Mapping[str, Any], images: Mapping[str, Image]) -> Turn:
    return Turn(
        node_id=row["node"],
        agent_group=row["agent_group"],
        round=row["round"],
        branch=row["branch"],
        prompt_ids=tuple(row["prompt_ids"]),
        images=tuple(images[one["sha256"]] for one in row.get("images") or ()),
        response_ids=tuple(row["response_ids"]),
        rollout_logprobs=None if row["rollout_logprobs"] is None else tuple(row["rollout_logprobs"]),
        temperature=row["temperature"],
        finish_reason=FinishReason(row["finish_reason"]),
        policy_version=row["policy_version"],
        response_text=row["response"],
        reward=row["reward"],
        reward_parts=json.loads(row["reward_parts"]),
    )


def _observation(told: Mapping[str, Any]) -> Observation:
    """JSON has no whole numbers as keys."""
    by_group = {name: {int(group): value for group, value in told[name].items()} for name in ("texts", "rewards")}
    return Observation(**{**told, **by_group})
