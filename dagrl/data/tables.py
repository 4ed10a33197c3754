"""Where rows come from: parquet, jsonl, json, Hugging Face names, folders. The door to pyarrow and datasets."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dagrl.errors import DataError

HASH_SUFFIX = ".sha256"
"""`rows.parquet` is checked against `rows.parquet.sha256` beside it, if there is one, as `sha256sum` writes it."""
MIN_UNPACKED_BYTES = 64 * 2**20
MAX_EXPANSION = 1_000
"""A parquet file may hold so many bytes for each of its own, or so many in all; text shrinks to a tenth."""
_BATCH_ROWS = 256
"""What a file says that it holds may be wrong: it is counted after so many rows."""
_DEFAULT_SPLITS = {"train": "train", "val": "test"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of one file or data set, as they stand in it."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, Any]]
    places: Sequence[str]
    """How each row is named in messages: `row 3` (from 0), `line 4` of a jsonl file (from 1)."""


def read_table(path: str, base: Path, split_name: str) -> Table:
    suffix = Path(path).suffix.lower()
    if suffix in _READERS:
        return _READERS[suffix](_find_file(path, base))
    if any(os.path.isfile(start / path) for start in (base, Path.cwd())):
        raise DataError("is no file of rows that can be read", where=path, how=f"one ends in {', '.join(_READERS)}")
    return _read_named(path, base, split_name)


def _find_file(path: str, base: Path) -> Path:
    tried = [base / path, Path.cwd() / path]
    for candidate in tried:
        if os.path.isfile(candidate):
            return candidate
    looked = " and ".join(dict.fromkeys(str(candidate) for candidate in tried))
    raise DataError("no such file", where=path, how=f"looked at {looked}")


def _read_parquet(path: Path) -> Table:
    try:
        content = _content_of(path)
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        rows: list[Any] = []
        for batch in _within_bounds(file, len(content), path):
            rows += batch.to_pylist()
        return _numbered(str(path), file.schema_arrow.names, rows)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:  # damaged pages may hold what is no text
        raise DataError(f"is not a readable parquet file: {error}", where=str(path)) from error


def _within_bounds(file: pq.ParquetFile, num_bytes: int, path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a file of `num_bytes`. A few packed bytes may be more than the memory holds: that is refused."""
    limit = max(MIN_UNPACKED_BYTES, MAX_EXPANSION * num_bytes)
    groups = range(file.metadata.num_row_groups)
    unpacked = sum(file.metadata.row_group(number).total_byte_size for number in groups)
    held = 0
    for batch in file.iter_batches(_BATCH_ROWS) if unpacked <= limit else ():
        held += batch.nbytes
        if held > limit:
            break
        yield batch
    if max(unpacked, held) > limit:
        raise DataError(
            f"{num_bytes:,} bytes that unpack to more than {limit:,}: this is no file of problems",
            where=str(path),
            how="write it again, as parquet or jsonl, from where the problems are",
        )


def _read_jsonl(path: Path) -> Table:
    rows: list[Any] = []
    places: list[str] = []
    for number, line in enumerate(_text_of(path).split("\n"), start=1):
        if not line.strip():
            continue
        rows.append(_parse(line, f"{path}:{number}"))
        places.append(f"line {number}")
    return Table(name=str(path), columns=_columns_of(path, rows, places), rows=rows, places=places)


def _read_json(path: Path) -> Table:
    rows = _parse(_text_of(path), str(path))
    if not isinstance(rows, list):
        raise DataError(f"holds a {type(rows).__name__}, not a list of rows", where=str(path))
    places = [f"row {number}" for number in range(len(rows))]
    return Table(name=str(path), columns=_columns_of(path, rows, places), rows=rows, places=places)


def _read_named(path: str, base: Path, split_name: str) -> Table:
    """A data set of the Hugging Face hub, or a folder of data files: `name` or `name:split`."""
    from datasets import load_dataset  # slow to import, and not needed for files

    name, _, split = path.partition(":")
    split = split or _DEFAULT_SPLITS.get(split_name, split_name)
    folder = next((str(start / name) for start in (base, Path.cwd()) if os.path.isdir(start / name)), name)
    try:
        data = load_dataset(folder, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"neither a .parquet, .jsonl or .json file nor a data set that can be loaded: {error}",
            where=path,
            how=f"asked for split '{split}'; write name:split for another, or name a file",
        ) from error
    return _numbered(path, data.column_names, data.to_list())


_READERS: dict[str, Callable[[Path], Table]] = {
    ".parquet": _read_parquet,
    ".jsonl": _read_jsonl,
    ".json": _read_json,
}


def _numbered(name: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    places = [f"row {number}" for number in range(len(rows))]
    return Table(name=name, columns=tuple(columns), rows=rows, places=places)


def _text_of(path: Path) -> str:
    try:
        return _content_of(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"cannot be read as UTF-8 text: {error}", where=str(path)) from error


def _content_of(path: Path) -> bytes:
    """All of a file. Raises DataError where it is not what the hash beside it was taken of."""
    hash_path = path.with_name(path.name + HASH_SUFFIX)
    try:
        content = path.read_bytes()
        noted = hash_path.read_text(encoding="utf-8", errors="replace").split() if hash_path.is_file() else None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if noted is not None and noted[:1] != [hashlib.sha256(content).hexdigest()]:
        raise DataError(
            f"is not the file that {hash_path.name} was made for: a part is damaged or was changed",
            where=str(path),
            how=f"make it again, or, if it was changed on purpose, remove {hash_path.name}",
        )
    return content


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", where=where) from error


def _columns_of(path: Path, rows: Sequence[Any], places: Sequence[str]) -> tuple[str, ...]:
    columns: dict[str, None] = {}
    for row, place in zip(rows, places, strict=True):
        if not isinstance(row, dict):
            raise DataError(f"{place} is a {type(row).__name__}, not a mapping of columns", where=str(path))
        columns.update(dict.fromkeys(row))
    return tuple(columns)
