"""Keys and values of many rows of different length in one block of memory, and forward passes that extend them.

Row b keeps its tokens at positions 0 … length_b - 1 of its slot. Active rows lie in slots 0 … B - 1, so what a forward
pass reads is a view, cut at the longest row, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache

from dagrl.backends.network import Network
from dagrl.backends.vision import Sight
from dagrl.errors import DagrlError

_LENGTH_STEP = 64
"""Slots grow by so many tokens at least, so that a step rarely has to move them."""
_SERVED_LAYERS = {"full_attention"}
_PROBE = ((5, 9, 2, 7), (3, 8))
"""Two rows of different length for the check of a model; ids modulo the vocabulary."""
_PROBE_TOLERANCE = 2e-2
"""Relative to the largest hidden state; room for bfloat16, far below what a wrong mask or position would do."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a forward pass writes and what it reads."""

    rows: Tensor
    """[n, 1] int64 slots."""
    positions: Tensor
    """[n, q] int64."""
    first: int
    last: int
    """Slots `first` … `last` - 1 are read, …"""
    width: int
    """… their first `width` positions."""


class _SlotCache(Cache):
    """What a transformers model is given as `past_key_values`: writes to slots, reads views of them."""

    def __init__(self, store: SlotStore, place: _Place) -> None:
        super().__init__(layers=[])
        self._store = store
        self._place = place

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        block, place = self._store.block, self._place
        read = []
        for plane, states in ((2 * layer_idx, key_states), (2 * layer_idx + 1, value_states)):
            block[plane][place.rows, :, place.positions] = states.transpose(1, 2)
            read.append(block[plane, place.first : place.last, :, : place.width])
        return read[0], read[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._place.width - self._place.positions.shape[1]


class SlotStore:
    """The keys and values of one network's rows.

    `block` is [2 · layers, slots, heads, positions, head size]: keys and values of a layer follow one another, and the
    positions of a head too, which attention reads twice as fast as heads beside each other. It is zero where nothing
    was written: what is masked must still be finite.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        layers, heads, size, dtype = _shape(network)
        self.block = torch.zeros(2 * layers, 0, heads, 0, size, dtype=dtype, device=network.device)
        self._needs_float_mask = network.config._attn_implementation == "eager"
        _check(self)

    def reserve(self, slots: int, positions: int) -> None:
        """Makes room for `slots` rows of `positions` tokens, keeping what is there."""
        planes, old_slots, heads, old_positions, size = self.block.shape
        if slots <= old_slots and positions <= old_positions:
            return
        slots = max(slots, old_slots if slots <= old_slots else 2 * old_slots)
        if positions > old_positions:
            positions = -(-max(positions, old_positions + old_positions // 2) // _LENGTH_STEP) * _LENGTH_STEP
        grown = self.block.new_zeros(planes, slots, heads, max(positions, old_positions), size)
        grown[:, :old_slots, :, :old_positions] = self.block
        self.block = grown

    def extend(self, ids: Tensor, lengths: Tensor, first: int, sights: Sequence[Sight | None] | None = None) -> Tensor:
        """[n, q, d] hidden states of `ids` [n, q], which follow the `lengths` [n] tokens of slots `first` …. `sights`:
        what each row's prompt shows.

        Rows shorter than q are padded on the right: what is written past their end is written over before it is read.
        """
        count, steps = ids.shape
        positions = lengths[:, None] + torch.arange(steps, device=ids.device)
        width = int(positions.max()) + 1
        assert width <= self.block.shape[3] and first + count <= self.block.shape[1]
        rows = torch.arange(first, first + count, device=ids.device)[:, None]
        mask = torch.arange(width, device=ids.device) <= positions[:, None, :, None]
        cache = _SlotCache(self, _Place(rows, positions, first, first + count, width))
        with _maskable(self.network.config):
            return self.network.hidden(
                ids,
                attention_mask=self._additive(mask) if self._needs_float_mask else mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                sights=sights,
            )

    def clear(self) -> None:
        """Forgets everything, numbers that are not finite above all."""
        self.block.zero_()

    def copy(self, source: int, targets: Tensor, length: int) -> None:
        """Copies the first `length` tokens of slot `source` to the slots `targets` ([m] int64)."""
        self.block[:, targets, :, :length] = self.block[:, source, None, :, :length]

    def move(self, source: int, target: int, length: int) -> None:
        self.block[:, target, :, :length] = self.block[:, source, :, :length]

    def read(self, slot: int, length: int) -> Tensor:
        """[2 · layers, heads, length, head size]: a copy of what slot `slot` holds."""
        return self.block[:, slot, :, :length].clone()

    def write(self, slot: int, states: Tensor) -> None:
        """Puts what `read` gave at the beginning of slot `slot`."""
        self.block[:, slot, :, : states.shape[2]] = states

    def _additive(self, mask: Tensor) -> Tensor:
        dtype = self.block.dtype
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


@contextmanager
def _maskable(config: Any) -> Iterator[None]:
    """Flash attention takes no mask of rows and positions: such a model generates with torch's own attention."""
    given = config._attn_implementation
    if given in ("sdpa", "eager"):
        yield
        return
    config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        config._attn_implementation = given


@torch.no_grad()
def _shape(network: Network) -> tuple[int, int, int, torch.dtype]:
    """(layers, key-value heads, head size, dtype) as a first pass of the model shows them."""
    config = network.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if network.config.is_encoder_decoder or not kinds <= _SERVED_LAYERS or window is not None:
        raise _refusal(network, f"layers {', '.join(sorted(kinds))}, sliding window {window}")
    cache = DynamicCache(config=config)
    network.hidden(torch.zeros(1, 1, dtype=torch.int64, device=network.device), past_key_values=cache, use_cache=True)
    layers: list[Any] = cache.layers
    shapes = {tuple(states.shape) for layer in layers for states in (layer.keys, layer.values)}
    if len(shapes) != 1:
        raise _refusal(network, f"keys and values of shapes {sorted(shapes)}")
    _, heads, _, size = shapes.pop()
    return len(layers), heads, size, layers[0].keys.dtype


@torch.no_grad()
def _check(store: SlotStore) -> None:
    """Compares two ragged rows, put in and then extended by a token, with passes that use no slots."""
    vocabulary = store.network.config.get_text_config().vocab_size
    rows = [torch.tensor(row, device=store.network.device) % vocabulary for row in _PROBE]
    lengths = torch.tensor([len(row) - 1 for row in rows], device=store.network.device)
    store.reserve(len(rows), int(lengths.max()) + 1)
    first = torch.nn.utils.rnn.pad_sequence([row[:-1] for row in rows], batch_first=True)
    store.extend(first, torch.zeros_like(lengths), 0)
    got = store.extend(torch.stack([row[-1:] for row in rows]), lengths, 0)[:, 0]
    expected = torch.stack([store.network.hidden(row[None], use_cache=False)[0, -1] for row in rows])
    if (got - expected).abs().max() > _PROBE_TOLERANCE * expected.abs().max():
        raise _refusal(store.network, "its attention does not follow position ids and a mask of rows and positions")
    store.clear()


def _refusal(network: Network, why: str) -> DagrlError:
    return DagrlError(
        f"the engine 'transformers' cannot generate with {type(network.module).__name__}: {why}",
        where=network.name,
        how="use a decoder-only model with full attention in every layer, or another rollout.engine",
    )
