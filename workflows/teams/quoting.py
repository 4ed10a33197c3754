"""What an agent of a team reads: the problem, the words of the agents it depends on, and its cue; nothing else.

Both hooks work on ids, and what an agent quotes can never become control tokens of its prompt. All markup comes from
the workflow file, so the same hooks serve any chat format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def pre_process(
    tokenizer: Any,
    prompt_id: list[int],
    obs: list[int] | None = None,
    *,
    inputs: Mapping[str, Sequence[str]],
    cue: str = "",
    quotes: Mapping[str, Sequence[str]] | None = None,
    generation_prompt: str = "",
) -> list[int]:
    """The problem, then every response of the nodes in `quotes`, then `cue`.

    `quotes` gives for a node that this one depends on what stands before and after each of its responses; `{n}` there
    becomes its number, from 1. `generation_prompt` is what the chat template put behind the problem; it is taken off,
    because the cue replaces it.
    """
    ids = without_tail(prompt_id, encode(tokenizer, generation_prompt))
    marks = {} if quotes is None else quotes
    for node, texts in inputs.items():
        before, after = marks.get(node, (None, None))
        for number, text in enumerate(texts if before is not None else (), start=1):
            ids += encode(tokenizer, before.replace("{n}", str(number)))
            ids += tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
            ids += encode(tokenizer, after.replace("{n}", str(number)))
    return ids + encode(tokenizer, cue)


def post_process(tokenizer: Any, prompt_id: list[int], response_id: list[int]) -> list[int]:
    """The transcript stays the problem: who needs what was said, quotes it."""
    return prompt_id


def encode(tokenizer: Any, text: str) -> list[int]:
    """Ids of the workflow's own markup, control tokens included."""
    return list(tokenizer.encode(text, add_special_tokens=False)) if text else []


def without_tail(ids: list[int], tail: list[int]) -> list[int]:
    return list(ids[: -len(tail)]) if tail and ids[-len(tail) :] == tail else list(ids)
