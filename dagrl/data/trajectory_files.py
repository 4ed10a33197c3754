"""Reading the trajectory log back, without torch: a row per turn, its clocks from the file beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dagrl.errors import StorageError


def read_trajectories(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that `TrajectoryLog` wrote, a dict per turn. Raises StorageError where it is not readable."""
    rows: list[dict[str, Any]] = read_columns(path).to_pylist()
    return rows


def read_columns(path: Path, wanted: Sequence[str] | None = None) -> pa.Table:
    """The columns `wanted` of a file that `TrajectoryLog` wrote, those of its clocks too; all if None.

    Columns that are not there are left out. Raises StorageError where the file is not readable.
    """
    table = _read_present(path, wanted)
    if (wanted is not None and set(wanted) <= set(table.column_names)) or not clocks_of(path).exists():
        return table
    clocks = _read_present(clocks_of(path), wanted)
    for name in clocks.column_names:
        table = table.append_column(name, clocks[name])
    return table


def clocks_of(path: Path) -> Path:
    """Where the clocks of the turns in `path` stand: apart, so that `path` is the same whenever the run is repeated."""
    return path.with_suffix(".timings.parquet")


def _read_present(path: Path, wanted: Sequence[str] | None) -> pa.Table:
    try:
        with pq.ParquetFile(path) as file:
            present = file.schema_arrow.names
            return file.read(columns=[name for name in present if wanted is None or name in wanted])
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"is not a readable parquet file: {error}", where=str(path)) from error
