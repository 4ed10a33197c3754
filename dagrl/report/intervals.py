"""How far few seeds can be trusted: Student's intervals of a mean over seeds and of the difference of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

_SIMPSON_PARTS = 200
_BISECTIONS = 60
_LARGEST = 12.71
"""No quantile of one or more degrees of freedom is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over seeds, or a difference of two such means."""

    mean: float
    margin: float | None
    """Half the width of the 95 % confidence interval; None where one seed tells nothing about the spread."""
    num_seeds: int

    @property
    def excludes_zero(self) -> bool:
        return self.margin is not None and abs(self.mean) > self.margin

    def __str__(self) -> str:
        return f"{self.mean:.4g}" if self.margin is None else f"{self.mean:.4g} ± {self.margin:.2g}"


def mean_over_seeds(values: Sequence[float]) -> Estimate:
    """Student's interval m ± t(n − 1) s/√n; n seeds are taken as independent and roughly normal."""
    n = len(values)
    assert n > 0
    mean = math.fsum(values) / n
    margin = None if n == 1 else t_975(n - 1) * math.sqrt(_variance(values) / n)
    return Estimate(mean=mean, margin=margin, num_seeds=n)


def difference(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Mean of `after` less mean of `before`, with Welch's interval (Welch 1947): the spreads may differ."""
    mean = mean_over_seeds(after).mean - mean_over_seeds(before).mean
    n = len(before) + len(after)
    if min(len(before), len(after)) == 1:
        return Estimate(mean=mean, margin=None, num_seeds=n)
    a, b = (_variance(values) / len(values) for values in (before, after))
    if a + b == 0.0:
        return Estimate(mean=mean, margin=0.0, num_seeds=n)
    freedom = (a + b) ** 2 / (a**2 / (len(before) - 1) + b**2 / (len(after) - 1))
    return Estimate(mean=mean, margin=t_975(freedom) * math.sqrt(a + b), num_seeds=n)


@cache
def t_975(freedom: float) -> float:
    """97.5 % quantile of Student's t with `freedom` >= 1 degrees of freedom, which need not be whole.

    With t = √freedom tan θ the distribution is ½ + Γ((f + 1)/2)/(√π Γ(f/2)) ∫₀^θ cos^(f − 1); Simpson, then bisection.
    """
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(math.pi) / 2
    wanted = 0.475 / math.exp(log_scale)
    low, high = 0.0, math.atan(_LARGEST / math.sqrt(freedom))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _integral_of_cosine_power(freedom - 1, middle) < wanted:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(low)


def _integral_of_cosine_power(power: float, end: float) -> float:
    width = end / _SIMPSON_PARTS
    inner = math.fsum((4 if k % 2 else 2) * math.pow(math.cos(k * width), power) for k in range(1, _SIMPSON_PARTS))
    return width / 3 * (1.0 + inner + math.pow(math.cos(end), power))


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
