"""The nearest right word, for messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MANY = 12
"""Words that a message can list and still be read."""


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word of `words` that `word` was probably meant to be."""
    known = sorted(set(words))
    by_fold = {other.casefold(): other for other in known}
    close = get_close_matches(word.casefold(), list(by_fold), n=1, cutoff=0.6)
    return by_fold[close[0]] if close else None


def did_you_mean(word: str, words: Iterable[str]) -> str | None:
    """A hint: the nearest word, and all of them where they are few."""
    known = sorted(set(words))
    if not known:
        return None
    listed = f"one of {', '.join(known)}" if len(known) <= _MANY else None
    close = nearest(word, known)
    if close is None:
        return listed
    return f"did you mean '{close}'?" + ("" if listed is None else f" ({listed})")
