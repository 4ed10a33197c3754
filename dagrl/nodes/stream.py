"""Selections of the stream that several nodes need: layouts, minibatches, running sums of metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from dagrl.algorithms import TurnLayout
from dagrl.experience import Experience
from dagrl.seeds import derive_seed


def layout_of(
    experience: Experience, turns: Tensor, stages: Mapping[str, int] | None = None
) -> tuple[TurnLayout, Tensor]:
    """The layout of `turns` with their trajectories numbered from 0, and which trajectory each number is.

    `stages` gives each rollout node's place in the order of a round; None: one turn after another.
    """
    table = experience.turns
    trajectories, numbers = torch.unique(table.trajectory[turns], return_inverse=True)
    layout = TurnLayout(
        response_lens=table.response_len[turns],
        trajectory=numbers,
        round=table.round[turns],
        agent_group=table.agent_group[turns],
        stage=None if stages is None else torch.tensor([stages[experience.node_ids[turn]] for turn in turns.tolist()]),
    )
    return layout, trajectories


def minibatches(experience: Experience, turns: Tensor, size: int | None, seed: int) -> Iterator[Tensor]:
    """`turns` cut into minibatches of `size` trajectories drawn in a random order; all at once if None.

    The turns of a minibatch stay in time order. The same seed gives the same minibatches.
    """
    owner = experience.turns.trajectory[turns]
    trajectories = torch.unique(owner)
    if size is None or size >= len(trajectories):
        yield turns
        return
    generator = torch.Generator().manual_seed(seed)
    order = trajectories[torch.randperm(len(trajectories), generator=generator)]
    for chosen in order.split(size):
        yield turns[torch.isin(owner, chosen)]


def minibatch_seed(seed: int, step: int, what: str, epoch: int) -> int:
    """The seed of the order of minibatches of one model in one epoch of one step."""
    return derive_seed(seed, "minibatches", step, what, epoch)


class Sums:
    """Running sums of what losses report, over micro-batches and minibatches."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, float] = defaultdict(float)

    def add(self, values: Mapping[str, Tensor | float]) -> None:
        for name, value in values.items():
            self._sums[name] += float(value)

    def clear(self) -> None:
        self._sums.clear()

    def merge(self, other: Sums) -> None:
        self.add(other._sums)

    def __getitem__(self, name: str) -> float:
        return self._sums[name]

    def ratio(self, name: str, count: str) -> float:
        """Sum of `name` over sum of `count`; 0 where nothing was counted."""
        return self._sums[name] / self._sums[count] if self._sums[count] else 0.0
