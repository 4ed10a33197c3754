"""Reverse linear scan: the recursion under every kind of GAE, for all trajectories at once."""

from __future__ import annotations

import torch
from torch import Tensor


def reverse_linear_scan(deltas_T: Tensor, decay_T: Tensor) -> Tensor:
    """Solves `A[t] = deltas[t] + decay[t] * A[t+1]` from the end of the stream, `[T]` float64.

    A decay of exactly 0 ends a segment: nothing flows back across it. Beyond the last token A is 0.

    Recursive doubling (Hillis and Steele 1986): after pass i each A[t] holds the 2^i terms from t on, so the
    number of passes is the logarithm of the longest segment, not of the stream. An empty stream gives an
    empty result.
    """
    totals_T = deltas_T.to(torch.float64, copy=True)
    reach = decay_T.to(torch.float64)  # product of the decays over the terms that a total already holds
    longest = _longest_segment(decay_T)
    shift = 1
    while shift < longest:
        head = totals_T.numel() - shift
        totals_T[:head] += reach[:head] * totals_T[shift:]
        reach = reach[:-shift] * reach[shift:]
        shift *= 2
    return totals_T


def _longest_segment(decay_T: Tensor) -> int:
    """Most tokens in one segment; a segment is a run of nonzero decays and the token after it."""
    ends = (decay_T == 0).nonzero().flatten()
    before_first = ends.new_tensor([-1])
    last = ends.new_tensor([decay_T.numel() - 1])
    return int(torch.cat([before_first, ends, last]).diff().max())
