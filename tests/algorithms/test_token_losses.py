"""CISPO, CPGD, SAPO, GSPO and the corrections for another sampler against numbers worked by hand, and autograd."""

from __future__ import annotations

import math

import pytest
import torch

from dagrl.algorithms import POLICY_LOSSES, Clip, correction_weights, gspo_loss
from dagrl.errors import DagrlError

OLD = -1.0
CLIP = Clip(low=0.2, high=0.28, dual=3.0)
BY_HAND = {
    "ppo": (-1.28, 1.5, -0.6, 0.8),
    "cispo": (0.761005, -0.761005, 1.208660, -1.208660),
    "cpgd": (0.753140, -0.594535, 1.510826, -1.223144),
    "sapo": (-2.489837, 2.393585, -1.605249, 1.510540),
}
"""Ratio and advantage (1.5, 1), (1.5, -1), (0.6, 1), (0.6, -1), at an old log-prob of -1."""
RATIOS, ADVANTAGES = [1.5, 1.5, 0.6, 0.6], [1.0, -1.0, 1.0, -1.0]


@pytest.mark.parametrize("name", BY_HAND)
def test_a_loss_has_the_value_worked_by_hand(name: str) -> None:
    logprobs = OLD + torch.tensor(RATIOS).log()
    loss = POLICY_LOSSES[name](logprobs, torch.full((4,), OLD), torch.tensor(ADVANTAGES), CLIP)
    assert loss.loss_T.tolist() == pytest.approx(BY_HAND[name], abs=2e-6)


def gradients(name: str) -> list[float]:
    logprobs = (OLD + torch.tensor(RATIOS).log()).requires_grad_()
    POLICY_LOSSES[name](logprobs, torch.full((4,), OLD), torch.tensor(ADVANTAGES), CLIP).loss_T.sum().backward()
    assert logprobs.grad is not None
    return logprobs.grad.tolist()


def test_cispo_keeps_a_gradient_on_every_token_with_a_clipped_weight() -> None:
    assert gradients("cispo") == pytest.approx([-1.28, 1.28, -0.8, 0.8], abs=1e-6)


def test_cpgd_stops_where_the_log_prob_is_past_its_bound() -> None:
    assert gradients("cpgd") == pytest.approx([0.0, 1.0, -1.0, 0.0], abs=1e-6)


def test_sapo_has_the_slope_of_its_gate() -> None:
    def slope(ratio: float, advantage: float) -> float:
        tau = 1.0 if advantage > 0 else 1.05
        gate = 1.0 / (1.0 + math.exp(-tau * (ratio - 1.0)))
        return -advantage * 4.0 * gate * (1.0 - gate) * ratio

    assert gradients("sapo") == pytest.approx([slope(*pair) for pair in zip(RATIOS, ADVANTAGES)], abs=1e-6)


def test_gspo_clips_the_geometric_mean_of_a_response() -> None:
    lens = torch.tensor([2, 1])
    logprobs = (OLD + torch.tensor([2.0, 0.5, 1.1]).log()).requires_grad_()
    advantages = torch.tensor([1.0, 1.0, 1.0])
    loss = gspo_loss(logprobs, torch.full((3,), OLD), advantages, lens, Clip(low=3e-4, high=4e-4))
    loss.loss_T.sum().backward()
    # The ratio of the first response is sqrt(2 · 0.5) = 1, inside the clip; that of the second, 1.1, is clipped.
    assert loss.loss_T.tolist() == pytest.approx([0.0, -1.0, -1.0004], abs=1e-6)
    assert logprobs.grad is not None and logprobs.grad.tolist() == pytest.approx([-0.5, -0.5, 0.0], abs=1e-6)


def test_decoupled_ppo_keeps_the_whole_weight() -> None:
    weights = torch.tensor([0.3, 4.0])
    assert torch.allclose(correction_weights("decoupled", weights.log(), 2.0), weights)


def test_a_weight_carries_no_gradient() -> None:
    log_weights = torch.zeros(3, requires_grad=True)
    assert not correction_weights("tis", log_weights, 2.0).requires_grad


@pytest.mark.parametrize(("kind", "cap"), [("tis", 1.0), ("best", 2.0)])
def test_what_cannot_be_is_refused(kind: str, cap: float) -> None:
    with pytest.raises(DagrlError):
        correction_weights(kind, torch.zeros(1), cap)
