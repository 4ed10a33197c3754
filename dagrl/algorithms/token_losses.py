"""Policy losses beside PPO's: CISPO, CPGD and SAPO token by token, GSPO response by response.

All take the clip range of `Clip` where they have one and report what `ppo_loss` reports.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dagrl.algorithms.policy_loss import Clip, PolicyLoss, action_ppo_loss, bounded_ratio, ratio_metrics

_TAU_POSITIVE, _TAU_NEGATIVE = 1.0, 1.05
"""Temperatures of SAPO's gate by the advantage's sign (arXiv 2511.20347)."""


def cispo_loss(logprobs_T: Tensor, old_logprobs_T: Tensor, advantages_T: Tensor, clip: Clip) -> PolicyLoss:
    """`-sg[clip(r, 1 - low, 1 + high)] A log π`: every token keeps a gradient, its weight is clipped.

    CISPO, MiniMax-M1 (arXiv 2506.13585), eq. 4 and 5.
    """
    log_ratio_T = (logprobs_T - old_logprobs_T).detach()
    weight_T = bounded_ratio(log_ratio_T).clamp(1.0 - clip.low, 1.0 + clip.high)
    loss_T = -weight_T * advantages_T * logprobs_T
    return PolicyLoss(loss_T=loss_T, metrics=ratio_metrics(log_ratio_T, advantages_T, clip))


def cpgd_loss(logprobs_T: Tensor, old_logprobs_T: Tensor, advantages_T: Tensor, clip: Clip) -> PolicyLoss:
    """`-A min(log π, log π_old + log(1 + high))`, and the mirror image with `1 - low` where A < 0.

    CPGD (arXiv 2505.12504): the ratio is clipped but no factor of the loss. Its drift term is `use_kl_loss`.
    """
    ceiling_T = old_logprobs_T + torch.log1p(torch.tensor(clip.high))
    floor_T = old_logprobs_T + torch.log1p(torch.tensor(-min(clip.low, 1.0 - 1e-6)))
    bounded_T = torch.where(advantages_T > 0, torch.minimum(logprobs_T, ceiling_T), torch.maximum(logprobs_T, floor_T))
    log_ratio_T = (logprobs_T - old_logprobs_T).detach()
    return PolicyLoss(loss_T=-advantages_T * bounded_T, metrics=ratio_metrics(log_ratio_T, advantages_T, clip))


def sapo_loss(logprobs_T: Tensor, old_logprobs_T: Tensor, advantages_T: Tensor, clip: Clip) -> PolicyLoss:
    """`-A σ(τ (r - 1)) 4 / τ` with τ = 1.0 where A > 0 and 1.05 elsewhere: a soft gate in place of the clip.

    SAPO (arXiv 2511.20347). `clip` is used for the reported fractions alone.
    """
    log_ratio_T = logprobs_T - old_logprobs_T
    tau_T = torch.where(advantages_T > 0, _TAU_POSITIVE, _TAU_NEGATIVE)
    gate_T = torch.sigmoid(tau_T * (bounded_ratio(log_ratio_T) - 1.0)) * 4.0 / tau_T
    return PolicyLoss(loss_T=-advantages_T * gate_T, metrics=ratio_metrics(log_ratio_T.detach(), advantages_T, clip))


def gspo_loss(
    logprobs_T: Tensor, old_logprobs_T: Tensor, advantages_T: Tensor, response_lens_K: Tensor, clip: Clip
) -> PolicyLoss:
    """PPO's loss with one ratio per response, the geometric mean of its tokens': GSPO (arXiv 2507.18071), eq. 5 to 7.

    The loss of a response lies on its last token, where its advantage is read; weigh it with `action_weights`.
    """
    return action_ppo_loss(logprobs_T, old_logprobs_T, advantages_T, response_lens_K, clip, "mean")
