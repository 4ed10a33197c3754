"""Confidence intervals against published numbers and against simulation."""

from __future__ import annotations

import math
import random

import pytest

from dagrl.runtime.statistics import accuracy_interval, mean_interval, paired_difference


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_published_bounds(successes: int, n: int, low: float, high: float) -> None:
    interval = accuracy_interval(successes, n)
    assert interval.mean == successes / n
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=6e-5)


def test_the_interval_of_a_mean_of_zeros_and_ones_is_that_of_their_count() -> None:
    assert mean_interval([1.0, 0.0, 1.0]) == accuracy_interval(2, 3)


def test_without_trials_nothing_is_known() -> None:
    interval = accuracy_interval(0, 0)
    assert math.isnan(interval.mean)
    assert (interval.low, interval.high) == (0.0, 1.0)
    assert math.isnan(paired_difference([], [])[0])


def test_pairs_give_a_narrower_interval_than_their_marginals() -> None:
    before = [1.0] * 40 + [0.0] * 60
    after = [1.0] * 60 + [0.0] * 40
    diff, low, high = paired_difference(before, after)
    assert diff == pytest.approx(0.2)
    assert 0.1 < low < diff < high < 0.3


def test_equal_scores_are_no_proof_of_no_difference() -> None:
    diff, low, high = paired_difference([1.0, 0.0], [1.0, 0.0])
    assert diff == 0.0
    assert low < -0.1
    assert high > 0.1


def test_unequal_numbers_of_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="not pairs"):
        paired_difference([1.0], [])


def test_95_of_100_paired_intervals_hold_the_true_difference() -> None:
    draw = random.Random(0)
    trials, held = 1000, 0
    for _ in range(trials):
        before = [float(draw.random() < 0.3) for _ in range(80)]
        after = [max(score, float(draw.random() < 0.2)) for score in before]
        _, low, high = paired_difference(before, after)
        held += low <= 0.7 * 0.2 <= high
    assert 0.93 <= held / trials <= 0.98
