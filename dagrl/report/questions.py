"""What a question to the page's server is made of."""

from __future__ import annotations

from collections.abc import Mapping

from dagrl.errors import DagrlError

Params = Mapping[str, str]
"""Parameters by name, as they stand in the address."""


class Unknown(DagrlError):
    """What was asked for does not exist."""


def number(asked: Params, name: str, default: int) -> int:
    """A parameter that is a whole number; `default` where it is not given."""
    text = asked.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()):
        raise Unknown(f"'{name}' is a whole number, not '{text}'")
    return int(text)
