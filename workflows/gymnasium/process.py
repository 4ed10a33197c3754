"""The walker's hook: the field that it stands on, and nothing of the way there."""

from __future__ import annotations

from typing import Any


def pre_process(tokenizer: Any, prompt_id: list[int], obs: list[int] | None = None) -> list[int]:
    """`<|field|>14<|walker|>`; the first line of what the world said last is the number of the field."""
    field = tokenizer.decode(obs).partition("\n")[0]
    return list(tokenizer.encode(f"<|field|>{field}<|walker|>", add_special_tokens=False))
