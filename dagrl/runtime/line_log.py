"""LineLog: a file that only grows, a JSON object a line, and is cut back where a run goes on from an earlier place."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagrl.errors import StorageError
from dagrl.runtime.storage import storage


class LineLog:
    """Appends rows, each flushed. An unfinished last line, left by a crash, is cut off when the file is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with storage(path):
            _cut_torn_line(path)
            self._file = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        with storage(self.path):
            self._file.write(json.dumps(row, allow_nan=False) + "\n")
            self._file.flush()

    def size(self) -> int:
        """Bytes so far; they are on the disk when this returns, so that a checkpoint can count on them."""
        with storage(self.path):
            os.fsync(self._file.fileno())
            return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        with storage(self.path):
            self._file.close()


def cut_to(path: Path, size: int | None) -> None:
    """Makes `path` as long as it was; None: it was not there. Raises StorageError where it is shorter."""
    with storage(path):
        if size is None:
            path.unlink(missing_ok=True)
        elif path.stat().st_size < size:
            raise StorageError("is shorter than when the checkpoint was made", where=str(path))
        else:
            os.truncate(path, size)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of `path`; a last line that was not finished is left out. Raises StorageError for any other fault."""
    with storage(path):
        text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.split("\n")
    return [_parse(line, path, number) for number, line in enumerate(lines[:-1], start=1)]


def _parse(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise StorageError(f"is not JSON: {error}", where=f"{path}:{number}") from error
    if not isinstance(row, dict):
        raise StorageError(f"is a {type(row).__name__}, not a JSON object", where=f"{path}:{number}")
    return row


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
