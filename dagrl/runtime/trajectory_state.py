"""A trajectory as plain values for a checkpoint, and back, equal in everything that is learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from dagrl.images import of_text, to_text
from dagrl.types import FinishReason, Image, Observation, Sampled, StopReason, Task, Trajectory, Turn, handle_of


def trajectory_state(trajectory: Trajectory) -> dict[str, Any]:
    """The task goes by its id, and an image of a turn by its handle."""
    told = asdict(replace(trajectory, task=Task(task_id=trajectory.task.task_id, prompt=""), images={}))
    told["images"] = [to_text(image) for image in trajectory.images.values()]
    told["task"] = trajectory.task.task_id
    told["stop_reason"] = None if trajectory.stop_reason is None else str(trajectory.stop_reason)
    for turn in told["turns"]:
        turn["finish_reason"] = str(turn["finish_reason"])
        for part in (turn, turn["sampled"]):
            if part is not None:
                part["images"] = [handle_of(image["digest"]) for image in part["images"]]
    return {name: _plain(value) for name, value in told.items()}


def trajectory_of_state(state: Mapping[str, Any], tasks: Mapping[str, Task]) -> Trajectory:
    """`tasks` by their id are those of the run's data."""
    stop = state["stop_reason"]
    images = {image.handle: image for image in map(of_text, state["images"])}
    return Trajectory(
        **{
            **state,
            "task": tasks[state["task"]],
            "stop_reason": None if stop is None else StopReason(stop),
            "turns": [_turn(turn, images) for turn in state["turns"]],
            "observations": [Observation(**told) for told in state["observations"]],
            "images": images,
        }
    )


def _turn(state: Mapping[str, Any], images: Mapping[int, Image]) -> Turn:
    sampled = None if state["sampled"] is None else Sampled(**_with_images(state["sampled"], images))
    finish = FinishReason(state["finish_reason"])
    return Turn(**{**_with_images(state, images), "finish_reason": finish, "sampled": sampled})


def _with_images(state: Mapping[str, Any], images: Mapping[int, Image]) -> dict[str, Any]:
    return {**state, "images": tuple(images[handle] for handle in state["images"])}


def _plain(value: Any) -> Any:
    """Numbers of other libraries, which rewards may be, as Python's own."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(part) for part in value)
    return value if value is None or isinstance(value, (bool, int, str)) else float(value)
