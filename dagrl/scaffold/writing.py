"""New files for a user: all of them or none, and nothing that is there already is overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dagrl.errors import DagrlError, StorageError


def write_new(files: Mapping[Path, bytes]) -> list[Path]:
    """Writes all files and gives those that are new; one that is there with the same bytes is left as it is.

    Raises DagrlError naming every file that is there with other bytes, before anything is written.
    """
    try:
        new = [path for path, data in files.items() if not path.exists() or _bytes(path) != data]
        taken = [str(path) for path in new if path.exists()]
        if taken:
            raise DagrlError(f"already there: {', '.join(taken)}", how="take another name, or move them away")
        for path in new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[path])
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error
    return new


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
