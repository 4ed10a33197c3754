"""Rewards turn by turn: whether a boxed answer is right, and who gets what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

from dagrl import Task, Trajectory, Turn
from dagrl.rewards import REWARDS
from dagrl.rewards.math import boxed_exact_match

Judge = Literal["exact", "math"]
"""exact compares numbers and texts; math asks math-verify as well whether they are equivalent."""
Rewards = dict[str | tuple[int, int], Any]
"""`score` (what the conversation counts as), further numbers for the metrics, `verdict` (who judged → what it said and
what it should have said), and (agent group, which of its turns) to reward."""


def is_right(text: str, task: Task, judge: Judge) -> bool:
    """Whether the last box of a response holds the task's answer."""
    if judge == "exact":
        return boxed_exact_match(text, task.ground_truth) == 1.0
    return REWARDS["math"](task.data_source, text, task.ground_truth, task.extra_info) == 1.0


def by_turn(trajectory: Trajectory, reward_of: Callable[[Turn], float]) -> Rewards:
    """The reward of every turn, under its agent group and its place among the turns of that."""
    seen: Counter[int] = Counter()
    rewards: Rewards = {}
    for turn in trajectory.turns:
        rewards[turn.agent_group, seen[turn.agent_group]] = reward_of(turn)
        seen[turn.agent_group] += 1
    return rewards


def last_answer(trajectory: Trajectory, *, judge: Judge = "math") -> float:
    """1 if the last turn's answer is right."""
    return float(bool(trajectory.turns) and is_right(trajectory.turns[-1].response_text, trajectory.task, judge))
