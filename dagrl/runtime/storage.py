"""Writing files so that they are whole or absent, and telling what the disk said when it refuses."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How libraries written in Rust (safetensors, tokenizers) tell what the operating system refused."""


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turns what the operating system refuses about `path` into a StorageError that says how to mend it."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error
    except Exception as error:  # tokenizers raises Exception itself
        found = _OS_ERROR.search(str(error))
        if found is None or isinstance(error, StorageError):
            raise
        raise storage_error(OSError(int(found[1]), os.strerror(int(found[1]))), path) from error


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
        with suppress(OSError):  # a file system that turned read-only keeps it; what refused is told already
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


def remove(path: Path) -> None:
    """Removes a folder with all that is in it, a file or a link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def fsync(path: Path) -> None:
    """Waits until a file's content, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
