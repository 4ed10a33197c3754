"""Weights for tokens that another policy sampled than the one that training starts from.

The sampler's kernels, its precision or its age make `π_rollout` differ from `π_old`, the trainer's before the update.
The weight of a token is built from `w = π_old / π_rollout`, without gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from dagrl.algorithms.kl import MAX_LOG_RATIO
from dagrl.errors import DagrlError


def correction_weights(kind: str, log_weights_T: Tensor, cap: float) -> Tensor:
    """Weight of each token's policy loss, `[T]` float32, from `log w = log π_old - log π_rollout`.

    `kind` is a key of `ROLLOUT_CORRECTIONS`, `cap` above 1.

    Four tokens, w = 0.3, 0.9, 1.5 and 4, with a cap of 2:

    >>> w = torch.tensor([0.3, 0.9, 1.5, 4.0]).log()
    >>> correction_weights("tis", w, 2.0)
    tensor([0.3000, 0.9000, 1.5000, 2.0000])
    >>> correction_weights("mis", w, 2.0)
    tensor([0.0000, 0.9000, 1.5000, 0.0000])
    """
    if kind not in ROLLOUT_CORRECTIONS:
        raise DagrlError(f"rollout_correction is '{kind}'", how=f"use one of {', '.join(ROLLOUT_CORRECTIONS)}")
    if cap <= 1.0:
        raise DagrlError(f"the cap of a rollout correction is {cap}", how="give a number above 1")
    log_weight = log_weights_T.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return ROLLOUT_CORRECTIONS[kind](log_weight.exp(), cap)


def _truncated(weights_T: Tensor, cap: float) -> Tensor:
    return weights_T.clamp(max=cap)


def _masked(weights_T: Tensor, cap: float) -> Tensor:
    return torch.where((weights_T >= 1.0 / cap) & (weights_T <= cap), weights_T, 0.0)


def _whole(weights_T: Tensor, cap: float) -> Tensor:
    return weights_T


ROLLOUT_CORRECTIONS: Mapping[str, Callable[[Tensor, float], Tensor]] = {
    "tis": _truncated,
    "mis": _masked,
    "decoupled": _whole,
}
"""tis: `min(w, cap)` (Yao et al. 2025, truncated importance sampling); mis: 0 outside `[1 / cap, cap]` (masked, as in
IcePop); decoupled: w itself, the behaviour weight of decoupled PPO (Hilton et al. 2021, arXiv 2110.00641, eq. 2)."""
