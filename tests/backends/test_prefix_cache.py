"""Finding the longest known prefix, within a budget of tokens."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from dagrl.backends.prefix_cache import BLOCK, PrefixCache


def _states(ids: tuple[int, ...]) -> Tensor:
    """Each position holds its id."""
    return torch.tensor(ids, dtype=torch.float32).view(1, 1, -1, 1)


def _longest(entries: list[tuple[int, ...]], ids: tuple[int, ...]) -> int:
    """The slow way; below a block counts as nothing."""
    lengths = [next((i for i, (a, b) in enumerate(zip(e, ids)) if a != b), min(len(e), len(ids))) for e in entries]
    return max((length for length in lengths if length >= BLOCK), default=0)


def test_what_is_found_is_a_known_prefix_as_long_as_whole_blocks_allow() -> None:
    rng = random.Random(0)
    trunks = [tuple(rng.randrange(3) for _ in range(100)) for _ in range(4)]
    cache, entries = PrefixCache(10**6), []
    for _ in range(60):
        ids = rng.choice(trunks)[: rng.randrange(10, 100)] + tuple(rng.randrange(3) for _ in range(rng.randrange(30)))
        length, states = cache.find(ids)
        longest = _longest(entries, ids)
        assert length <= longest and length // BLOCK == longest // BLOCK
        if states is not None:
            assert states.flatten().tolist() == list(ids[:length])
        if cache.accepts(len(ids)):
            cache.add(ids, _states(ids))
            entries.append(ids)


def test_the_least_recently_used_goes_when_the_budget_is_spent() -> None:
    one, two, three = ((n,) * 20 for n in (1, 2, 3))
    cache = PrefixCache(45)
    cache.add(one, _states(one))
    cache.add(two, _states(two))
    assert cache.find(one)[0] == 20
    cache.add(three, _states(three))
    assert [cache.find(ids)[0] for ids in (one, two, three)] == [20, 0, 20]
    assert cache.num_tokens == 40


def test_a_budget_of_nothing_keeps_nothing() -> None:
    assert not PrefixCache(0).accepts(20) and PrefixCache(0).find((1,) * 40) == (0, None)
    assert not PrefixCache(100).accepts(101)
