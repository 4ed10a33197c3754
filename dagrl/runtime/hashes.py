"""Hashes: of a file, of a value, and JSON files sealed with the hash of what they say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagrl.errors import StorageError
from dagrl.runtime.storage import storage

_CHUNK_BYTES = 1 << 20

Entry = dict[str, Any]
"""`sha256` and `size` of a file."""


def entry_of(path: Path) -> Entry:
    digest = hashlib.sha256()
    with storage(path), path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
        return {"sha256": digest.hexdigest(), "size": file.tell()}


def sha256_of(content: Any) -> str:
    """Of `content` as JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def sealed(content: Mapping[str, Any], version: int) -> dict[str, Any]:
    """What `read_sealed` reads once it is a file; `version` is that of the form that `content` has."""
    return {"format": version, "sha256": sha256_of(content), "content": content}


def read_sealed(path: Path, version: int) -> dict[str, Any]:
    """The content of a sealed file. Raises StorageError where it is missing, changed or of another version."""
    if not path.is_file():
        raise StorageError("is missing", where=str(path))
    with storage(path):
        text = path.read_bytes()
    try:
        manifest = json.loads(text)
        content: dict[str, Any] = manifest["content"]
        is_sound = manifest["sha256"] == sha256_of(content)
        form = manifest["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"is not a manifest: {error!r}", where=str(path)) from error
    if form != version:
        raise StorageError(f"has format {form}; this version reads {version}", where=str(path))
    if not is_sound:
        raise StorageError("is not what was written", where=str(path))
    return content
