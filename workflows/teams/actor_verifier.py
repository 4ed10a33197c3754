"""Solver and verifier: hooks, when the solver speaks again, and who gets what."""

from __future__ import annotations

import re

from quoting import post_process, pre_process
from scoring import Judge, Rewards, by_turn, is_right

from dagrl import Trajectory

__all__ = ["is_rejected", "post_process", "pre_process", "score"]

_VERDICT = re.compile(r"<verify>\s*(approve|reject)\s*</verify>", re.IGNORECASE)


def verdict_of(review: str) -> str | None:
    """`approve` or `reject`: the last verdict of a review; None where it gave none in the form asked for."""
    found = _VERDICT.findall(review)
    return found[-1].lower() if found else None


def is_rejected(trajectory: Trajectory) -> bool:
    """Whether the solver has to speak again; a review without a verdict lets the answer stand."""
    return _verdict(trajectory) == "reject"


def score(trajectory: Trajectory, *, judge: Judge = "math") -> Rewards:
    """Each solver's turn 1 if its answer is right; the verifier 1 if its verdict agrees with the truth, 0 without one.

    The conversation counts as its last answer.
    """
    solved = {turn.node_id: is_right(turn.response_text, trajectory.task, judge) for turn in trajectory.turns}
    first = solved.get("solver", False)
    verdict = _verdict(trajectory)
    should = "approve" if first else "reject"
    is_fair = verdict == should
    rewards = by_turn(trajectory, lambda turn: float(is_fair if turn.node_id == "verifier" else solved[turn.node_id]))
    return rewards | {
        "score": float(solved.get("solver_again", first)),
        "first_answer": float(first),
        "verdict_right": float(is_fair),
        "verdict_missing": float(verdict is None),
        "rejected": float(verdict == "reject"),
        "verdict": {"verifier": (verdict, should)} if "verifier" in solved else {},
    }


def _verdict(trajectory: Trajectory) -> str | None:
    reviews = [turn.response_text for turn in trajectory.turns if turn.node_id == "verifier"]
    return verdict_of(reviews[-1]) if reviews else None
