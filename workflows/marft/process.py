"""The hooks of the Reasoner → Actor team: how an agent is addressed, and what of its words is kept.

Both hooks work on ids. The shared transcript is a row of closed turns, `problem, turn, turn, …`; before an agent
speaks, the environment's verdict and the agent's cue are put behind it, and after it spoke its turn is closed with
the tokenizer's end token. All markup comes from the workflow file, so the same hooks serve any chat format.
"""

from __future__ import annotations

from typing import Any


def pre_process(
    tokenizer: Any,
    prompt_id: list[int],
    obs: list[int] | None = None,
    *,
    cue: str,
    obs_open: str = "",
    obs_close: str = "",
    generation_prompt: str = "",
) -> list[int]:
    """The transcript, what the environment said last (between `obs_open` and `obs_close`), and the agent's `cue`.

    `generation_prompt` is what the chat template put behind the problem; it is taken off, because the cue replaces it.
    """
    ids = _without_tail(prompt_id, _encode(tokenizer, generation_prompt))
    if obs:
        ids = ids + _encode(tokenizer, obs_open) + list(obs) + _encode(tokenizer, obs_close)
    return ids + _encode(tokenizer, cue)


def post_process(
    tokenizer: Any,
    prompt_id: list[int],
    response_id: list[int],
    *,
    header: str,
    footer: str = "",
    generation_prompt: str = "",
    forget_from: str | None = None,
) -> list[int]:
    """The transcript with the agent's turn behind it: `header`, the response, its end token, `footer`.

    A response that ran into `max_tokens` has no end token and is given one, so that the next turn starts cleanly.
    `forget_from` names a header: everything from its last place on is dropped first. The Actor uses it to drop the
    Reasoner's working once it has answered: the next round starts from the problem and the answers given so far.
    """
    ids = _without_tail(prompt_id, _encode(tokenizer, generation_prompt))
    if forget_from is not None:
        ids = _before_last(ids, _encode(tokenizer, forget_from))
    is_closed = bool(response_id) and response_id[-1] == tokenizer.eos_token_id
    end = [] if is_closed else [tokenizer.eos_token_id]
    return ids + _encode(tokenizer, header) + list(response_id) + end + _encode(tokenizer, footer)


def _encode(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False)) if text else []


def _without_tail(ids: list[int], tail: list[int]) -> list[int]:
    return list(ids[: -len(tail)]) if tail and ids[-len(tail) :] == tail else list(ids)


def _before_last(ids: list[int], mark: list[int]) -> list[int]:
    """`ids` up to the last place of `mark`; all of them where it does not occur."""
    for start in range(len(ids) - len(mark), -1, -1):
        if ids[start : start + len(mark)] == mark:
            return ids[:start]
    return ids
