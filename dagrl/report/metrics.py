"""metrics.jsonl while it is being written: only what is new is read, an unfinished last line waits for its rest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dagrl.errors import StorageError

Row = dict[str, Any]
"""`{"step", "time", "nonfinite", "<name>": number or None, …}`."""

OWN_KEYS = ("step", "time", "nonfinite")
"""Keys of a row that are no metrics."""
_NUMBER_OR_NONE = frozenset((float, int, type(None)))
"""Types of JSON values; `bool` is none of them."""


class MetricsTail:
    """The rows of one file so far. A file that is not there has no rows yet."""

    def __init__(self, path: Path) -> None:
        self.rows: list[Row] = []
        self._path = path
        self._offset = 0
        self._last_line = b""
        """The last line that was read, to notice a file that was cut back and written anew."""

    def update(self) -> int:
        """Reads on; gives how many rows are new. A file that was cut back (a resumed run) is read from its beginning.

        Raises StorageError where the file cannot be read or a finished line is broken.
        """
        try:
            content = self._new_content()
        except FileNotFoundError:
            self._forget()
            return 0
        except OSError as error:
            raise StorageError(f"cannot be read: {error.strerror or error}", where=str(self._path)) from error
        lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
        for line in lines:
            self.rows.append(_parse(line, self._path, len(self.rows) + 1))
            self._offset += len(line)
            self._last_line = line
        return len(lines)

    def _new_content(self) -> bytes:
        with self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._offset or not self._continues(file):
                self._forget()
            file.seek(self._offset)
            return file.read()

    def _continues(self, file: Any) -> bool:
        file.seek(self._offset - len(self._last_line))
        return bool(file.read(len(self._last_line)) == self._last_line)

    def _forget(self) -> None:
        self.rows.clear()
        self._offset, self._last_line = 0, b""


def merged(rows: Iterable[Row]) -> list[Row]:
    """One row per step, in the order of the steps: training and held-out numbers together, later rows before earlier
    ones."""
    by_step: dict[int, Row] = {}
    for row in rows:
        by_step.setdefault(row["step"], {}).update(row)
    return [by_step[step] for step in sorted(by_step)]


def series(rows: Iterable[Row], name: str) -> dict[int, float]:
    """Step to the value of one metric; steps without it, and values that were not finite, are left out."""
    return {row["step"]: float(row[name]) for row in rows if row.get(name) is not None}


def names(rows: Iterable[Row]) -> list[str]:
    """Every metric that has a value in some row, sorted."""
    return sorted({name for row in rows for name, value in row.items() if value is not None} - set(OWN_KEYS))


def _parse(line: bytes, path: Path, number: int) -> Row:
    where = f"{path}:{number}"
    try:
        row = json.loads(line)
    except ValueError as error:
        raise StorageError(f"is not JSON: {error}", where=where) from error
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        raise StorageError("is not a row of metrics: no object with a whole 'step'", where=where)
    wrong = [key for key, value in row.items() if type(value) not in _NUMBER_OR_NONE and key not in OWN_KEYS]
    if wrong:
        raise StorageError(f"'{wrong[0]}' is not a number", where=where)
    return row
