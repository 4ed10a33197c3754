"""Loss weights against the plain definition of each mode."""

from __future__ import annotations

import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dagrl.algorithms.aggregate import LOSS_AGG_MODES, action_weights, token_weights
from dagrl.errors import DagrlError

HORIZON = 16


def plain_loss(mode: str, sequences: list[list[float]]) -> float:
    return {
        "token-mean": lambda: statistics.fmean(loss for sequence in sequences for loss in sequence),
        "seq-mean-token-sum": lambda: statistics.fmean(sum(sequence) for sequence in sequences),
        "seq-mean-token-mean": lambda: statistics.fmean(statistics.fmean(sequence) for sequence in sequences),
        "seq-mean-token-sum-norm": lambda: statistics.fmean(sum(sequence) / HORIZON for sequence in sequences),
    }[mode]()


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@given(st.lists(st.lists(st.floats(-3, 3), max_size=6), max_size=8))
@settings(deadline=None)
def test_weighted_sum_is_the_mode_over_turns_that_spoke(mode: str, turns: list[list[float]]) -> None:
    losses = torch.tensor([loss for turn in turns for loss in turn])
    weights = token_weights(mode, torch.tensor([len(turn) for turn in turns], dtype=torch.int64), horizon=HORIZON)
    assert weights.shape == losses.shape and weights.dtype == torch.float32
    spoken = [turn for turn in turns if turn]
    expected = plain_loss(mode, spoken) if spoken else 0.0
    assert float((weights * losses).sum()) == pytest.approx(expected, abs=1e-4)


@given(st.lists(st.integers(0, 5), max_size=8))
@settings(deadline=None)
def test_action_weights_are_the_mean_over_turns_at_their_last_tokens(lens: list[int]) -> None:
    weights = action_weights(torch.tensor(lens, dtype=torch.int64)).tolist()
    spoken = [length for length in lens if length > 0]
    expected = [value for length in spoken for value in [0.0] * (length - 1) + [1 / len(spoken)]]
    assert weights == pytest.approx(expected)


@pytest.mark.parametrize("horizon", [None, 0])
def test_norm_mode_needs_its_horizon(horizon: int | None) -> None:
    with pytest.raises(DagrlError, match="horizon"):
        token_weights("seq-mean-token-sum-norm", torch.tensor([2]), horizon=horizon)


def test_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DagrlError, match="token-mean"):
        token_weights("mean", torch.tensor([2]))
