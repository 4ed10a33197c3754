"""Student's quantiles against printed tables; Welch's interval against a case worked by hand."""

from __future__ import annotations

import math

import pytest

from dagrl.report.intervals import difference, mean_over_seeds, t_975


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062047), (2, 4.30265273), (3, 3.18244631), (4, 2.77644511), (10, 2.22813885), (30, 2.04227246),
     (120, 1.97993041), (1e6, 1.95996636)],
)  # fmt: skip
def test_quantiles_are_those_of_the_tables(freedom: float, quantile: float) -> None:
    assert t_975(freedom) == pytest.approx(quantile, rel=1e-6)


def test_quantiles_between_whole_degrees_lie_between_them() -> None:
    assert t_975(3) > t_975(2.5 + 0.9) > t_975(4)


def test_the_mean_of_three_seeds() -> None:
    estimate = mean_over_seeds([1.0, 2.0, 3.0])
    assert estimate.mean == 2.0
    assert estimate.margin == pytest.approx(4.30265273 / math.sqrt(3))
    assert str(estimate) == "2 ± 2.5"


def test_one_seed_has_no_interval() -> None:
    assert mean_over_seeds([0.5]).margin is None
    assert difference([0.5], [0.7, 0.8]).margin is None
    assert not difference([0.5], [0.7]).excludes_zero


def test_the_difference_of_two_groups_is_welchs() -> None:
    # Spreads s²/n: 1/3 and 4/3; degrees (5/3)² / ((1/3)²/2 + (4/3)²/2) = 2.9411...
    found = difference([1.0, 2.0, 3.0], [10.0, 12.0, 14.0])
    assert found.mean == 10.0
    assert found.margin == pytest.approx(t_975(50 / 17) * math.sqrt(5 / 3))
    assert found.excludes_zero


def test_seeds_that_are_all_the_same_have_no_spread() -> None:
    assert difference([1.0, 1.0], [1.0, 1.0]).margin == 0.0
    assert not difference([1.0, 1.0], [1.0, 1.0]).excludes_zero
    assert difference([1.0, 1.0], [2.0, 2.0]).excludes_zero
