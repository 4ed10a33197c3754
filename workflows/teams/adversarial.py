"""Proposer against solver: which problem the solver gets, and their opposed rewards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import quoting
from quoting import encode, post_process, without_tail
from scoring import Judge, Rewards, by_turn, is_right

from dagrl import Trajectory
from dagrl.rewards.math import boxed_exact_match

__all__ = ["has_problem", "post_process", "pre_process", "score"]

_PROBLEM = re.compile(r"\d( [+-] \d){2,4}")
"""3 to 5 single digits, added and subtracted."""
BAD_PROBLEM = -1.0
"""What a proposer gets for a text that is no problem; a problem that was solved gives 0, one that was not 1."""


def pre_process(
    tokenizer: Any,
    prompt_id: list[int],
    obs: list[int] | None = None,
    *,
    inputs: Mapping[str, Sequence[str]],
    trajectory: Trajectory,
    cue: str,
    solves: Sequence[str] = (),
    generation_prompt: str = "",
) -> list[int]:
    """The task's problem and `cue`. For a solver, who has `solves` (what stands before and after a problem), the one
    proposed to it; in an exam the task's."""
    if not solves or is_exam(trajectory):
        return quoting.pre_process(tokenizer, prompt_id, obs, inputs={}, cue=cue, generation_prompt=generation_prompt)
    message = [{"role": "user", "content": solves[0] + inputs["proposer"][-1] + solves[1]}]
    text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    return without_tail(encode(tokenizer, text), encode(tokenizer, generation_prompt)) + encode(tokenizer, cue)


def is_exam(trajectory: Trajectory) -> bool:
    """True for held-out tasks: the solver answers them as they stand, whatever was proposed."""
    return trajectory.task.extra_info.get("split") == "test"


def has_problem(trajectory: Trajectory) -> bool:
    """Whether the solver is given something to solve."""
    return is_exam(trajectory) or _PROBLEM.fullmatch(_proposed(trajectory)) is not None


def answer_of(problem: str) -> int:
    """The right answer of a problem; `_PROBLEM` matches it."""
    return sum(int(term) for term in re.findall(r"[+-]?\d", problem.replace(" ", "")))


def score(trajectory: Trajectory, *, judge: Judge = "math") -> Rewards:
    """The solver 1 if it is right, the proposer 1 if it is not; the proposer -1 for what is no problem.

    The conversation counts as the solver's answer; an exam pays the proposer nothing.
    """
    answers = [turn.response_text for turn in trajectory.turns if turn.node_id == "solver"]
    is_solved = bool(answers) and _is_solved(answers[-1], trajectory, judge)
    pay = float(not is_solved) if answers else BAD_PROBLEM
    proposer = 0.0 if is_exam(trajectory) else pay
    rewards = by_turn(trajectory, lambda turn: float(is_solved) if turn.node_id == "solver" else proposer)
    return rewards | {"score": float(is_solved), "bad_problem": float(not has_problem(trajectory))}


def _is_solved(answer: str, trajectory: Trajectory, judge: Judge) -> bool:
    if is_exam(trajectory):
        return is_right(answer, trajectory.task, judge)
    return boxed_exact_match(answer, answer_of(_proposed(trajectory))) == 1.0


def _proposed(trajectory: Trajectory) -> str:
    texts = [turn.response_text for turn in trajectory.turns if turn.node_id == "proposer"]
    return texts[-1] if texts else ""
