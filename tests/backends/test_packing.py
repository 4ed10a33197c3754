"""Micro-batches: nothing lost, within the budget, little padding, always the same."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dagrl.backends.packing import MAX_PADDING, padding_fraction, plan

LENGTHS = st.lists(st.integers(1, 300), min_size=0, max_size=60)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 2000))
def test_every_sequence_is_in_exactly_one_micro_batch_within_budget_and_padding(sizes: list[int], budget: int) -> None:
    lengths = torch.tensor(sizes, dtype=torch.int64)
    micro_batches = plan(lengths, budget)
    assert sorted(int(i) for rows in micro_batches for i in rows) == list(range(len(sizes)))
    for rows in micro_batches:
        computed = int(lengths[rows].max()) * len(rows)
        assert computed <= budget or len(rows) == 1
        assert 1 - int(lengths[rows].sum()) / computed <= MAX_PADDING + 1e-9
    assert padding_fraction(lengths, micro_batches) <= MAX_PADDING + 1e-9


def test_equal_lengths_fill_the_budget() -> None:
    assert [len(rows) for rows in plan(torch.full((10,), 8), 32)] == [4, 4, 2]


def test_a_sequence_longer_than_the_budget_stands_alone() -> None:
    assert [rows.tolist() for rows in plan(torch.tensor([5, 50, 5]), 10)] == [[1], [0, 2]]


def test_padding_fraction_by_hand() -> None:
    assert padding_fraction(torch.tensor([3, 4, 1]), [torch.tensor([0, 1]), torch.tensor([2])]) == 1 - 8 / 9
    assert padding_fraction(torch.tensor([], dtype=torch.int64), []) == 0.0
