"""The model of workflows/gymnasium.yaml: it can name the four directions, and knows that the goal is down right.

It is shown the sixteen fields of Gymnasium's FrozenLake, as workflows/gymnasium/process.py writes them, each with a
direction drawn at random, down and right twice as often as up and left. Where the ice holds it is not told.
"""

from __future__ import annotations

import random
from pathlib import Path

from teaching import END, Part, Progress, Syllabus, teach

FIELD, WALKER = "<|field|>", "<|walker|>"
DIRECTIONS = ("left", "down", "right", "up")
TENDENCY = (1, 2, 2, 1)


def make(folder: Path, progress: Progress, **options: int) -> None:
    """Writes the taught model to `folder`; `options` as `teach` has them."""
    teach(folder, progress, SYLLABUS, **({"hidden_size": 32, "lesson_steps": 150, "demo_steps": 10} | options))


def any_direction(rng: random.Random) -> list[Part]:
    return [(f"{FIELD}{rng.randrange(16)}{WALKER}", False), (rng.choices(DIRECTIONS, TENDENCY)[0] + END, True)]


SYLLABUS = Syllabus(
    roles=(FIELD, WALKER), phrases=DIRECTIONS, trade=lambda rng, fewest, most: any_direction(rng), team=any_direction
)
