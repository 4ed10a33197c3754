"""Micro-batches by token budget: ragged sequences of like length together, so that little of a forward is padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

MAX_PADDING = 0.1
"""Largest share of a micro-batch's positions that may be padding."""


def plan(lengths: Tensor, budget: int) -> list[Tensor]:
    """Divides sequences of `lengths` ([n] int64, all positive) into micro-batches: positions, [m] int64 each.

    A micro-batch holds at most `budget` positions, padding included, of which at most `MAX_PADDING` are padding; a
    sequence longer than the budget stands alone. Longest first, ties by position, so the same lengths always give the
    same plan and the largest memory is asked for at once. Every position is in exactly one micro-batch.
    """
    order = torch.argsort(lengths, descending=True, stable=True)
    sizes = lengths[order].tolist()
    starts = _starts(sizes, budget)
    return [order[start:end] for start, end in zip(starts, [*starts[1:], len(sizes)])]


def padding_fraction(lengths: Tensor, micro_batches: Sequence[Tensor]) -> float:
    """Share in [0, 1) of the positions of `micro_batches` that are padding; 0 where there are none."""
    used = sum(int(lengths[rows].sum()) for rows in micro_batches)
    computed = sum(int(lengths[rows].max()) * len(rows) for rows in micro_batches)
    return 1.0 - used / computed if computed else 0.0


def _starts(sizes: Sequence[int], budget: int) -> list[int]:
    """Where each micro-batch begins among `sizes`, which do not increase."""
    starts: list[int] = []
    longest = count = used = 0
    for position, size in enumerate(sizes):
        positions = longest * (count + 1)
        fits = count > 0 and positions <= budget and used + size >= (1.0 - MAX_PADDING) * positions
        if not fits:
            starts.append(position)
            longest, count, used = size, 0, 0
        count += 1
        used += size
    return starts
