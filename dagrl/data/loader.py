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

    A batch may lie across the border of two passes; no task stands in it twice. A position is a few numbers, so it is
    saved and restored exactly.

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
        self._begin_epoch(0)
        self.begin_step()

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every task has been drawn at least once."""
        return self.steps_for(1)

    def steps_for(self, epochs: int) -> int:
        """Steps until every task has been drawn at least `epochs` times."""
        return math.ceil(epochs * len(self._tasks) / self._batch_size)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The whole data."""
        return self._tasks

    def begin_step(self) -> None:
        """What is drawn from now on may repeat what was drawn before."""
        self._in_step: set[int] = set()

    def draw(self, count: int) -> list[Task]:
        """So many tasks, none of which was drawn in this step; fewer where the others of the pass all were."""
        taken: list[int] = []
        while len(taken) < count and len(self._in_step) < len(self._tasks):
            if self._offset == len(self._tasks):
                self._begin_epoch(self._epoch + 1)
            rest = (self._order[place] for place in range(self._offset, len(self._order)))
            index = next((one for one in rest if one not in self._ahead and one not in self._in_step), None)
            if index is None:
                break
            taken.append(index)
            self._take(index)
        return [self._tasks[index] for index in taken]

    def next_batch(self) -> list[Task]:
        """The tasks of a whole step."""
        self.begin_step()
        return self.draw(self._batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Between two steps."""
        drawn = self._epoch * len(self._tasks) + self._offset + len(self._ahead)
        return {"drawn": drawn, "epoch": self._epoch, "offset": self._offset, "ahead": sorted(self._ahead),
                **self._identity()}  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises DataError where the state is that of other data or of another batch size, seed or order."""
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise DataError(f"the saved position has {name} {state.get(name)!r}, now it is {value!r}", where="data")
        self._begin_epoch(state["epoch"])
        self._offset, self._ahead = state["offset"], set(state["ahead"])
        self.begin_step()

    def _take(self, index: int) -> None:
        """Marks a task as drawn: those before it in the pass that are in this step already keep their place."""
        self._in_step.add(index)
        self._ahead.add(index)
        while self._offset < len(self._order) and self._order[self._offset] in self._ahead:
            self._ahead.remove(self._order[self._offset])
            self._offset += 1

    def _identity(self) -> dict[str, Any]:
        ids = "\x1f".join(task.task_id for task in self._tasks)
        return {
            "num_tasks": len(self._tasks),
            "batch_size": self._batch_size,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "fingerprint": hashlib.sha256(ids.encode()).hexdigest(),
        }

    def _begin_epoch(self, epoch: int) -> None:
        self._order = list(range(len(self._tasks)))
        if self._shuffle:
            random.Random(derive_seed(self._seed, "data", epoch)).shuffle(self._order)
        self._epoch = epoch
        self._offset = 0
        self._ahead = set[int]()
        """Tasks of this pass that were drawn before their turn, those at it being in the step already."""
