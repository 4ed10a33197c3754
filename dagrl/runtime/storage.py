"""Writing files so that they are whole or absent, and telling what the disk said when it refuses."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagrl.errors import StorageError

TEMP_PREFIX = ".tmp-"
"""Begins the name of every file and folder that is not whole yet."""

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space; what had been written before is whole",
    errno.EDQUOT: "your quota of disk space is used up; what had been written before is whole",
    errno.EROFS: "the file system is read-only: choose another place with trainer.runs_dir or --run-dir",
    errno.EACCES: "choose another place with trainer.runs_dir or --run-dir, or mend its permissions",
}


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turns what the operating system refuses about `path` into a StorageError that says how to mend it."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


def storage_error(error: OSError, path: Path) -> StorageError:
    reason = error.strerror or str(error)
    return StorageError(f"cannot be used: {reason}", where=str(path), how=_ADVICE.get(error.errno or 0))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a temporary path to write to; at the end it is flushed to disk and takes the place of `path`.

    Where the block raises, nothing is left and `path` is as it was.
    """
    temp = path.with_name(f"{TEMP_PREFIX}{path.name}-{os.getpid()}")
    try:
        with storage(path):
            yield temp
            fsync(temp)
            os.replace(temp, path)
            fsync(path.parent)
    finally:
        temp.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8, whole or not at all."""
    with replacing(path) as temp:
        temp.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, value: Any) -> None:
    """Writes strict JSON (no NaN), whole or not at all."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def make_folder(path: Path) -> Path:
    """`path`, made with its parents where it was not there."""
    with storage(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def fsync(path: Path) -> None:
    """Waits until a file's content, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
