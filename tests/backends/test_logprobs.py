"""Chunked log-probs and entropy against autograd on all logits at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dagrl.backends.logprobs import Head, token_logprobs

HEADS = {
    "plain": {},
    "bias": {"bias": True},
    "softcap": {"softcap": 2.0},
    "scaled": {"scale": 0.3},
    "all": {"bias": True, "softcap": 1.5, "scale": 1.7},
}


def _inputs(bias: bool = False, **head: float) -> tuple[Tensor, Head, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(11, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(9, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    offset = torch.randn(9, generator=generator, dtype=torch.float64, requires_grad=True) if bias else None
    targets = torch.randint(0, 9, (11,), generator=generator)
    temperatures = 0.4 + torch.rand(11, generator=generator, dtype=torch.float64)
    return hidden, Head(weight=weight, bias=offset, **head), targets, temperatures


def _naive(hidden: Tensor, head: Head, targets: Tensor, temperatures: Tensor) -> tuple[Tensor, Tensor]:
    logits = hidden @ head.weight.T
    if head.bias is not None:
        logits = logits + head.bias
    logits = logits * head.scale
    if head.softcap is not None:
        logits = head.softcap * torch.tanh(logits / head.softcap)
    distribution = torch.distributions.Categorical(logits=logits / temperatures[:, None])
    return distribution.log_prob(targets), distribution.entropy()


@pytest.mark.parametrize("chunk_tokens", [1, 4, 100])
@pytest.mark.parametrize("kind", HEADS)
def test_values_and_gradients_equal_autograd_on_all_logits(kind: str, chunk_tokens: int) -> None:
    hidden, head, targets, temperatures = _inputs(**HEADS[kind])
    leaves = [tensor for tensor in (hidden, head.weight, head.bias) if tensor is not None]
    weights = torch.linspace(-1, 1, 11, dtype=torch.float64)
    got = token_logprobs(hidden, head, targets, temperatures, chunk_tokens=chunk_tokens, entropy_gradient=True)
    expected = _naive(hidden, head, targets, temperatures)
    torch.testing.assert_close(got, expected)
    got_gradients = torch.autograd.grad((got[0] * weights).sum() + (got[1] * weights.cos()).sum(), leaves)
    gradients = torch.autograd.grad((expected[0] * weights).sum() + (expected[1] * weights.cos()).sum(), leaves)
    torch.testing.assert_close(got_gradients, gradients)


def test_entropy_carries_no_gradient_unless_asked_for() -> None:
    hidden, head, targets, temperatures = _inputs()
    logprobs, entropy = token_logprobs(hidden, head, targets, temperatures, chunk_tokens=4)
    assert logprobs.requires_grad and not entropy.requires_grad


def test_bfloat16_weights_get_a_float32_softmax() -> None:
    hidden, head, targets, temperatures = _inputs()
    low = Head(weight=head.weight.detach().bfloat16())
    logprobs, entropy = token_logprobs(hidden.detach().bfloat16(), low, targets, temperatures, chunk_tokens=4)
    logits = (hidden.detach().bfloat16() @ low.weight.T).float() / temperatures[:, None].float()
    assert logprobs.dtype == entropy.dtype == torch.float32
    torch.testing.assert_close(logprobs, torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0])


def test_no_tokens_give_nothing() -> None:
    _, head, _, _ = _inputs()
    empty = torch.zeros(0, 6, dtype=torch.float64, requires_grad=True)
    logprobs, _ = token_logprobs(empty, head, torch.zeros(0, dtype=torch.int64), torch.zeros(0), chunk_tokens=4)
    logprobs.sum().backward()
    assert logprobs.shape == (0,)
