"""Turn-level sums and means over the flat stream of tokens."""

from __future__ import annotations

import torch
from torch import Tensor


def token_to_turn(response_lens_K: Tensor) -> Tensor:
    """Index of the turn of each token, `[T]` int64. Empty turns do not appear."""
    return torch.repeat_interleave(response_lens_K)


def last_token_of_turn(response_lens_K: Tensor) -> Tensor:
    """Stream position of the last token of each turn that is not empty, in order, int64."""
    return response_lens_K.cumsum(0)[response_lens_K > 0] - 1


def sum_per_turn(values_T: Tensor, response_lens_K: Tensor) -> Tensor:
    """Sum over the tokens of each turn, `[K]`, in the type of `values_T`; an empty turn gives 0.

    Adds in float64. Gradients flow through.
    """
    sums_K = torch.zeros(response_lens_K.numel(), dtype=torch.float64, device=values_T.device)
    return sums_K.index_add(0, token_to_turn(response_lens_K), values_T.double()).to(values_T.dtype)


def mean_per_turn(values_T: Tensor, response_lens_K: Tensor) -> Tensor:
    """Mean over the tokens of each turn, `[K]`, in the type of `values_T`; an empty turn gives 0."""
    sums_K = sum_per_turn(values_T.double(), response_lens_K)
    return (sums_K / response_lens_K.clamp(min=1)).to(values_T.dtype)
