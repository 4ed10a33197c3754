"""Token ids back to the text of each token, from a checkpoint's tokenizer.json alone; loads no tokenizer library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

_METASPACE = "▁"
_BYTE_FALLBACK_LENGTH = len("<0x0A>")


class TokenTexts:
    """The text of every token of one vocabulary."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        """`content` is a tokenizer.json; raises ValueError where it has no vocabulary that can be read."""
        vocabulary = content.get("model", {}).get("vocab")
        if isinstance(vocabulary, list):
            vocabulary = {entry[0]: number for number, entry in enumerate(vocabulary)}
        if not isinstance(vocabulary, Mapping):
            raise ValueError("tokenizer.json has no vocabulary")
        self._pieces: dict[int, str] = {int(number): str(piece) for piece, number in vocabulary.items()}
        self._added = {int(token["id"]): str(token["content"]) for token in content.get("added_tokens") or ()}
        self._is_byte_level = "ByteLevel" in _decoder_types(content.get("decoder"))

    def of(self, ids: Sequence[int]) -> list[str]:
        """The text of each token. A character whose bytes are split over tokens stands at the token that ends it."""
        texts: list[str] = []
        pending = b""
        for number in ids:
            text, pending = self._text(number, pending)
            texts.append(text)
        if pending and texts:
            texts[-1] += pending.decode(errors="replace")
        return texts

    def _text(self, number: int, pending: bytes) -> tuple[str, bytes]:
        if number in self._added or number not in self._pieces:
            return pending.decode(errors="replace") + self._added.get(number, f"⟨{number}⟩"), b""
        return _whole_characters(pending + self._bytes(self._pieces[number]))

    def _bytes(self, piece: str) -> bytes:
        if self._is_byte_level:
            table = _byte_of_character()
            return b"".join(bytes([table[char]]) if char in table else char.encode() for char in piece)
        if piece.startswith("<0x") and piece.endswith(">") and len(piece) == _BYTE_FALLBACK_LENGTH:
            return bytes([int(piece[3:5], 16)])
        return piece.replace(_METASPACE, " ").encode(errors="replace")


@lru_cache(maxsize=4)
def load_token_texts(path: Path) -> TokenTexts | None:
    """The token texts of a tokenizer.json; None where it is not there or cannot be read as one."""
    try:
        return TokenTexts(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def _decoder_types(decoder: Any) -> set[str]:
    if not isinstance(decoder, Mapping):
        return set()
    inner = [name for part in decoder.get("decoders", ()) for name in _decoder_types(part)]
    return {str(decoder.get("type")), *inner}


def _whole_characters(data: bytes) -> tuple[str, bytes]:
    """The text of all finished UTF-8 characters, and the bytes of one that is not finished."""
    for cut in range(min(4, len(data) + 1)):
        try:
            return data[: len(data) - cut].decode(), data[len(data) - cut :]
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace"), b""


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE's alphabet, as GPT-2 has it: printable bytes are themselves, the other 68 follow 255."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}
