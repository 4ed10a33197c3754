"""PatchEnv: shows a picture a round, each with a patch of one colour, and asks for its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

COLOURS = {"red": (230, 40, 40), "green": (40, 190, 60), "blue": (50, 80, 230), "yellow": (240, 210, 40)}
SIDE = 28
"""Pixels of a picture; the small model reads it as one image token."""


class PatchEnv:
    """As many rounds as the ground truth names colours; each that the agent names, as its whole answer, is worth its
    share of 1.

    env = PatchEnv()
    env.reset(ground_truth="red blue", seed=0)   # a picture [28, 28, 3]
    env.step(["red"], "red blue")                # ([{"type": "text", …}, {"type": "image", …}], 0.5, False)
    """

    def reset(self, ground_truth: str, seed: int) -> np.ndarray[Any, Any]:
        self._left = ground_truth.split()
        self._draw = np.random.default_rng(seed)
        return draw_patch(self._left[0], self._draw)

    def step(self, actions: Sequence[str], ground_truth: str) -> tuple[Any, float, bool]:
        is_right = actions[-1].strip() == self._left.pop(0)
        reward = is_right / len(ground_truth.split())
        verdict = "right" if is_right else "wrong"
        if not self._left:
            return verdict, reward, True
        picture = draw_patch(self._left[0], self._draw)
        parts = [{"type": "text", "text": verdict}, {"type": "image", "image": picture}]
        return parts, reward, False


def draw_patch(colour: str, draw: np.random.Generator) -> np.ndarray[Any, Any]:
    """A picture [SIDE, SIDE, 3] of uint8: grey noise, and somewhere a square of the colour, lighter or darker."""
    picture = draw.integers(100, 130, (SIDE, SIDE, 1)).repeat(3, axis=2)
    size = int(draw.integers(14, 22))
    top, left = draw.integers(0, SIDE - size + 1, 2)
    shade = np.array(COLOURS[colour]) * draw.uniform(0.75, 1.0)
    picture[top : top + size, left : left + size] = shade + draw.integers(-12, 13, (size, size, 3))
    return picture.clip(0, 255).astype(np.uint8)
