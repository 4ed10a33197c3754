"""The loader of training batches, whose position can be saved."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from dagrl.errors import DataError
from dagrl.seeds import derive_seed
from dagrl.types import Task


class DataLoader:
    """Batches without end: every batch is full, and every task is drawn once per pass through the data.

    A batch may lie across the border of two passes; no task stands in it twice. What has been drawn is one number,
    so a position is saved and restored exactly.

    >>> tasks = [Task(task_id=str(number), prompt="?") for number in range(5)]
    >>> loader = DataLoader(tasks, batch_size=2, seed=1, shuffle=False)
    >>> [[task.task_id for task in loader.next_batch()] for _ in range(3)]
    [['0', '1'], ['2', '3'], ['4', '0']]
    """

    def __init__(self, tasks: Sequence[Task], batch_size: int, *, seed: int, shuffle: bool = True) -> None:
        """Raises DataError where there are fewer tasks than a batch needs."""
        if len(tasks) < batch_size:
            raise DataError(
                f"{len(tasks)} rows do not fill a batch of {batch_size}",
                where="data.train_batch_size",
                how=f"set it to {len(tasks)} or less, or give more data" if tasks else "give more data",
            )
        self._tasks = tuple(tasks)
        self._batch_size = batch_size
        self._seed = seed
        self._shuffle = shuffle
        self._restart()

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every task has been drawn at least once."""
        return self.steps_for(1)

    def steps_for(self, epochs: int) -> int:
        """Steps until every task has been drawn at least `epochs` times."""
        return math.ceil(epochs * len(self._tasks) / self._batch_size)

    def next_batch(self) -> list[Task]:
        taken: list[int] = []
        while len(taken) < self._batch_size:
            if self._offset == len(self._tasks):
                self._begin_epoch(self._epoch + 1, frozenset(taken))
            part = self._order[self._offset : self._offset + self._batch_size - len(taken)]
            taken += part
            self._offset += len(part)
        return [self._tasks[index] for index in taken]

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self._epoch * len(self._tasks) + self._offset, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises DataError where the state is that of other data or of another batch size, seed or order."""
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise DataError(f"the saved position has {name} {state.get(name)!r}, now it is {value!r}", where="data")
        self._restart()
        while self._epoch * len(self._tasks) + self._offset < state["drawn"]:
            self.next_batch()

    def _identity(self) -> dict[str, Any]:
        ids = "\x1f".join(task.task_id for task in self._tasks)
        return {
            "num_tasks": len(self._tasks),
            "batch_size": self._batch_size,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "fingerprint": hashlib.sha256(ids.encode()).hexdigest(),
        }

    def _restart(self) -> None:
        self._begin_epoch(0, frozenset())

    def _begin_epoch(self, epoch: int, in_batch: frozenset[int]) -> None:
        """Draws the order of `epoch`; tasks that the unfinished batch holds already come after those that fill it."""
        order = list(range(len(self._tasks)))
        if self._shuffle:
            random.Random(derive_seed(self._seed, "data", epoch)).shuffle(order)
        fresh = [index for index in order if index not in in_batch]
        head = fresh[: self._batch_size - len(in_batch)] if in_batch else []
        chosen = set(head)
        self._order = head + [index for index in order if index not in chosen]
        self._epoch = epoch
        self._offset = 0
