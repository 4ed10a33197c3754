"""The factor for agents that are updated after others."""

from __future__ import annotations

import math

import pytest
import torch

from dagrl.algorithms.importance import sequential_factor
from dagrl.algorithms.layout import TurnLayout
from dagrl.errors import DagrlError

LAYOUT = TurnLayout(
    response_lens=torch.tensor([2, 1, 1, 0, 2, 1, 1]),
    trajectory=torch.tensor([0, 0, 0, 0, 0, 1, 1]),
    round=torch.tensor([0, 0, 0, 1, 1, 1, 1]),
    agent_group=torch.tensor([0, 1, 2, 0, 1, 0, 1]),
)
OLD = torch.tensor([-1.0, -2.0, -0.5, -1.5, -0.7, -0.2, -3.0, -1.0])
LOG_RATIOS = torch.tensor([0.1, 0.2, -0.4, 9.0, 0.05, 0.05, 3.0, 0.5])


def factor(updated: list[int], cap: float = 10.0) -> list[float]:
    return sequential_factor(OLD + LOG_RATIOS, OLD, LAYOUT, updated, cap).tolist()


def test_before_any_update_every_factor_is_exactly_one() -> None:
    assert factor([]) == [1.0] * 7


def test_factor_is_the_ratio_of_the_whole_responses_of_the_round() -> None:
    first = math.exp(0.3)
    assert factor([0]) == pytest.approx([first, first, first, 1.0, 1.0, 10.0, 10.0], rel=1e-5)


def test_factors_of_several_updated_agents_multiply() -> None:
    expected = [math.exp(-0.1)] * 3 + [math.exp(0.1)] * 2 + [10.0] * 2
    assert factor([1, 0]) == pytest.approx(expected, rel=1e-5)


def test_factor_stays_within_the_cap_on_both_sides() -> None:
    assert factor([0], cap=1.2) == pytest.approx([1.2] * 3 + [1.0] * 2 + [1.2] * 2)
    assert factor([1], cap=1.2)[0] == pytest.approx(1 / 1.2)


def test_tokens_of_agents_not_updated_are_not_read() -> None:
    new = OLD + LOG_RATIOS
    new[[2, 3, 4, 5, 7]] = float("nan")
    assert sequential_factor(new, OLD, LAYOUT, [0], 10.0).tolist() == factor([0])


def test_factor_carries_no_gradient() -> None:
    new = (OLD + LOG_RATIOS).requires_grad_()
    assert not sequential_factor(new, OLD, LAYOUT, [0], 10.0).requires_grad


def test_absurd_ratios_end_at_the_cap() -> None:
    huge = sequential_factor(OLD + 5000.0, OLD, LAYOUT, [0, 1], 10.0)
    assert huge.tolist() == pytest.approx([10.0] * 7)


def test_faults_are_named() -> None:
    with pytest.raises(DagrlError, match="cap"):
        factor([0], cap=0.5)
    with pytest.raises(DagrlError, match="new logprobs"):
        sequential_factor(OLD[1:], OLD, LAYOUT, [0], 10.0)
