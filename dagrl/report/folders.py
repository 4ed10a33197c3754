"""Reading folders and JSON files; what the operating system refuses, or a broken file, is a StorageError."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagrl.errors import StorageError


def names_in(folder: Path) -> list[str]:
    """Names in a folder, sorted; none where there is no such folder."""
    if not folder.is_dir():
        return []
    with reading(folder):
        return sorted(os.listdir(folder))


def read_mapping(file: Path) -> dict[str, Any]:
    with reading(file):
        text = file.read_text(encoding="utf-8", errors="replace")
    try:
        content = json.loads(text)
    except ValueError as error:
        raise StorageError(f"is not JSON: {error}", where=str(file)) from error
    if not isinstance(content, dict):
        raise StorageError(f"holds a {type(content).__name__}, not an object", where=str(file))
    return content


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What the operating system refuses becomes a StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
