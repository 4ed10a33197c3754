"""A trajectory as plain values for a checkpoint, and back, equal in everything that is learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from dagrl.types import FinishReason, Observation, Sampled, StopReason, Task, Trajectory, Turn


def trajectory_state(trajectory: Trajectory) -> dict[str, Any]:
    """The task goes by its id."""
    told = asdict(replace(trajectory, task=Task(task_id=trajectory.task.task_id, prompt="")))
    told["task"] = trajectory.task.task_id
    told["stop_reason"] = None if trajectory.stop_reason is None else str(trajectory.stop_reason)
    for turn in told["turns"]:
        turn["finish_reason"] = str(turn["finish_reason"])
    return {name: _plain(value) for name, value in told.items()}


def trajectory_of_state(state: Mapping[str, Any], tasks: Mapping[str, Task]) -> Trajectory:
    """`tasks` by their id are those of the run's data."""
    stop = state["stop_reason"]
    return Trajectory(
        **{
            **state,
            "task": tasks[state["task"]],
            "stop_reason": None if stop is None else StopReason(stop),
            "turns": [_turn(turn) for turn in state["turns"]],
            "observations": [Observation(**told) for told in state["observations"]],
        }
    )


def _turn(state: Mapping[str, Any]) -> Turn:
    sampled = None if state["sampled"] is None else Sampled(**state["sampled"])
    return Turn(**{**state, "finish_reason": FinishReason(state["finish_reason"]), "sampled": sampled})


def _plain(value: Any) -> Any:
    """Numbers of other libraries, which rewards may be, as Python's own."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(part) for part in value)
    return value if value is None or isinstance(value, (bool, int, str)) else float(value)
