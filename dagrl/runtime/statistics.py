"""How sure a measured accuracy is: 95 % confidence intervals for means, proportions and paired differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Z_95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A measured mean and the bounds of its 95 % confidence interval.

    >>> str(accuracy_interval(8, 10))
    '0.800 [0.490, 0.943]'
    >>> str(accuracy_interval(0, 0))
    'unknown'
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return "unknown" if math.isnan(self.mean) else f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def accuracy_interval(successes: float, n: float) -> Interval:
    """Wilson's score interval of a proportion (Wilson 1927, eq. for P with z = 1.96).

    (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n). Never leaves [0, 1], and is not of width 0 where all or none
    succeeded. Without any trial the mean is NaN and the bounds are 0 and 1.
    """
    if n == 0:
        return Interval(mean=math.nan, low=0.0, high=1.0)
    p = successes / n
    centre = p + Z_95**2 / (2 * n)
    spread = Z_95 * math.sqrt(p * (1 - p) / n + Z_95**2 / (4 * n**2))
    scale = 1 + Z_95**2 / n
    low, high = (centre - spread) / scale, (centre + spread) / scale
    return Interval(mean=p, low=min(max(low, 0.0), p), high=max(min(high, 1.0), p))


def mean_interval(scores: Sequence[float]) -> Interval:
    """Of the mean of one score in [0, 1] per problem.

    Wilson's interval with the number of problems as n: exact for scores of 0 and 1, too wide (never too narrow) for
    shares of several samples, since no scores in [0, 1] of that mean vary more.
    """
    return accuracy_interval(math.fsum(scores), len(scores))


def known_pairs(
    before: Sequence[float | None], after: Sequence[float | None]
) -> tuple[list[float], list[float]]:
    """The scores of the problems that both sides have one of.

    >>> known_pairs([1.0, None, 0.5], [0.0, 1.0, 1.0])
    ([1.0, 0.5], [0.0, 1.0])
    """
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None]
    return [a for a, _ in pairs], [b for _, b in pairs]


def paired_difference(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """Mean of `after - before` over the same problems, and the bounds of its 95 % confidence interval.

    Normal approximation of a paired mean, d ± z √(s²/n), with two pairs added for the spread, one won and one lost
    (Agresti & Min 2005, "Simple improved confidence intervals for comparing matched proportions"), so that no
    difference at all is not taken for certainty. Without any pair: NaN, -1, 1.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} scores before and {len(after)} after are not pairs")
    n = len(before)
    if n == 0:
        return math.nan, -1.0, 1.0
    differences = [late - early for early, late in zip(before, after, strict=True)]
    diff = math.fsum(differences) / n
    padded = [*differences, 1.0, -1.0]
    mean = math.fsum(padded) / (n + 2)
    variance = math.fsum((one - mean) ** 2 for one in padded) / (n + 2)
    margin = Z_95 * math.sqrt(variance / (n + 2))
    return diff, min(mean - margin, diff), max(mean + margin, diff)
