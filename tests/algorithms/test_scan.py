"""The reverse scan against the recursion written as a loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dagrl.algorithms.scan import reverse_linear_scan


def recursion(deltas: list[float], decay: list[float]) -> list[float]:
    totals, following = [], 0.0
    for delta, factor in zip(reversed(deltas), reversed(decay)):
        following = delta + factor * following
        totals.append(following)
    return totals[::-1]


@given(st.lists(st.tuples(st.floats(-5, 5), st.sampled_from([0.0, 0.5, 0.97, 1.0])), min_size=1, max_size=70))
@settings(deadline=None)
def test_scan_equals_the_recursion(pairs: list[tuple[float, float]]) -> None:
    deltas, decay = (list(column) for column in zip(*pairs))
    found = reverse_linear_scan(torch.tensor(deltas, dtype=torch.float64), torch.tensor(decay, dtype=torch.float64))
    assert found.tolist() == pytest.approx(recursion(deltas, decay), abs=1e-12)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 9, 1023, 1024, 1025])
def test_decay_of_one_reaches_the_first_token_from_the_last(length: int) -> None:
    found = reverse_linear_scan(torch.ones(length), torch.ones(length))
    assert found.tolist() == list(range(length, 0, -1))


def test_decay_of_zero_lets_nothing_through() -> None:
    deltas = torch.tensor([1.0, float("nan"), 3.0])
    assert reverse_linear_scan(deltas[[0, 2]], torch.zeros(2)).tolist() == [1.0, 3.0]
    assert reverse_linear_scan(deltas, torch.zeros(3))[[0, 2]].tolist() == [1.0, 3.0]


def test_scan_leaves_its_arguments_alone() -> None:
    deltas, decay = torch.ones(4, dtype=torch.float64), torch.full((4,), 0.5, dtype=torch.float64)
    reverse_linear_scan(deltas, decay)
    assert deltas.tolist() == [1.0] * 4 and decay.tolist() == [0.5] * 4


def test_scan_of_nothing_is_nothing() -> None:
    assert reverse_linear_scan(torch.zeros(0), torch.zeros(0)).shape == (0,)
