"""Draws: the right distribution, a function of seed and position alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dagrl.backends.sampling import row_key, row_params, sample, uniforms
from dagrl.types import SamplingParams

CPU = torch.device("cpu")
PROBS = torch.tensor([0.4, 0.05, 0.25, 0.0, 0.2, 0.1])
CHI_SQUARE_99_9 = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47}
"""Upper 0.1 % points by degrees of freedom."""


def _counts(params: SamplingParams, num: int = 20000) -> np.ndarray:
    keys = np.array([row_key(seed) for seed in range(num)], dtype=np.uint64)
    draws = uniforms(keys, np.full(num, 7))
    tokens, _ = sample(PROBS.log().expand(num, -1), row_params([params] * num, CPU), draws)
    return np.bincount(tokens.numpy(), minlength=len(PROBS))


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(), [0.4, 0.05, 0.25, 0.0, 0.2, 0.1]),
        (SamplingParams(temperature=0.5), [0.16, 0.0025, 0.0625, 0.0, 0.04, 0.01]),
        (SamplingParams(top_k=2), [0.4, 0.0, 0.25, 0.0, 0.0, 0.0]),
        (SamplingParams(top_p=0.7), [0.4, 0.0, 0.25, 0.0, 0.2, 0.0]),
        (SamplingParams(min_p=0.3), [0.4, 0.0, 0.25, 0.0, 0.2, 0.0]),
        (SamplingParams(top_k=4, top_p=0.7), [0.4, 0.0, 0.25, 0.0, 0.2, 0.0]),
        (SamplingParams(top_p=0.05), [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_draws_follow_the_distribution(params: SamplingParams, expected: list[float]) -> None:
    counts = _counts(params)
    share = np.array(expected) / sum(expected)
    assert (counts[share == 0] == 0).all()
    kept = share > 0
    statistic = float(((counts - share * counts.sum())[kept] ** 2 / (share * counts.sum())[kept]).sum())
    assert kept.sum() == 1 or statistic < CHI_SQUARE_99_9[int(kept.sum()) - 1]


def test_draws_of_one_seed_at_successive_positions_are_uniform_and_uncorrelated() -> None:
    draws = uniforms(np.full(20000, row_key(5), dtype=np.uint64), np.arange(20000))
    assert draws.min() >= 0.0 and draws.max() < 1.0
    counts = np.histogram(draws, bins=5, range=(0, 1))[0]
    assert float(((counts - 4000) ** 2 / 4000).sum()) < CHI_SQUARE_99_9[4]
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.03


def test_splitmix64_gives_the_published_numbers() -> None:
    """First outputs of SplitMix64 seeded with 1234567, as in Vigna's reference code and its many ports."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    draws = uniforms(np.full(3, 1234567, dtype=np.uint64), np.arange(3))
    assert draws.tolist() == [(number >> 11) * 2.0**-53 for number in published]


def test_a_row_does_not_depend_on_its_company() -> None:
    logits = torch.randn(5, 30, generator=torch.Generator().manual_seed(0))
    kinds = [SamplingParams(), SamplingParams(top_p=0.5), SamplingParams(temperature=0.0), SamplingParams(top_k=3)]
    rows = [*kinds, SamplingParams(temperature=2.0, min_p=0.2)]
    draws = np.array([0.1, 0.9, 0.5, 0.99, 0.3])
    tokens, logprobs = sample(logits, row_params(rows, CPU), draws)
    for row, params in enumerate(rows):
        alone = sample(logits[row : row + 1], row_params([params], CPU), draws[row : row + 1])
        assert alone[0][0] == tokens[row] and alone[1][0] == logprobs[row]


def test_logprobs_are_of_the_tempered_distribution_before_filters_and_of_the_plain_one_where_greedy() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5]])
    token, logprob = sample(logits, row_params([SamplingParams(temperature=0.5, top_k=1)], CPU), np.array([0.7]))
    assert token.item() == 1
    assert logprob.item() == pytest.approx(torch.log_softmax(logits[0] / 0.5, 0)[1].item())
    _, greedy = sample(logits, row_params([SamplingParams(temperature=0.0)], CPU), np.array([0.7]))
    assert greedy.item() == pytest.approx(torch.log_softmax(logits[0], 0)[1].item())


def test_the_last_draw_never_falls_on_a_token_without_probability() -> None:
    logits = torch.tensor([[0.0, 0.0, float("-inf")]]).log_softmax(-1)
    token, _ = sample(logits, row_params([SamplingParams()], CPU), np.array([1.0 - 2.0**-53]))
    assert token.item() == 1
