"""KL estimates: values, expectations, gradients; the controllers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dagrl.algorithms.kl import KL_ALIASES, KL_KINDS, AdaptiveKL, FixedKL, kl_estimate
from dagrl.errors import DagrlError

LOGITS = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64)
REFERENCE = torch.tensor([-0.2, 0.4, 0.5, 0.0], dtype=torch.float64).log_softmax(0)


def expected_estimate(logits: Tensor, kind: str) -> Tensor:
    """Mean over tokens drawn from the policy; the drawing itself carries no gradient."""
    logprobs = logits.log_softmax(0)
    return (logprobs.detach().exp() * kl_estimate(logprobs, REFERENCE, kind)).sum()


@pytest.mark.parametrize("log_ratio", [-1.5, -0.1, 0.0, 0.2, 2.0])
def test_values_follow_the_formulas(log_ratio: float) -> None:
    expected = {
        "k1": log_ratio,
        "k2": log_ratio**2 / 2,
        "k3": math.exp(-log_ratio) - 1 + log_ratio,
        "abs": abs(log_ratio),
    }
    for kind in KL_KINDS:
        found = kl_estimate(torch.tensor(-2.0 + log_ratio), torch.tensor(-2.0), kind)
        assert float(found) == pytest.approx(expected[kind], abs=1e-6)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_mean_of_k1_and_k3_is_the_divergence(kind: str) -> None:
    logprobs = LOGITS.log_softmax(0)
    divergence = (logprobs.exp() * (logprobs - REFERENCE)).sum()
    assert float(expected_estimate(LOGITS, kind)) == pytest.approx(float(divergence), abs=1e-12)


def gradient(function: Tensor, logits: Tensor) -> list[float]:
    return torch.autograd.grad(function, logits, retain_graph=True)[0].tolist()


def test_mean_gradients_are_those_the_docstring_promises() -> None:
    logits = LOGITS.clone().requires_grad_()
    logprobs = logits.log_softmax(0)
    to_reference = (logprobs.exp() * (logprobs - REFERENCE)).sum()
    from_reference = (REFERENCE.exp() * (REFERENCE - logprobs)).sum()
    expected = {
        "k1": [0.0] * 4,
        "k2": gradient(to_reference, logits),
        "k3": gradient(from_reference, logits),
    }
    for kind, numbers in expected.items():
        assert gradient(expected_estimate(logits, kind), logits) == pytest.approx(numbers, abs=1e-12)


@pytest.mark.parametrize("log_ratio", [-1e4, -100.0, 100.0, 1e4])
def test_k3_and_its_gradient_stay_finite(log_ratio: float) -> None:
    logprobs = torch.tensor([log_ratio], requires_grad=True)
    estimate = kl_estimate(logprobs, torch.zeros(1), "k3")
    estimate.sum().backward()
    assert logprobs.grad is not None
    assert torch.isfinite(estimate).all() and torch.isfinite(logprobs.grad).all()


def test_k3_of_tiny_differences_is_not_lost_in_rounding() -> None:
    found = kl_estimate(torch.tensor(1e-3), torch.tensor(0.0), "k3")
    assert float(found) == pytest.approx(5e-7, rel=1e-2)


def test_other_engines_words_mean_the_same() -> None:
    logprobs, reference = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0])
    for alias, kind in KL_ALIASES.items():
        assert torch.equal(kl_estimate(logprobs, reference, alias), kl_estimate(logprobs, reference, kind))


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(DagrlError, match="KL kind is 'k4'"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")


def test_fixed_coefficient_stays() -> None:
    controller = FixedKL(0.1)
    controller.update(5.0, 100)
    controller.load_state_dict(controller.state_dict())
    assert controller.coef == 0.1


def test_adaptive_coefficient_follows_its_equation() -> None:
    controller = AdaptiveKL(0.1, target=2.0, horizon=100.0)
    controller.update(2.2, 10)  # error 0.1
    assert controller.coef == pytest.approx(0.1 * 1.01)
    controller.update(40.0, 10)  # error clipped to 0.2
    assert controller.coef == pytest.approx(0.1 * 1.01 * 1.02)
    controller.update(0.0, 10)  # error clipped to -0.2
    assert controller.coef == pytest.approx(0.1 * 1.01 * 1.02 * 0.98)


def test_adaptive_coefficient_comes_back_from_its_state() -> None:
    controller, other = (AdaptiveKL(coef, target=1.0, horizon=50.0) for coef in (0.1, 0.7))
    controller.update(3.0, 5)
    other.load_state_dict(controller.state_dict())
    assert other.coef == controller.coef


def test_adaptive_settings_without_sense_are_refused() -> None:
    with pytest.raises(DagrlError, match="target 0"):
        AdaptiveKL(0.1, target=0.0, horizon=10.0)
    with pytest.raises(DagrlError, match="horizon 10"):
        AdaptiveKL(0.1, target=1.0, horizon=10.0).update(0.0, 50)
