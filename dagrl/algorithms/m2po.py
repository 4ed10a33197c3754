"""M2PO: the second moment of the log-ratio to the sampler, held below a bound by leaving out the largest ratios.

Zheng, Zhao, Chen 2025 (arXiv 2510.01161), algorithm 1. With `l = log π - log π_sampler` of a token and `m = l²`, only
tokens whose ratio a clip could act on are looked at, the trust region: A > 0 and l > 0, or A < 0 and l < 0. The largest
m leave, one by one, until the mean of the rest is at most the threshold. What is left out is chosen once over a whole
optimizer batch, so that micro-batches change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dagrl.algorithms.policy_loss import PolicyLoss, bounded_ratio, plain_ratio_metrics
from dagrl.errors import DagrlError

_AUTHORS_NARROWEST = (math.log(0.7), math.log(1.5))
"""Log-ratios: the clip range of the authors' program is at least this."""
_ASTRAFLOW_WIDEST = (math.log(0.05), math.log(21.0))
"""That of AstraFlow is at most this, also where the second moment is small."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class M2Selection:
    """Which tokens keep their gradient."""

    kept_T: Tensor
    """Bool: false where a token was left out."""
    stand_in_T: Tensor
    """The ratio, without gradient, that a token left out counts with in the loss."""
    metrics: Mapping[str, float]
    """Sums over tokens: `num_m2_masked`, `num_m2_region` and `num_m2_tokens`; `sum_m2_before` over the trust region,
    and `sum_m2_after` over its `num_m2_kept` tokens that are left."""


def m2_selection(log_ratio_T: Tensor, advantages_T: Tensor, mode: str, threshold: float) -> M2Selection:
    """What `mode`, a key of `M2_MODES`, leaves out of a whole optimizer batch; `log_ratio_T` is to the sampler.

    An empty trust region leaves out nothing. Of equal ratios at the bound the first in the stream go first.

    >>> selection = m2_selection(torch.tensor([0.4, 0.2, 0.1, 0.05, -0.3]), torch.ones(5), "paper", 0.04)
    >>> selection.kept_T.tolist()
    [False, True, True, True, True]
    """
    if mode not in M2_MODES:
        raise DagrlError(f"m2_mode is '{mode}'", how=f"use one of {', '.join(M2_MODES)}")
    log_ratio = log_ratio_T.detach().double()
    in_region = ((advantages_T > 0) & (log_ratio > 0)) | ((advantages_T < 0) & (log_ratio < 0))
    moments = log_ratio[in_region].square()
    kept, stand_in = torch.ones_like(in_region), torch.zeros_like(log_ratio)
    if moments.numel():
        kept[in_region], stand_in[in_region] = M2_MODES[mode](log_ratio[in_region], moments, threshold)
    left = log_ratio[in_region & kept].square()
    metrics = {
        "num_m2_tokens": float(kept.numel()),
        "num_m2_region": float(moments.numel()),
        "num_m2_masked": float((~kept).sum()),
        "num_m2_kept": float(left.numel()),
        "sum_m2_before": float(moments.sum()),
        "sum_m2_after": float(left.sum()),
    }
    return M2Selection(kept_T=kept, stand_in_T=stand_in.to(log_ratio_T.dtype), metrics=metrics)


def m2po_loss(
    logprobs_T: Tensor, old_logprobs_T: Tensor, advantages_T: Tensor, kept_T: Tensor, stand_in_T: Tensor
) -> PolicyLoss:
    """`-A r` where a token is kept, `-A · stand_in` without gradient elsewhere; nothing else is clipped.

    The mean is over all tokens, those left out included (eq. 7): `token_weights("token-mean", …)`.
    """
    log_ratio_T = logprobs_T - old_logprobs_T
    loss_T = -advantages_T * torch.where(kept_T, bounded_ratio(log_ratio_T), stand_in_T)
    left_out = ~kept_T
    clips = {
        "num_clipped_low": (left_out & (advantages_T < 0)).double().sum(),
        "num_clipped_high": (left_out & (advantages_T > 0)).double().sum(),
    }
    return PolicyLoss(loss_T=loss_T, metrics=plain_ratio_metrics(log_ratio_T.detach()) | clips)


# The modes: from log-ratios and second moments of the trust region to what is kept and the ratio of the rest


def _paper(log_ratio: Tensor, moments: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Removes the largest until the mean of the rest is at most the threshold, all if need be; they count as 0."""
    largest_first = moments.argsort(descending=True, stable=True)
    fits = _means_from(moments[largest_first]) <= threshold
    num_removed = int(fits.double().argmax()) if bool(fits.any()) else len(moments)
    kept = torch.ones_like(moments, dtype=torch.bool)
    kept[largest_first[:num_removed]] = False
    return kept, torch.zeros_like(moments)


def _authors(log_ratio: Tensor, moments: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Clips at the largest moment that bounds the mean by the threshold if all larger ones count as it."""
    ascending = moments.sort().values
    num_larger = torch.arange(len(moments) - 1, -1, -1)
    fits = ascending.cumsum(0) + num_larger * ascending <= len(moments) * threshold
    bound = float(ascending[fits][-1].sqrt()) if bool(fits.any()) else 0.0
    low, high = _AUTHORS_NARROWEST
    return _clipped(log_ratio, min(-bound, low), max(bound, high))


def _astraflow(log_ratio: Tensor, moments: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Clips at the largest of what `paper` keeps, though the smallest is always kept."""
    descending = moments.sort(descending=True).values
    fits = _means_from(descending) < threshold
    first = int(fits.double().argmax()) if bool(fits.any()) else len(moments) - 1
    bound = math.inf if bool(fits[0]) else float(descending[first].sqrt())
    low, high = _ASTRAFLOW_WIDEST
    return _clipped(log_ratio, max(-bound, low), min(bound, high))


def _clipped(log_ratio: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """PPO's clip, between two log-ratios: in the trust region it takes the gradient of all that is outside."""
    return (log_ratio >= low) & (log_ratio <= high), log_ratio.clamp(low, high).exp()


def _means_from(descending: Tensor) -> Tensor:
    """The mean of each entry and all after it."""
    return descending.flip(0).cumsum(0).flip(0) / torch.arange(len(descending), 0, -1)


M2_MODES: Mapping[str, Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]] = {
    "paper": _paper,
    "authors": _authors,
    "astraflow": _astraflow,
}
"""`paper` is algorithm 1, a mask. The two published programs clip instead, as PPO does, at a bound found from the same
moments: that of the authors, and AstraFlow's (arXiv 2605.15565), whose gradient is that of the mask. Both found it
for each micro-batch; here it is found over the optimizer batch."""
