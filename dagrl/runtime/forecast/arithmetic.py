"""Floating-point operations of forward and backward passes, and how many of them this machine does in a second.

A multiplication and an addition are two operations. Of a pass over s tokens: 2 · weights · s, and for the attention of
each layer 2 · s² · heads · head size (causal: half of the square). A backward pass costs twice the forward pass.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

import torch

from dagrl.runtime.forecast.rehearsal import TurnSize
from dagrl.runtime.forecast.sizes import ModelSize

_SECONDS = 0.2
"""How long one product is repeated."""
_MAX_ROWS = 2048
"""Of that product: more rows are no faster, and a short product is the likelier to run without being interrupted."""


def forward(size: ModelSize, turns: Iterable[TurnSize]) -> float:
    """The body's forward pass over whole turns."""
    per_square = 2.0 * size.layers * size.heads * size.head_dim
    lengths = [turn.prompt + turn.response for turn in turns]
    return sum(2.0 * size.num_body_weights * length + per_square * length * length for length in lengths)


def head(size: ModelSize, turns: Iterable[TurnSize]) -> float:
    """The output head on every response token."""
    return 2.0 * size.num_head_weights * sum(turn.response for turn in turns)


def training(
    body: float, head_: float, *, trains_weights: bool = True, recomputes: bool = False, is_frozen: bool = False
) -> float:
    """One forward and backward pass, of which `body` and `head_` are the forward operations.

    `trains_weights` false: an adapter, whose base needs no gradient of its own; `recomputes`: gradient checkpointing;
    `is_frozen`: only a head on top is trained. The head's logits are always computed again in the backward pass.
    """
    if is_frozen:
        return body
    backward = 2.0 if trains_weights else 1.0
    return body * (1.0 + backward + float(recomputes)) + head_ * (2.0 + backward)


def matmul_rate(rows: int, size: ModelSize, dtype: torch.dtype, device: torch.device) -> float:
    """Operations per second of [rows, hidden] · [hidden, ffn], as the model's own products are, measured now.

    The fastest of many: what other programs take from the machine meanwhile is not counted.
    """
    left = torch.ones(max(1, min(rows, _MAX_ROWS)), size.hidden, dtype=dtype, device=device)
    right = torch.ones(size.hidden, size.ffn, dtype=dtype, device=device)
    (left @ right).sum().item()
    end, fastest = time.perf_counter() + _SECONDS, math.inf
    while math.isinf(fastest) or time.perf_counter() < end:
        started = time.perf_counter()
        (left @ right)[0, 0].item()  # waits for a GPU
        fastest = min(fastest, time.perf_counter() - started)
    return 2.0 * left.numel() * size.ffn / fastest
