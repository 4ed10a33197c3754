"""The images of a data row, from the parts of its messages and the column `images`: marks in the prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dagrl.images import content_text, marks, num_spare, read_image
from dagrl.types import Image


def with_images(prompt: Any, column: Any, folder: Path) -> tuple[Any, tuple[Image, ...]]:
    """The prompt with marks where it shows images, and the images. `column`: what stands in `images`, or None.

    Image parts without an image of their own take those of the column in order; where the prompt has no such part they
    stand before its first user message. Files are looked for in `folder`. Raises ValueError.
    """
    contents = [prompt] if isinstance(prompt, str) else [message["content"] for message in prompt]
    if column is None and all(isinstance(content, str) and not marks(content) for content in contents):
        return prompt, ()
    given = [] if column is None else list(column) if isinstance(column, (list, tuple)) else [column]
    spare = [_opened(one, folder) for one in given]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    wanted = sum(map(num_spare, contents))
    if spare and not wanted:
        messages = _put_first(messages, spare)
    elif wanted != len(spare):
        raise ValueError(f"the prompt has places for {wanted} images, the row has {len(spare)}")
    album: dict[str, Image] = {}
    others = iter(spare)
    told = []
    for message in messages:
        content = _opened_parts(message["content"], folder)
        told.append({**message, "content": content_text(content, album, others)})
    return told[0]["content"] if isinstance(prompt, str) else told, tuple(album.values())


def _put_first(messages: Sequence[Mapping[str, Any]], images: list[Image]) -> list[dict[str, Any]]:
    users = [place for place, message in enumerate(messages) if message["role"] == "user"]
    first = users[0] if users else 0
    parts: list[dict[str, Any]] = [{"type": "image", "image": image} for image in images]
    content = messages[first]["content"]
    parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [dict(one) | ({"content": parts} if place == first else {}) for place, one in enumerate(messages)]


def _opened_parts(content: Any, folder: Path) -> Any:
    if not isinstance(content, (list, tuple)):
        return content
    return [
        {**part, "image": _opened(part["image"], folder)}
        if isinstance(part, Mapping) and part.get("image") is not None
        else part
        for part in content
    ]


def _opened(raw: Any, folder: Path) -> Image:
    """Bytes, a data: URI, a path, or `{bytes, path}`, as the Hugging Face library keeps images."""
    if isinstance(raw, Mapping):
        raw = raw.get("bytes") or raw.get("path")
    if not isinstance(raw, str) or raw.startswith("data:"):
        return read_image(raw)
    try:
        return read_image((folder / raw).read_bytes())
    except OSError as error:
        raise ValueError(f"the image {raw} cannot be read: {error.strerror}") from error
