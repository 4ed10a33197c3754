"""Weights that turn per-token losses into one number over a whole optimizer batch.

The sum of `weights * loss` over all tokens is the loss. The weights are found once for the batch, so that
splitting it into micro-batches changes nothing. A sequence is a turn whose response is not empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from dagrl.algorithms.segments import last_token_of_turn
from dagrl.errors import DagrlError


def token_weights(mode: str, response_lens_K: Tensor, *, horizon: int | None = None) -> Tensor:
    """Weight of each token, `[T]` float32; `mode` is a key of `LOSS_AGG_MODES`.

    `horizon` is the constant number of tokens that `seq-mean-token-sum-norm` divides by; it must be given
    there. A batch without tokens has no weights.
    """
    if mode not in LOSS_AGG_MODES:
        raise DagrlError(f"loss_agg_mode is '{mode}'", how=f"use one of {', '.join(LOSS_AGG_MODES)}")
    lens = response_lens_K[response_lens_K > 0]
    weight_of_sequence = LOSS_AGG_MODES[mode](lens.double(), horizon)
    return weight_of_sequence.repeat_interleave(lens).float()


def action_weights(response_lens_K: Tensor) -> Tensor:
    """Weights `[T]` float32 for losses that lie on the last token of each turn: the mean over sequences."""
    last = last_token_of_turn(response_lens_K)
    weights_T = torch.zeros(int(response_lens_K.sum()), device=response_lens_K.device)
    weights_T[last] = 1.0 / max(last.numel(), 1)
    return weights_T


def _token_mean(lens: Tensor, horizon: int | None) -> Tensor:
    return torch.ones_like(lens) / lens.sum()


def _seq_mean_token_sum(lens: Tensor, horizon: int | None) -> Tensor:
    return torch.ones_like(lens) / lens.numel()


def _seq_mean_token_mean(lens: Tensor, horizon: int | None) -> Tensor:
    return 1.0 / (lens * lens.numel())


def _seq_mean_token_sum_norm(lens: Tensor, horizon: int | None) -> Tensor:
    if horizon is None or horizon <= 0:
        raise DagrlError(
            f"loss_agg_mode 'seq-mean-token-sum-norm' has horizon {horizon}",
            how="give the constant number of tokens to divide by, above 0",
        )
    return _seq_mean_token_sum(lens, None) / horizon


LOSS_AGG_MODES: Mapping[str, Callable[[Tensor, int | None], Tensor]] = {
    "token-mean": _token_mean,
    "seq-mean-token-sum": _seq_mean_token_sum,
    "seq-mean-token-mean": _seq_mean_token_mean,
    "seq-mean-token-sum-norm": _seq_mean_token_sum_norm,
}
"""Mode → weight of a token in each sequence, from the lengths of all sequences and the horizon.

DAPO (arXiv 2503.14476) uses token-mean, GRPO seq-mean-token-mean, Dr. GRPO (arXiv 2503.20783)
seq-mean-token-sum-norm.
"""
