"""Solvers, rewriters and a selector: which candidates are passed on, and who gets what."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import quoting
from quoting import post_process
from scoring import Judge, Rewards, by_turn, is_right

from dagrl import Trajectory, Turn
from dagrl.rewards.math import last_boxed

__all__ = ["has_rewrites", "has_solutions", "post_process", "pre_process", "score"]

_JUDGMENT = re.compile(r"Judgment:\s*(\d+)")


def pre_process(
    tokenizer: Any,
    prompt_id: list[int],
    obs: list[int] | None = None,
    *,
    inputs: Mapping[str, Sequence[str]],
    **layout: Any,
) -> list[int]:
    """As `quoting.pre_process`, with the responses that hold an answer; the others are no candidates."""
    candidates = {node: [text for text in texts if is_candidate(text)] for node, texts in inputs.items()}
    return quoting.pre_process(tokenizer, prompt_id, obs, inputs=candidates, **layout)


def is_candidate(text: str) -> bool:
    return bool(last_boxed(text))


def has_solutions(trajectory: Trajectory) -> bool:
    """Whether the rewriters have anything to rewrite."""
    return bool(_candidates(trajectory, "solver"))


def has_rewrites(trajectory: Trajectory) -> bool:
    """Whether the selector has anything to choose from."""
    return bool(_candidates(trajectory, "rewriter"))


def chosen(trajectory: Trajectory) -> Turn | None:
    """The rewrite that the selector's last `Judgment: N` names (from 1); None where it names none of them."""
    verdicts = [_JUDGMENT.findall(turn.response_text) for turn in trajectory.turns if turn.node_id == "selector"]
    candidates = _candidates(trajectory, "rewriter")
    number = int(verdicts[-1][-1]) if verdicts and verdicts[-1] else 0
    return candidates[number - 1] if 0 < number <= len(candidates) else None


def score(trajectory: Trajectory, *, judge: Judge = "math") -> Rewards:
    """Each solver and rewriter 1 if its own answer is right, the selector 1 if the one that it chose is.

    The conversation counts as the choice.
    """
    answer = chosen(trajectory)
    is_solved = answer is not None and is_right(answer.response_text, trajectory.task, judge)
    solved = [is_right(turn.response_text, trajectory.task, judge) for turn in trajectory.turns]
    right = dict(zip(map(id, trajectory.turns), solved, strict=True))
    rewards = by_turn(trajectory, lambda turn: float(is_solved if turn.node_id == "selector" else right[id(turn)]))
    by_role: dict[str, list[float]] = {"solver": [], "rewriter": []}
    for turn in trajectory.turns:
        if turn.node_id in by_role:
            by_role[turn.node_id].append(float(right[id(turn)]))
    shares = {f"{role}_right": sum(own) / len(own) for role, own in by_role.items() if own}
    return rewards | shares | {"score": float(is_solved), "no_choice": float(answer is None)}


def _candidates(trajectory: Trajectory, node_id: str) -> list[Turn]:
    return [turn for turn in trajectory.turns if turn.node_id == node_id and is_candidate(turn.response_text)]
