"""Texts for a terminal: what models and users wrote without its power over the screen, and times people can read."""

from __future__ import annotations

import math
import unicodedata

_HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def safe(text: str) -> str:
    r"""`text` with every character that a terminal might obey, or that shows nothing, written as an escape.

    New lines and tabs stay: they move nothing but the text itself.

    >>> print(safe("red: \x1b[31m"))
    red: \x1b[31m
    """
    return "".join(_shown(character) for character in text)


def duration(seconds: float) -> str:
    """`1h02m`, `9m40s`, `12s`."""
    if not math.isfinite(seconds):
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _HIDDEN_CATEGORIES:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
