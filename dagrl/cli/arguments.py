"""Arguments that several commands share: rows, `key=value`, columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagrl.errors import DagrlError
from dagrl.workflow.load import parse_value, scalar
from dagrl.workflow.tree import COMMAND_LINE, Mark, plain

if TYPE_CHECKING:
    from dagrl.types import Task

ROW_HELP = "A row of a data file, counted from 0: data/train.parquet:0."
COLUMN_HELP = "part=column, where a column has another name: prompt=problem."


def key_values(words: Sequence[str] | None) -> dict[str, Any]:
    """`key=value …`: numbers, true, false and null are what they look like; what begins with [ { " or ' is YAML.

    Anything else is a text as it stands. Raises DagrlError.
    """
    found: dict[str, Any] = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise DagrlError(f"'{word}' is not key=value")
        is_yaml = value.startswith(("[", "{", '"', "'"))
        found[key] = plain(parse_value(value, Mark(COMMAND_LINE))) if is_yaml else scalar(value)
    return found


def columns_of(words: Sequence[str] | None) -> dict[str, str]:
    """`part=column …`."""
    return {key: str(value) for key, value in key_values(words).items()}


def task_of(row: str | None, prompt: str | None, ground_truth: str | None, columns: Sequence[str] | None) -> Task:
    """The task of `row`, or one that has only what is given; what is given goes before what the row says."""
    from dataclasses import replace

    from dagrl.data.rows import read_row
    from dagrl.types import Task

    task = Task(task_id="trial:0", prompt="")
    if row is not None:
        task = read_row(row, base=Path(), columns=columns_of(columns))
    if prompt is not None:
        task = replace(task, prompt=prompt)
    return task if ground_truth is None else replace(task, ground_truth=ground_truth)
