"""All trajectories of one file at a glance: sorted, searched and paged without reading tokens. A door to pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagrl.data.trajectory_files import read_columns
from dagrl.errors import StorageError
from dagrl.report.arrow import is_text, mask, numbers, taken

ORDERS = ("order", "worst", "best", "longest")
"""As in the file; by reward from below, from above; by response tokens from above."""
MAX_PAGE = 200
_SNIPPET = 240
"""Characters of a text in a list."""
_TOLD_OF_TASK = ("trajectory", "sample", "trajectory_reward")
_OF_TRAJECTORY = ("task_id", "sample", "data_source", "ground_truth", "stop_reason", "num_rounds", "trajectory_reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationIndex:
    """A row per trajectory of a file, in its order."""

    first_row: Any
    """[N] ints: row of the first turn."""
    last_row: Any
    tokens: Any
    """[N] ints: response tokens of all turns."""
    columns: pa.Table
    """[N] rows of what is the same for all turns of a trajectory, and `trajectory`."""

    def __len__(self) -> int:
        return len(self.first_row)

    @property
    def rewards(self) -> Any:
        """[N] float32."""
        return numbers(self.columns.column("trajectory_reward"))

    def chosen(self, path: Path, *, order: str, task: str = "", text: str = "") -> Any:
        """Places of the trajectories of `task` with `text` in a prompt or response (any if empty), in an order."""
        keep = np.ones(len(self), bool)
        if task:
            keep &= mask(is_text(self.columns.column("task_id"), task))
        if text:
            keep &= self._with_text(path, text)
        places = np.flatnonzero(keep)
        if order == "order":
            return places
        keys = {"worst": self.rewards, "best": -self.rewards, "longest": -self.tokens}[order]
        return places[np.argsort(keys[places], kind="stable")]

    def _with_text(self, path: Path, text: str) -> Any:
        texts = _texts(path, *_stamp(path))
        options = pc.MatchSubstringOptions(text, ignore_case=True)
        rows = np.logical_or.reduce([mask(pc.match_substring(column, options=options)) for column in texts.columns])
        return np.add.reduceat(rows, self.first_row).astype(bool)

    def page(self, path: Path, places: Sequence[int]) -> list[dict[str, Any]]:
        """The trajectories at `places` with the ends of what was asked and of what was last answered."""
        if len(places) == 0:
            return []
        texts = _texts(path, *_stamp(path))
        questions = taken(texts, self.first_row[places]).column("prompt").to_pylist()
        answers = taken(texts, self.last_row[places]).column("response").to_pylist()
        rows: list[dict[str, Any]] = taken(self.columns, places).to_pylist()
        for place, row, question, answer in zip(places, rows, questions, answers, strict=True):
            row["tokens"] = int(self.tokens[place])
            row["turns"] = int(self.last_row[place] - self.first_row[place] + 1)
            row["question"], row["answer"] = (question or "")[-_SNIPPET:], (answer or "")[-_SNIPPET:]
        return rows


def conversation_index(path: Path) -> ConversationIndex:
    """The index of a file, kept until the file changes. Raises StorageError where it is not a file of trajectories."""
    return _index(path, *_stamp(path))


def trajectories_of_task(path: Path, task: str) -> list[dict[str, Any]]:
    """`trajectory`, `sample` and `trajectory_reward` of each trajectory of `task`, in the order of the file."""
    rows = _of_task(path, *_stamp(path))
    found = rows.filter(is_text(rows.column("task_id"), task)).to_pylist()
    return list({row["trajectory"]: {name: row[name] for name in _TOLD_OF_TASK} for row in found}.values())


def _stamp(path: Path) -> tuple[int, int]:
    """Changes whenever the file does."""
    try:
        stat = path.stat()
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=1024)
def _index(path: Path, _changed: int, _size: int) -> ConversationIndex:
    table = _read(path, ("trajectory", "response_ids", *_OF_TRAJECTORY))
    trajectory = numbers(table.column("trajectory"))
    starts = np.flatnonzero(np.diff(trajectory, prepend=trajectory[:1] - 1)) if len(trajectory) else np.zeros(0, int)
    lengths = np.array([length or 0 for length in pc.list_value_length(table.column("response_ids")).to_pylist()])
    return ConversationIndex(
        first_row=starts,
        last_row=np.append(starts[1:], len(trajectory)) - 1 if len(starts) else starts,
        tokens=np.add.reduceat(lengths, starts) if len(starts) else starts,
        columns=taken(table.drop_columns(["response_ids"]), starts),
    )


@lru_cache(maxsize=8192)
def _of_task(path: Path, _changed: int, _size: int) -> pa.Table:
    """Read apart from the index, which needs the lengths of all responses: a task is looked for in every file."""
    return _read(path, ("task_id", *_TOLD_OF_TASK))


@lru_cache(maxsize=4)
def _texts(path: Path, _changed: int, _size: int) -> pa.Table:
    return _read(path, ("prompt", "response"))


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    table = read_columns(path, columns)
    if missing := [name for name in columns if name not in table.column_names]:
        raise StorageError(f"has no column '{missing[0]}': not a file of trajectories", where=str(path))
    return table
