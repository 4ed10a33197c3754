"""Whitening, normalised advantages, explained variance."""

from __future__ import annotations

import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dagrl.algorithms.masked import ADV_NORMS, explained_variance, normalise_advantages, whiten
from dagrl.errors import DagrlError


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=30))
@settings(deadline=None)
def test_whitening_equals_textbook_moments(numbers: list[int]) -> None:
    found = whiten(torch.tensor(numbers, dtype=torch.float32)).tolist()
    if len(set(numbers)) == 1:
        assert found == [0.0] * len(numbers)
        return
    mean, std = statistics.fmean(numbers), statistics.stdev(numbers)
    assert found == pytest.approx([(number - mean) / std for number in numbers], abs=1e-5)


@pytest.mark.parametrize("numbers", [[0.1] * 7, [3.7], [1e30] * 3, []])
def test_values_without_spread_give_exactly_zero(numbers: list[float]) -> None:
    assert whiten(torch.tensor(numbers)).tolist() == [0.0] * len(numbers)


def test_masked_tokens_do_not_count_and_a_true_zero_does() -> None:
    values = torch.tensor([0.0, 99.0, 2.0, 4.0])
    mask = torch.tensor([True, False, True, True])
    assert whiten(values, mask).tolist() == pytest.approx([-1.0, 0.0, 0.0, 1.0])


def test_empty_mask_gives_zeros() -> None:
    assert whiten(torch.tensor([1.0, 2.0]), torch.zeros(2, dtype=torch.bool)).tolist() == [0.0, 0.0]


def test_whitening_far_from_zero_keeps_its_digits() -> None:
    found = whiten(torch.tensor([1e6, 1e6 + 1, 1e6 + 2]))
    assert found.tolist() == pytest.approx([-1.0, 0.0, 1.0], abs=1e-6)


ADVANTAGES = torch.tensor([1.0, 10.0, 3.0, 30.0, 5.0, 7.0])
AGENTS = torch.tensor([0, 1, 0, 1, 0, 2])


def test_none_leaves_advantages_alone() -> None:
    assert torch.equal(normalise_advantages(ADVANTAGES, AGENTS, "none"), ADVANTAGES)


def test_batch_whitens_all_agents_together() -> None:
    found = normalise_advantages(ADVANTAGES, AGENTS, "batch")
    mean, std = statistics.fmean(ADVANTAGES.tolist()), statistics.stdev(ADVANTAGES.tolist())
    assert found.tolist() == pytest.approx([(a - mean) / std for a in ADVANTAGES.tolist()], abs=1e-6)


def test_agent_whitens_each_alone_and_a_single_token_gives_zero() -> None:
    half = 0.5**0.5
    found = normalise_advantages(ADVANTAGES, AGENTS, "agent")
    assert found.tolist() == pytest.approx([-1.0, -half, 0.0, half, 1.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("mode", ADV_NORMS)
def test_no_tokens_are_no_fault(mode: str) -> None:
    nothing = torch.zeros(0)
    assert normalise_advantages(nothing, nothing.long(), mode).shape == (0,)


def test_unknown_mode_is_refused() -> None:
    with pytest.raises(DagrlError, match="norm_adv is 'bach'"):
        normalise_advantages(ADVANTAGES, AGENTS, "bach")


def test_explained_variance_of_perfect_constant_and_opposite_critics() -> None:
    returns = torch.tensor([0.0, 1.0, 2.0, 5.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(torch.full((4,), 3.0), returns) == pytest.approx(0.0)
    assert explained_variance(-returns, returns) == pytest.approx(-3.0)
    assert explained_variance(returns, torch.ones(4)) == 0.0
    assert explained_variance(torch.zeros(1), torch.ones(1)) == 0.0
