"""One row of a data file, named on the command line: `data/train.parquet:0`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dagrl.data.tasks import read_tasks
from dagrl.errors import DagrlError, DataError
from dagrl.types import Task


def read_row(named: str, *, base: Path, columns: Mapping[str, str]) -> Task:
    """The task of row `named`: `file:number`, numbers from 0; a file alone is its first row.

    Raises DagrlError where the number is none, DataError where the file cannot be used or has fewer rows.
    """
    file, colon, number = named.rpartition(":")
    if not colon or number.endswith((".parquet", ".jsonl", ".json")):
        file, number = named, "0"
    if not number.isdecimal():
        raise DagrlError(f"'{named}' names no row", how="write file:number, rows counted from 0: data/train.parquet:0")
    tasks = read_tasks([file], base=base, columns=columns, split_name="train")
    if int(number) >= len(tasks):
        raise DataError(f"has {len(tasks)} rows, there is no row {number}", where=file, how="rows are counted from 0")
    return tasks[int(number)]
