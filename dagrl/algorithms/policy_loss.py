"""PPO's clipped policy loss per token and per action, with dual clip.

PPO: Schulman et al. 2017 (arXiv 1707.06347), eq. 7. Dual clip: Ye et al. 2020 (arXiv 1912.09729), eq. 5.
Metrics are sums over ratios, so that those of micro-batches add up; divide by `num_ratios` at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dagrl.algorithms.kl import MAX_LOG_RATIO, kl_estimate
from dagrl.algorithms.segments import last_token_of_turn, mean_per_turn, sum_per_turn
from dagrl.errors import DagrlError


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """Range of the ratio new / old in which it still earns."""

    low: float
    """The ratio earns down to 1 - low where the advantage is negative."""
    high: float
    """The ratio earns up to 1 + high where the advantage is positive."""
    dual: float | None = None
    """Bound c > 1 on the loss where the advantage is negative: at most c * |A|. None: no bound."""

    def __post_init__(self) -> None:
        if self.low < 0.0 or self.high < 0.0:
            raise DagrlError(f"clip range is low {self.low}, high {self.high}", how="give numbers from 0 up")
        if self.dual is not None and self.dual <= 1.0:
            raise DagrlError(f"dual clip is {self.dual}", how="give a number above 1, or nothing for none")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyLoss:
    """Loss of each token and what happened in it."""

    loss_T: Tensor
    """To be minimised, `[T]`, not yet weighted; carries the gradient."""
    metrics: Mapping[str, Tensor]
    """Sums over ratios, 0-dim float64, detached: `num_ratios`, `num_clipped_low`, `num_clipped_high`,
    `num_clipped_dual` (clips that took the gradient away; 0 where absent), `sum_ratio`, and `sum_kl_k1`,
    `sum_kl_k3`, whose means estimate KL(old || new)."""


def ppo_loss(logprobs_T: Tensor, old_logprobs_T: Tensor, advantages_T: Tensor, clip: Clip) -> PolicyLoss:
    """`max(-A r, -A clip(r, 1 - low, 1 + high))` with r = new / old of each token.

    Where A < 0 and `clip.dual` is c, at most -c A. Log-ratios beyond 20 count as 20, with no gradient. An
    advantage of 0 gives a loss of 0.
    """
    log_ratio_T = logprobs_T - old_logprobs_T
    loss_T = _clipped_surrogate(log_ratio_T, advantages_T, clip)
    return PolicyLoss(loss_T=loss_T, metrics=ratio_metrics(log_ratio_T.detach(), advantages_T, clip))


def action_ppo_loss(
    logprobs_T: Tensor,
    old_logprobs_T: Tensor,
    advantages_T: Tensor,
    response_lens_K: Tensor,
    clip: Clip,
    normalisation: str,
) -> PolicyLoss:
    """PPO loss where a whole response is one action (MARFT-A, arXiv 2504.16129).

    The log-ratio of the action is the `sum` or the `mean` of its tokens' log-ratios. The loss of the action
    lies on its last token (weigh it with `action_weights`), all other tokens have exactly 0; its advantage is
    read there too. `none` keeps the ratio of each token, with the action's advantage: `ppo_loss`. Empty
    responses are no actions.
    """
    if normalisation == "none":
        return ppo_loss(logprobs_T, old_logprobs_T, advantages_T, clip)
    if normalisation not in _PER_ACTION:
        raise DagrlError(
            f"normalisation of the action's log-prob is '{normalisation}'",
            how=f"use one of {', '.join(ACTION_NORMALISATIONS)}",
        )
    per_turn = _PER_ACTION[normalisation]
    log_ratio = per_turn(logprobs_T - old_logprobs_T, response_lens_K)[response_lens_K > 0]
    last = last_token_of_turn(response_lens_K)
    advantages = advantages_T[last]
    loss_T = torch.zeros_like(logprobs_T).index_put((last,), _clipped_surrogate(log_ratio, advantages, clip))
    return PolicyLoss(loss_T=loss_T, metrics=ratio_metrics(log_ratio.detach(), advantages, clip))


_PER_ACTION: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"sum": sum_per_turn, "mean": mean_per_turn}

ACTION_NORMALISATIONS = (*_PER_ACTION, "none")
"""How the log-ratios of an action's tokens become the action's."""


def _clipped_surrogate(log_ratio: Tensor, advantages: Tensor, clip: Clip) -> Tensor:
    ratio = bounded_ratio(log_ratio)
    clipped_ratio = ratio.clamp(1.0 - clip.low, 1.0 + clip.high)
    loss = torch.maximum(-advantages * ratio, -advantages * clipped_ratio)
    if clip.dual is None:
        return loss
    return torch.where(advantages < 0, torch.minimum(loss, -clip.dual * advantages), loss)


def ratio_metrics(log_ratio: Tensor, advantages: Tensor, clip: Clip) -> dict[str, Tensor]:
    """The metrics of `PolicyLoss` from detached log-ratios, `[R]`, and their advantages."""
    ratio = bounded_ratio(log_ratio)
    is_negative = advantages < 0
    is_dual = torch.zeros_like(is_negative) if clip.dual is None else is_negative & (ratio > clip.dual)
    clips = {
        "num_clipped_low": is_negative & (ratio < 1.0 - clip.low),
        "num_clipped_high": (advantages > 0) & (ratio > 1.0 + clip.high),
        "num_clipped_dual": is_dual,
    }
    return plain_ratio_metrics(log_ratio) | {name: hit.double().sum() for name, hit in clips.items()}


def plain_ratio_metrics(log_ratio: Tensor) -> dict[str, Tensor]:
    """Those metrics of `PolicyLoss` that know of no clip, from detached log-ratios."""
    zeros = torch.zeros_like(log_ratio)
    sums = {
        "num_ratios": torch.ones_like(log_ratio),
        "sum_ratio": bounded_ratio(log_ratio),
        "sum_kl_k1": kl_estimate(zeros, log_ratio, "k1"),
        "sum_kl_k3": kl_estimate(zeros, log_ratio, "k3"),
    }
    return {name: values.double().sum() for name, values in sums.items()}


def bounded_ratio(log_ratio: Tensor) -> Tensor:
    """`exp`, with log-ratios beyond 20 counting as 20, without gradient there."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
