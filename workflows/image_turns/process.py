"""The viewer's hook: what stays of its conversation. A transcript has one id for a picture, which it can leave out."""

from __future__ import annotations

from typing import Any

from dagrl import is_image_id


def post_process(tokenizer: Any, prompt_id: list[int], response_id: list[int], keep: int = 1) -> list[int]:
    """Prompt and response with their last `keep` pictures; of older ones the words around them are left."""
    ids = prompt_id + response_id
    pictures = [place for place, one in enumerate(ids) if is_image_id(one)]
    forgotten = set(pictures[: max(len(pictures) - keep, 0)])
    return [one for place, one in enumerate(ids) if place not in forgotten]
