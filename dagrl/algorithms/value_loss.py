"""Clipped value loss of the critic, squared or Huber.

Clipping: Schulman et al.'s PPO implementation (arXiv 2005.12729, section 2). Huber: MARFT (arXiv 2504.16129).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dagrl.errors import DagrlError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueLoss:
    """Loss of each token and what happened in it."""

    loss_T: Tensor
    """To be minimised, `[T]`, not yet weighted; carries the gradient."""
    metrics: Mapping[str, Tensor]
    """Sums over tokens, 0-dim float64, detached: `num_tokens`, `num_clipped` (tokens where the clipped value
    is the worse one: they have no gradient), `sum_squared_error`."""


def value_loss(
    values_T: Tensor,
    old_values_T: Tensor,
    returns_T: Tensor,
    *,
    clip: float | None = None,
    huber_delta: float | None = None,
) -> ValueLoss:
    """`max(h(v - R), h(clip(v, old - clip, old + clip) - R))` with h(e) = e^2 / 2.

    `huber_delta` d makes h linear beyond d: `d (|e| - d / 2)`. `clip` None takes the first term alone.
    """
    for name, number in (("value clip", clip), ("huber_delta", huber_delta)):
        if number is not None and number <= 0.0:
            raise DagrlError(f"{name} is {number}", how="give a number above 0, or nothing for none")
    errors_T = values_T - returns_T
    loss_T = _half_square(errors_T, huber_delta)
    is_clipped_T = torch.zeros_like(loss_T, dtype=torch.bool)
    if clip is not None:
        clipped_values_T = values_T.clamp(old_values_T - clip, old_values_T + clip)
        clipped_loss_T = _half_square(clipped_values_T - returns_T, huber_delta)
        is_clipped_T = clipped_loss_T > loss_T
        loss_T = torch.maximum(loss_T, clipped_loss_T)
    metrics = {
        "num_tokens": torch.ones_like(loss_T).double().sum(),
        "num_clipped": is_clipped_T.double().sum(),
        "sum_squared_error": errors_T.detach().double().square().sum(),
    }
    return ValueLoss(loss_T=loss_T, metrics=metrics)


def _half_square(errors: Tensor, huber_delta: float | None) -> Tensor:
    if huber_delta is None:
        return 0.5 * errors.square()
    inside = errors.clamp(-huber_delta, huber_delta)
    return inside * (errors - 0.5 * inside)
