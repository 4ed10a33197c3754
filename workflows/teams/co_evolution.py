"""Patient and doctor: the doctor never sees the problem; each is paid by a rule of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import quoting
from quoting import post_process
from scoring import Judge, Rewards, by_turn, is_right

from dagrl import Task, Trajectory

__all__ = ["post_process", "pre_process", "score"]

_TERM = re.compile(r"[+-]?\d+")


def pre_process(
    tokenizer: Any,
    prompt_id: list[int],
    obs: list[int] | None = None,
    *,
    inputs: Mapping[str, Sequence[str]],
    knows_problem: bool = True,
    **layout: Any,
) -> list[int]:
    """As `quoting.pre_process`, without the problem for an agent who does not know it."""
    return quoting.pre_process(tokenizer, prompt_id if knows_problem else [], obs, inputs=inputs, **layout)


def terms(text: str) -> list[str]:
    """The signed numbers of a sum in their order: `7 + 5 - 8` has 7, +5 and -8."""
    return _TERM.findall(text.replace(" ", ""))


def faithfulness(report: str, task: Task) -> float:
    """The share of the problem's terms that a report names, up to its first mistake; 0 if it names one too many."""
    question = task.prompt if isinstance(task.prompt, str) else str(task.prompt[-1]["content"])
    truth, told = terms(question), terms(report)
    if len(told) > len(truth):
        return 0.0
    same = [one == other for one, other in zip(truth, told)]
    return (same.index(False) if False in same else len(same)) / len(truth)


def score(trajectory: Trajectory, *, judge: Judge = "math") -> Rewards:
    """The patient by how much of its problem it tells, the doctor 1 if its answer is right; that is the score."""
    by_node = {turn.node_id: turn.response_text for turn in trajectory.turns}
    told = faithfulness(by_node["patient"], trajectory.task) if "patient" in by_node else 0.0
    is_solved = "doctor" in by_node and is_right(by_node["doctor"], trajectory.task, judge)
    rewards = by_turn(trajectory, lambda turn: told if turn.node_id == "patient" else float(is_solved))
    return rewards | {"score": float(is_solved), "told": told}
