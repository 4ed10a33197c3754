"""Keys and values of finished conversations, found again by the longest prefix that a new prompt shares with one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

BLOCK = 16
"""Tokens per hash: shorter prefixes are not worth finding."""


@dataclass(frozen=True, slots=True)
class _Entry:
    ids: tuple[int, ...]
    states: Tensor
    """[.., heads, positions, head size] as `SlotStore.read` gives them, one position per id."""


class PrefixCache:
    """Least recently used first out, by a budget in tokens; 0 keeps nothing.

    Every prefix of whole blocks of an entry is indexed by a chained hash; a hit is compared token by token, so a
    collision costs a hit but never gives a wrong one.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._index: dict[int, int] = {}
        self._next = 0
        self.num_tokens = 0

    def accepts(self, length: int) -> bool:
        """Whether a conversation of `length` tokens would be kept."""
        return BLOCK <= length <= self._budget

    def find(self, ids: Sequence[int]) -> tuple[int, Tensor | None]:
        """(tokens, states) of the longest known prefix of `ids`; (0, None) where none is known."""
        number = None
        for key in _block_hashes(ids):
            found = self._index.get(key)
            if found is None:
                break
            number = found
        if number is None:
            return 0, None
        entry = self._entries[number]
        length = _shared(entry.ids, ids)
        if length < BLOCK:
            return 0, None
        self._entries.move_to_end(number)
        return length, entry.states[:, :, :length]

    def add(self, ids: tuple[int, ...], states: Tensor) -> None:
        """Keeps the states of `ids`, dropping the least recently used as the budget asks."""
        assert self.accepts(len(ids)) and states.shape[2] == len(ids)
        while self.num_tokens + len(ids) > self._budget:
            self._drop(next(iter(self._entries)))
        number, self._next = self._next, self._next + 1
        self._entries[number] = _Entry(ids, states)
        self.num_tokens += len(ids)
        for key in _block_hashes(ids):
            self._index[key] = number

    def clear(self) -> None:
        self._entries.clear()
        self._index.clear()
        self.num_tokens = 0

    def _drop(self, number: int) -> None:
        entry = self._entries.pop(number)
        self.num_tokens -= len(entry.ids)
        for key in _block_hashes(entry.ids):
            if self._index.get(key) == number:
                del self._index[key]


def _block_hashes(ids: Sequence[int]) -> Iterator[int]:
    """One hash for every prefix of whole blocks, shortest first."""
    key = 0
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        key = hash((key, tuple(ids[start : start + BLOCK])))
        yield key


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading ids are equal."""
    for position, (one, other) in enumerate(zip(first, second)):
        if one != other:
            return position
    return min(len(first), len(second))
