"""Draws tokens from logits, a row per response; a draw depends on (seed, position) and the row's logits alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dagrl.types import SamplingParams

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MANTISSA_BITS = 53


def row_key(seed: int) -> np.uint64:
    """Spreads a seed over 64 bits, so that neighbouring seeds have nothing in common."""
    with np.errstate(over="ignore"):
        return np.uint64(_mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64) + _GOLDEN)[0])


def uniforms(keys: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """[B] numbers in [0, 1): SplitMix64 (Steele, Lea & Flood 2014) of stream `keys` at counter `positions`.

    Counter-based: no state, so neither the batch nor the order of arrival changes a draw.
    """
    counters = (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    return (_mix(keys + counters) >> np.uint64(64 - _MANTISSA_BITS)).astype(np.float64) * 2.0**-_MANTISSA_BITS


@dataclass(frozen=True, slots=True)
class RowParams:
    """The sampling parameters of B rows as tensors; absent where no row uses them."""

    temperature: Tensor | None
    """[B]; 1 where greedy. None where all are 1."""
    greedy: Tensor | None
    """[B] bool."""
    filtered: Tensor | None
    """[F] int64: the rows that top-k, top-p or min-p apply to."""
    top_k: Tensor
    """[F] int64; the vocabulary's size and more keeps all."""
    top_p: Tensor
    """[F]."""
    min_p: Tensor
    """[F]."""


def row_params(rows: Sequence[SamplingParams], device: torch.device) -> RowParams:
    """Gathers `rows` into tensors on `device`."""
    greedy = [row.temperature == 0.0 for row in rows]
    temperatures = [1.0 if row.temperature == 0.0 else row.temperature for row in rows]
    filtered = [i for i, row in enumerate(rows) if row.temperature > 0.0 and _has_filter(row)]
    return RowParams(
        temperature=torch.tensor(temperatures, device=device) if any(t != 1.0 for t in temperatures) else None,
        greedy=torch.tensor(greedy, device=device) if any(greedy) else None,
        filtered=torch.tensor(filtered, device=device) if filtered else None,
        top_k=torch.tensor([rows[i].top_k if rows[i].top_k > 0 else 2**62 for i in filtered], device=device),
        top_p=torch.tensor([rows[i].top_p for i in filtered], device=device),
        min_p=torch.tensor([rows[i].min_p for i in filtered], device=device),
    )


def sample(logits: Tensor, params: RowParams, draws: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    """([B] tokens, [B] log-probs) of one draw from each row of `logits` [B, V] float32.

    The log-prob is that of softmax(logits / temperature) before top-k, top-p and min-p (temperature 1 where greedy).
    The draw inverts the cumulative distribution in the order of the vocabulary; greedy rows take the first maximum.
    """
    scaled = logits if params.temperature is None else logits / params.temperature[:, None]
    logprobs = torch.log_softmax(scaled, dim=-1)
    if params.greedy is not None and bool(params.greedy.all()):
        tokens = scaled.argmax(-1)
    else:
        tokens = _invert(_kept(logprobs.exp(), params), torch.from_numpy(draws).to(logits.device))
        if params.greedy is not None:
            tokens = torch.where(params.greedy, scaled.argmax(-1), tokens)
    return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)


def _kept(probs: Tensor, params: RowParams) -> Tensor:
    """`probs` with 0 for what the filters of a row exclude; not normalised."""
    if params.filtered is None:
        return probs
    ordered, order = probs[params.filtered].sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(ordered.shape[-1], device=probs.device)
    keep = ranks[None] < params.top_k[:, None]
    remaining = ordered * keep
    before = (remaining.cumsum(-1) - remaining) / remaining.sum(-1, keepdim=True)
    keep &= (before < params.top_p[:, None]) | (params.top_p[:, None] >= 1.0)
    keep &= ordered >= params.min_p[:, None] * ordered[:, :1]
    probs = probs.clone()
    probs[params.filtered] = torch.zeros_like(ordered).scatter_(1, order, ordered * keep)
    return probs


def _invert(weights: Tensor, draws: Tensor) -> Tensor:
    """[B]: the first token whose cumulative weight is above draw · total; never one of weight 0.

    A row that is not finite gives the last token, whose log-prob shows the fault.
    """
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1]
    threshold = (draws * total.double()).to(total.dtype)
    threshold = torch.minimum(threshold, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cumulative, threshold[:, None], right=True).squeeze(1)
    return tokens.clamp_max(weights.shape[1] - 1)


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))


def _has_filter(row: SamplingParams) -> bool:
    return row.top_k > 0 or row.top_p < 1.0 or row.min_p > 0.0
