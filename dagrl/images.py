"""Images in conversations: read from what users give, and marks that stand for them in texts.

Inside dagrl a text that shows an image holds a mark in its place: two characters that Unicode keeps free for such ends
(U+FDD0, U+FDD1) around the image's size and SHA-256. Marks are made here alone: a user's text that looks like one is
changed to brackets, so no text can bring an image about. In transcripts one id stands for an image, its `handle`, which
is outside of every vocabulary; it becomes the model's own image tokens once, when an agent is asked.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any

from dagrl.types import Image, handle_of

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_MARK = re.compile(f"{_OPEN}(image [0-9]+x[0-9]+ )([0-9a-f]{{64}}){_CLOSE}")
_SHOWN_DIGITS = 12
_FORMATS = ("PNG", "JPEG")
_DATA_URI = re.compile(r"data:image/(?:png|jpeg);base64,")
IMAGE_SHAPES = "an image is PNG or JPEG bytes, a PIL image, or an array [height, width] or [height, width, 3] of uint8"


def read_image(raw: Any) -> Image:
    """An image that user code gave: bytes are kept as they are, all else becomes PNG. Raises ValueError."""
    if isinstance(raw, Image):
        return raw
    if isinstance(raw, (bytes, bytearray, memoryview)):
        return _decoded(bytes(raw))
    if _is_pixels(raw):
        return _encoded(_of_array(raw) if hasattr(raw, "ndim") else raw)
    if isinstance(raw, str) and (head := _DATA_URI.match(raw)):
        return _decoded(_from_base64(raw[head.end() :]))
    raise ValueError(f"a {type(raw).__name__} is no image; {IMAGE_SHAPES}")


def is_image(raw: Any) -> bool:
    """Whether a value stands for one image rather than a text or a list of observations."""
    if _is_pixels(raw):
        return getattr(raw, "ndim", 2) in (2, 3)
    return isinstance(raw, (bytes, bytearray, memoryview, Image))


def to_text(image: Image) -> str:
    """For JSON, which has no bytes."""
    return base64.b64encode(image.data).decode()


def of_text(text: str) -> Image:
    """What `to_text` made."""
    return _decoded(_from_base64(text))


def open_image(image: Image) -> Any:
    """As a model's processor wants it: PIL's, three colours, without transparency."""
    import PIL.Image

    return PIL.Image.open(BytesIO(image.data), formats=_FORMATS).convert("RGB")


def mark(image: Image) -> str:
    """What stands for the image in a text."""
    return f"{_OPEN}image {image.width}x{image.height} {image.digest}{_CLOSE}"


def pieces(text: str) -> list[str | int]:
    """A text as its parts, in order: what lies between marks, if anything does, and the handle of each image."""
    found: list[str | int] = []
    at = 0
    for one in _MARK.finditer(text):
        found += [text[at : one.start()], handle_of(one[2])]
        at = one.end()
    return [piece for piece in (*found, text[at:]) if piece != ""]


def marks(text: str) -> list[str]:
    """The marks of a text, in order."""
    return [one[0] for one in _MARK.finditer(text)]


def shown(text: str) -> str:
    """For people and for code that takes texts alone: `[image 28x28 3f2a9c1b04de]` for each mark."""
    return _MARK.sub(lambda one: f"[{one[1]}{one[2][:_SHOWN_DIGITS]}]", text)


def content_text(content: Any, album: dict[str, Image], spare: Iterable[Any] = ()) -> str:
    """A text, an image or a list of chat parts as one text, with marks for images, which are put into `album`.

    Parts are as Hugging Face's chat templates want them: `{"type": "text", "text": …}` and `{"type": "image", "image":
    …}`; one without an image of its own takes the next of `spare`. Raises ValueError.
    """
    others = iter(spare)
    if isinstance(content, str):
        return shown(content)
    if is_image(content):
        return _kept(content, album)
    if not isinstance(content, (list, tuple)):
        raise ValueError(f"a {type(content).__name__} is no text, image or list of parts")
    return "".join(_part_text(part, album, others) for part in content)


def are_parts(raw: Any) -> bool:
    """Whether a value is a list of chat parts."""
    is_list = isinstance(raw, (list, tuple)) and bool(raw)
    return is_list and all(isinstance(part, Mapping) and "type" in part for part in raw)


def num_spare(content: Any) -> int:
    """Image parts of a message that have no image of their own."""
    parts = content if isinstance(content, (list, tuple)) else ()
    images = [part for part in parts if isinstance(part, Mapping) and part.get("type") == "image"]
    return sum(part.get("image") is None for part in images)


def _part_text(part: Any, album: dict[str, Image], spare: Iterator[Any]) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return shown(part["text"])
    if kind != "image":
        raise ValueError(
            f"the part {str(part)[:80]} is neither {{'type': 'text', 'text': …}} nor {{'type': 'image', 'image': …}}"
        )
    image = part.get("image")
    image = next(spare, None) if image is None else image
    if image is None:
        raise ValueError("an image part has no image, and no further one is given")
    return _kept(image, album)


def _kept(raw: Any, album: dict[str, Image]) -> str:
    image = read_image(raw)
    album[image.digest] = image
    return mark(image)


def _is_pixels(raw: Any) -> bool:
    """Whether it is an array or a PIL image; neither library need be there for other things to be told apart."""
    return hasattr(type(raw), "__array_interface__")


def _of_array(array: Any) -> Any:
    import PIL.Image  # slow to import, and not needed where nothing is shown

    is_shape = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)
    if str(array.dtype) != "uint8" or not is_shape or 0 in array.shape:
        raise ValueError(f"an array of {array.dtype} and shape {array.shape} is no image; {IMAGE_SHAPES}")
    return PIL.Image.fromarray(array)


def _encoded(image: Any) -> Image:
    content = BytesIO()
    image.convert("RGB").save(content, format="PNG")
    return _decoded(content.getvalue())


def _decoded(data: bytes) -> Image:
    """Bytes that hold one whole picture of a known format. Raises ValueError."""
    import PIL.Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(BytesIO(data), formats=_FORMATS) as image:
                image.load()
                width, height = image.size
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError, Warning) as error:
        raise ValueError(f"{len(data)} bytes cannot be decoded as PNG or JPEG") from error
    return Image(data=data, width=width, height=height, digest=hashlib.sha256(data).hexdigest())


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"is not base64: {error}") from error
