"""Moments over a whole batch of tokens in float64: whitening, normalised advantages, explained variance."""

from __future__ import annotations

import torch
from torch import Tensor

from dagrl.errors import DagrlError

ADV_NORMS = ("none", "batch", "agent")
"""What advantages are normalised over: nothing, all tokens of the batch, the tokens of each agent."""


def whiten(values_T: Tensor, mask_T: Tensor | None = None, eps: float = 1e-8) -> Tensor:
    """`(x - mean) / (std + eps)` with the sample standard deviation, `[T]` float32.

    Moments are over the tokens where `mask_T` (bool) is true, all if it is None; the others get 0. Fewer than
    two tokens, or tokens that are all equal, give exactly 0.
    """
    chosen = values_T if mask_T is None else values_T[mask_T]
    whitened = _whiten_all(chosen.double(), eps).float()
    if mask_T is None:
        return whitened
    result_T = torch.zeros_like(values_T, dtype=torch.float32)
    result_T[mask_T] = whitened
    return result_T


def normalise_advantages(advantages_T: Tensor, agent_of_token_T: Tensor, mode: str) -> Tensor:
    """Advantages as they are (`none`), or whitened over the `batch` or over each `agent`, `[T]` float32.

    A group of one token, or of equal advantages, gives exactly 0.
    """
    if mode == "none":
        return advantages_T.float()
    if mode == "batch":
        return whiten(advantages_T)
    if mode == "agent":
        result_T = torch.zeros_like(advantages_T, dtype=torch.float32)
        for agent in agent_of_token_T.bincount().nonzero().flatten().tolist():
            is_agent = agent_of_token_T == agent
            result_T[is_agent] = whiten(advantages_T[is_agent])
        return result_T
    raise DagrlError(f"norm_adv is '{mode}'", how=f"use one of {', '.join(ADV_NORMS)}")


def explained_variance(values_T: Tensor, returns_T: Tensor) -> float:
    """`1 - var(returns - values) / var(returns)`: 1 is a perfect critic, 0 no better than a constant.

    Returns that do not vary (or fewer than two) leave nothing to explain: 0.
    """
    if _is_constant(returns_T):
        return 0.0
    returns = returns_T.double()
    return float(1.0 - (returns - values_T.double()).var() / returns.var())


def _whiten_all(values: Tensor, eps: float) -> Tensor:
    if _is_constant(values):
        return torch.zeros_like(values)
    return (values - values.mean()) / (values.std() + eps)


def _is_constant(values: Tensor) -> bool:
    """Compares the values themselves: the floating-point mean of equal values need not be equal to them."""
    return values.numel() < 2 or bool((values == values[0]).all())
