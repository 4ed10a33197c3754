"""A curve as one line of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "


def resample(points: Mapping[int, float], first: int, last: int, width: int) -> list[float | None]:
    """Means of the points in `width` equal parts of the steps `first`…`last`, both included; None where none fell.

    >>> resample({1: 0.0, 2: 2.0, 4: 5.0}, 1, 4, 2)
    [1.0, 5.0]
    """
    parts: list[list[float]] = [[] for _ in range(width)]
    for step, value in points.items():
        if first <= step <= last:
            parts[(step - first) * width // (last - first + 1)].append(value)
    return [sum(part) / len(part) if part else None for part in parts]


def sparkline(values: Sequence[float | None], low: float, high: float) -> str:
    """A block per value between `low` and `high`; values beyond are drawn at the edge, a flat curve at half height.

    >>> sparkline([0.0, None, 0.5, 1.0], 0.0, 1.0)
    '▁ ▅█'
    """
    return "".join(GAP if value is None else BLOCKS[_height(value, low, high)] for value in values)


def _height(value: float, low: float, high: float) -> int:
    top = len(BLOCKS) - 1
    if high <= low:
        return top // 2
    return min(top, max(0, int((value - low) / (high - low) * len(BLOCKS))))
