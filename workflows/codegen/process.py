"""Coder and tester: what each reads, and who gets what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dagrl import Trajectory
from dagrl.rewards.code import compute_score


def pre_process(
    tokenizer: Any,
    prompt_id: list[int],
    obs: list[int] | None = None,
    *,
    inputs: Mapping[str, Sequence[str]],
    cue: str,
    report: Sequence[str] = ("", ""),
    quote: Sequence[str] = ("", ""),
    generation_prompt: str = "",
) -> list[int]:
    """The problem; for a coder whose program failed, what failed, between `report`; for the tester the program, between
    `quote`; then `cue`. What is quoted can never become control tokens. `generation_prompt` is what the chat template
    put behind the problem; it is taken off, because the cue replaces it."""
    tail = _encode(tokenizer, generation_prompt)
    ids = list(prompt_id[: -len(tail)] if tail and prompt_id[-len(tail) :] == tail else prompt_id)
    for program in inputs.get("coder", ()):
        ids += _encode(tokenizer, quote[0]) + _encode(tokenizer, program, is_quoted=True) + _encode(tokenizer, quote[1])
    if obs:
        ids += _encode(tokenizer, report[0]) + list(obs) + _encode(tokenizer, report[1])
    return ids + _encode(tokenizer, cue)


def post_process(tokenizer: Any, prompt_id: list[int], response_id: list[int]) -> list[int]:
    """The transcript stays the problem: who needs what was said, quotes it."""
    return prompt_id


def score(trajectory: Trajectory) -> dict[Any, float]:
    """The first attempt and the tests as CodeReviewEnv judged them, a second attempt by the true tests.

    The conversation counts as its last program. Without room for a tester the attempt is judged here.
    """
    task = trajectory.task
    programs = [turn.response_text for turn in trajectory.turns if turn.agent_group == 0]
    if not trajectory.observations:
        alone = compute_score(task.data_source, programs[0], task.ground_truth, {})
        return {(0, 0): alone, "score": alone, "first_program": alone}
    seen = trajectory.observations[0]
    right = [seen.rewards[0], *(compute_score(task.data_source, one, task.ground_truth, {}) for one in programs[1:])]
    rewards: dict[Any, float] = {(0, attempt): reward for attempt, reward in enumerate(right)}
    return rewards | {
        (1, 0): seen.rewards[1],
        "score": right[-1],
        "first_program": right[0],
        "tests_valid": float(seen.rewards[1] > 0.0),
        "tests_agree": float(seen.rewards[1] == 1.0),
        "retried": float(len(right) > 1),
    }


def _encode(tokenizer: Any, text: str, *, is_quoted: bool = False) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=is_quoted)) if text else []
