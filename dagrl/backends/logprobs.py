"""Log-probs and entropy from hidden states and the language model's head, a chunk of tokens at a time.

The logits of a chunk exist only while it is worked on; the backward pass computes them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """From hidden states [.., d] to logits [.., V]: softcap · tanh(scale · (W h + b) / softcap)."""

    weight: Tensor
    """[V, d]; the embedding itself where they are tied."""
    bias: Tensor | None = None
    """[V]."""
    scale: float = 1.0
    """Cohere's `logit_scale`, or 1 over Granite's `logits_scaling`."""
    softcap: float | None = None
    """Gemma's `final_logit_softcapping`; None without one."""

    def logits(self, hidden: Tensor) -> Tensor:
        """[.., V] in float32 (float64 for float64 weights), before temperature."""
        logits = functional.linear(hidden, self.weight, self.bias).to(_compute_dtype(self.weight))
        if self.scale != 1.0:
            logits = logits * self.scale
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        return logits


def token_logprobs(
    hidden: Tensor,
    head: Head,
    targets: Tensor,
    temperatures: Tensor,
    *,
    chunk_tokens: int,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """([M] log-prob of `targets`, [M] entropy in nats) of softmax(logits / temperature), both float32.

    `hidden` [M, d], `targets` [M] int64, `temperatures` [M] positive. Gradients go to `hidden` and the head's weight
    and bias; those of the entropy only if `entropy_gradient`. At most `chunk_tokens` rows of logits exist at once.
    """
    settings = _Settings(head.scale, head.softcap, chunk_tokens, entropy_gradient)
    logprobs, entropy = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden, head.weight, head.bias, targets, temperatures.to(_compute_dtype(hidden)), settings
    )
    return logprobs, entropy


@dataclass(frozen=True, slots=True)
class _Settings:
    scale: float
    softcap: float | None
    chunk_tokens: int
    entropy_gradient: bool


class _TokenLogprobs(torch.autograd.Function):
    """With l = logits / T and p = softmax(l): d logprob / dl = 1[target] - p; d entropy / dl = -p (log p + H)."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperatures: Tensor,
        settings: _Settings,
    ) -> tuple[Tensor, Tensor]:
        head = Head(weight=weight, bias=bias, scale=settings.scale, softcap=settings.softcap)
        logprobs, entropy = torch.empty_like(temperatures), torch.empty_like(temperatures)
        for rows in _chunks(len(targets), settings.chunk_tokens):
            logp = torch.log_softmax(head.logits(hidden[rows]).div_(temperatures[rows, None]), dim=-1)
            logprobs[rows] = logp.gather(1, targets[rows, None]).squeeze(1)
            entropy[rows] = -(logp.exp() * logp).sum(-1)
        ctx.settings = settings
        ctx.save_for_backward(hidden, weight, bias, targets, temperatures, entropy)
        if not settings.entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, temperatures, entropy = ctx.saved_tensors
        head = Head(weight=weight, bias=bias, scale=ctx.settings.scale, softcap=ctx.settings.softcap)
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        hidden_gradient = torch.empty_like(hidden) if needs_hidden else None
        weight_gradient = torch.zeros_like(weight, dtype=temperatures.dtype) if needs_weight else None
        bias_gradient = torch.zeros_like(bias, dtype=temperatures.dtype) if needs_bias else None
        entropy_gradient = gradients[1] if ctx.settings.entropy_gradient else None
        for rows in _chunks(len(targets), ctx.settings.chunk_tokens):
            logits = head.logits(hidden[rows])
            toward = _logit_gradient(logits, targets[rows], temperatures[rows], gradients[0][rows])
            if entropy_gradient is not None:
                toward += _entropy_gradient(logits, temperatures[rows], entropy[rows], entropy_gradient[rows])
            toward = _through_head(toward, logits, temperatures[rows], head)
            if bias_gradient is not None:
                bias_gradient += toward.sum(0)
            toward = toward.to(weight.dtype)
            if hidden_gradient is not None:
                hidden_gradient[rows] = toward @ weight
            if weight_gradient is not None:
                weight_gradient += toward.T @ hidden[rows]
        return hidden_gradient, _cast(weight_gradient, weight), _cast(bias_gradient, bias), None, None, None


def _logit_gradient(logits: Tensor, targets: Tensor, temperatures: Tensor, incoming: Tensor) -> Tensor:
    """[C, V]: gradient of the log-probs with respect to logits / T."""
    toward = torch.softmax(logits / temperatures[:, None], dim=-1).mul_(-incoming[:, None])
    return toward.scatter_add_(1, targets[:, None], incoming[:, None])


def _entropy_gradient(logits: Tensor, temperatures: Tensor, entropy: Tensor, incoming: Tensor) -> Tensor:
    """[C, V]: gradient of the entropy with respect to logits / T."""
    logp = torch.log_softmax(logits / temperatures[:, None], dim=-1)
    return -incoming[:, None] * logp.exp() * (logp + entropy[:, None])


def _through_head(toward: Tensor, logits: Tensor, temperatures: Tensor, head: Head) -> Tensor:
    """From the gradient with respect to logits / T to that with respect to W h + b."""
    toward = toward / temperatures[:, None]
    if head.softcap is not None:
        toward = toward * (1.0 - (logits / head.softcap) ** 2)
    return toward * head.scale if head.scale != 1.0 else toward


def _chunks(length: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def _compute_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _cast(gradient: Tensor | None, like: Tensor | None) -> Tensor | None:
    return None if gradient is None or like is None else gradient.to(like.dtype)
