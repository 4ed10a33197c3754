"""Language of a response: the share of its letters that are of the scripts that were asked for."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from dagrl.errors import DagrlError
from dagrl.rewards.turns import TurnRewards, each_turn
from dagrl.types import Trajectory

SCRIPTS = {
    "arabic": ("ARABIC",),
    "cyrillic": ("CYRILLIC",),
    "devanagari": ("DEVANAGARI",),
    "greek": ("GREEK",),
    "han": ("CJK",),
    "hangul": ("HANGUL",),
    "hebrew": ("HEBREW",),
    "japanese": ("HIRAGANA", "KATAKANA", "CJK"),
    "latin": ("LATIN", "FULLWIDTH LATIN"),
    "thai": ("THAI",),
}
"""Script → how the Unicode names of its letters begin."""


def language(
    trajectory: Trajectory, *, scripts: Sequence[str] = ("latin",), nodes: Sequence[str] = ()
) -> TurnRewards | float:
    """For each turn of `nodes` (all, if not given): the share of letters of `scripts`, 1 where there is no letter.

    The language consistency of DeepSeek-R1 (arXiv 2501.12948), by script: languages of one script are not told apart.
    Greek letters of formulas count as Greek.
    """
    unknown = [name for name in scripts if name not in SCRIPTS]
    if unknown or not scripts or isinstance(scripts, str):
        raise DagrlError(f"scripts are {scripts!r}", where="reward 'language'", how=f"known are: {', '.join(SCRIPTS)}")
    return each_turn(trajectory, nodes, lambda turn: share_of_letters(turn.response_text, scripts))


def share_of_letters(text: str, scripts: Sequence[str]) -> float:
    """From 0 to 1.

    >>> share_of_letters("так what", ["latin"]), share_of_letters("2 + 2 = 4", ["latin"])
    (0.5714285714285714, 1.0)
    """
    letters = [letter for letter in text if letter.isalpha()]
    begins = tuple(begin for name in scripts for begin in SCRIPTS[name])
    return sum(_name(letter).startswith(begins) for letter in letters) / len(letters) if letters else 1.0


@lru_cache(maxsize=65536)
def _name(letter: str) -> str:
    return unicodedata.name(letter, "")
