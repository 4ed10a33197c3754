"""Turn-level sums and means."""

from __future__ import annotations

import pytest
import torch

from dagrl.algorithms.segments import last_token_of_turn, mean_per_turn, sum_per_turn, token_to_turn

LENS = torch.tensor([2, 0, 3, 0])
VALUES = torch.tensor([1.0, 2.0, 3.0, 4.0, 8.0])


def test_each_token_knows_its_turn() -> None:
    assert token_to_turn(LENS).tolist() == [0, 0, 2, 2, 2]


def test_last_tokens_are_those_of_turns_that_are_not_empty() -> None:
    assert last_token_of_turn(LENS).tolist() == [1, 4]


def test_sums_and_means_give_zero_for_empty_turns() -> None:
    assert sum_per_turn(VALUES, LENS).tolist() == [3.0, 0.0, 15.0, 0.0]
    assert mean_per_turn(VALUES, LENS).tolist() == [1.5, 0.0, 5.0, 0.0]


def test_sum_of_a_long_turn_is_rounded_once() -> None:
    values = torch.full((200_000,), 0.1)
    total = sum_per_turn(values, torch.tensor([200_000]))
    assert total.dtype == torch.float32
    assert float(total) == pytest.approx(200_000 * float(values[0]), rel=1e-7)


def test_gradient_of_a_mean_is_one_over_the_length() -> None:
    values = VALUES.clone().requires_grad_()
    mean_per_turn(values, LENS).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([1 / 2] * 2 + [1 / 3] * 3)
