"""Rows to tasks: which column holds what, and every fault of a file's rows at once."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagrl.data.tables import Table, read_table
from dagrl.errors import DataError
from dagrl.types import Task

FIELDS: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt", "problem", "question"),
    "ground_truth": ("reward_model.ground_truth", "ground_truth", "answer", "solution"),
    "data_source": ("data_source",),
    "extra_info": ("extra_info",),
    "task_id": ("task_id",),
}
"""What a task is made of, and the columns each part is looked for in, best first; a dot goes into a nested column."""

NUM_FAULTS_SHOWN = 5
_ABSENT = object()


class _Faults:
    """Bad rows of one table, gathered so that all are reported at once."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._found: dict[int, str] = {}

    def add(self, row: int, column: str, what: str) -> None:
        self._found.setdefault(row, f"{self._table.places[row]}, column '{column}': {what}")

    def raise_if_any(self) -> None:
        if not self._found:
            return
        shown = list(self._found.values())[:NUM_FAULTS_SHOWN]
        if len(self._found) > len(shown):
            shown.append(f"and {len(self._found) - len(shown)} more")
        raise DataError(
            f"{len(self._found)} of {len(self._table.rows)} rows cannot be used:\n  " + "\n  ".join(shown),
            where=self._table.name,
            how="mend or remove these rows, or name other columns with data.columns",
        )


def read_tasks(paths: Sequence[str], *, base: Path, columns: Mapping[str, str], split_name: str) -> list[Task]:
    """All rows of `paths` in order: files (found from `base`, then the working directory) or Hugging Face names.

    `columns` maps parts of a task (`FIELDS`) to columns and goes before what is found by itself. Columns that are not
    used otherwise are kept in `extra_info`. Without a `task_id` column a task is called `<split>:<extra_info.index>`
    where every row has an index of its own, else `<split>:<row>`, rows counted over all files. A data set without any
    column for the ground truth gives tasks whose ground truth is None.

    No paths give no tasks. Raises DataError naming file, row and column; all bad rows of a file at once.
    """
    _check_columns_option(columns)
    drafts = [draft for path in paths for draft in _drafts(read_table(path, base, split_name), columns)]
    if paths and not drafts:
        raise DataError(f"the {split_name} data has no rows", where=", ".join(paths))
    ids = _task_ids(drafts, split_name)
    return [Task(task_id=task_id, **draft["task"]) for task_id, draft in zip(ids, drafts, strict=True)]


def _check_columns_option(columns: Mapping[str, str]) -> None:
    for name in columns:
        if name not in FIELDS:
            raise DataError(
                f"'{name}' is not part of a task",
                where="data.columns",
                how=_nearest(name, FIELDS) or f"parts of a task: {', '.join(FIELDS)}",
            )


def _drafts(table: Table, columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """For each row its task's fields but the id (`task`), and the id it names (`id`, None if it names none)."""
    if not table.rows:
        return []
    chosen = {name: _choose(table, name, columns.get(name)) for name in FIELDS}
    faults = _Faults(table)
    drafts = [_draft(number, row, chosen, faults) for number, row in enumerate(table.rows)]
    faults.raise_if_any()
    return drafts


def _choose(table: Table, name: str, wanted: str | None) -> str | None:
    """The column that `name` is read from; None where an optional one is absent."""
    candidates = FIELDS[name] if wanted is None else (wanted,)
    for column in candidates:
        if _has_column(table, column):
            return column
    if wanted is None and name != "prompt":
        return None
    have = f"it has {', '.join(table.columns)}"
    near = _nearest(candidates[0], table.columns)
    raise DataError(
        f"has no column for '{name}': looked for {', '.join(candidates)}",
        where=table.name,
        how=f"{have}; {near or f'name it with data.columns: {{{name}: <column>}}'}",
    )


def _has_column(table: Table, column: str) -> bool:
    outer, _, inner = column.partition(".")
    if column in table.columns or outer not in table.columns:
        return column in table.columns
    return bool(inner) and any(isinstance(row.get(outer), Mapping) and inner in row[outer] for row in table.rows)


def _value(row: Mapping[str, Any], column: str) -> Any:
    if column in row:
        return row[column]
    outer, _, inner = column.partition(".")
    nested = row.get(outer, _ABSENT)
    return nested.get(inner, _ABSENT) if isinstance(nested, Mapping) else _ABSENT


def _draft(number: int, row: Mapping[str, Any], chosen: Mapping[str, str | None], faults: _Faults) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, column in chosen.items():
        if column is None:
            continue
        value = _value(row, column)
        fault = _FIELD_FAULTS[name](value)
        if fault is not None:
            faults.add(number, column, fault)
        values[name] = value
    task: dict[str, Any] = {name: values[name] for name in ("prompt", "ground_truth", "data_source") if name in values}
    task["extra_info"] = _extra_info(row, chosen, values.get("extra_info"))
    return {"task": task, "id": values.get("task_id")}


def _extra_info(row: Mapping[str, Any], chosen: Mapping[str, str | None], given: Any) -> dict[str, Any]:
    """The row's own `extra_info` over all columns that are not used otherwise."""
    used = {column for column in chosen.values() if column is not None}
    extra: dict[str, Any] = {}
    for column, value in row.items():
        inner = {name.partition(".")[2] for name in used if name.partition(".")[0] == column and name != column}
        if inner and isinstance(value, Mapping):
            extra[column] = {key: part for key, part in value.items() if key not in inner}
        elif column not in used:
            extra[column] = value
    return {**extra, **given} if isinstance(given, Mapping) else extra


def _prompt_fault(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value.strip() else "is empty"
    if not isinstance(value, Sequence):
        return _got(value, "a text or a list of messages")
    if not value:
        return "is an empty list of messages"
    return next((fault for number, message in enumerate(value) if (fault := _message_fault(number, message))), None)


def _message_fault(number: int, message: Any) -> str | None:
    if not isinstance(message, Mapping):
        return f"message {number} {_got(message, 'a mapping with role and content')}"
    for key in ("role", "content"):
        fault = _text_fault(message.get(key, _ABSENT))
        if fault is not None:
            return f"'{key}' of message {number} {fault}"
    return None


def _text_fault(value: Any) -> str | None:
    if not isinstance(value, str):
        return _got(value, "a text")
    return None if value.strip() else "is empty"


def _ground_truth_fault(value: Any) -> str | None:
    if value is _ABSENT or value is None:
        return _got(value, "an answer")
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}"
    return "is empty" if isinstance(value, str) and not value.strip() else None


def _extra_info_fault(value: Any) -> str | None:
    return None if value is None or value is _ABSENT or isinstance(value, Mapping) else _got(value, "a mapping")


def _task_id_fault(value: Any) -> str | None:
    return None if _is_index(value) else _got(value, "a text or a whole number")


_FIELD_FAULTS: dict[str, Callable[[Any], str | None]] = {
    "prompt": _prompt_fault,
    "ground_truth": _ground_truth_fault,
    "data_source": _text_fault,
    "extra_info": _extra_info_fault,
    "task_id": _task_id_fault,
}


def _got(value: Any, wanted: str) -> str:
    if value is _ABSENT:
        return "is missing"
    if value is None:
        return "is null"
    return f"is {value!r:.60} ({type(value).__name__}), not {wanted}"


def _is_index(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and bool(value.strip()))


def _task_ids(drafts: Sequence[Mapping[str, Any]], split_name: str) -> list[str]:
    named = [draft["id"] for draft in drafts]
    if all(name is not None for name in named):
        _refuse_repeated([str(name) for name in named])
        return [str(name) for name in named]
    indices = [draft["task"]["extra_info"].get("index") for draft in drafts]
    if all(_is_index(index) for index in indices) and len({str(index) for index in indices}) == len(indices):
        return [f"{split_name}:{index}" for index in indices]
    return [f"{split_name}:{row}" for row in range(len(drafts))]


def _refuse_repeated(ids: Sequence[str]) -> None:
    repeated = [task_id for task_id, times in Counter(ids).items() if times > 1]
    if repeated:
        raise DataError(f"{len(repeated)} task ids stand more than once, such as '{repeated[0]}'", where="task_id")


def _nearest(word: str, known: Sequence[str] | Mapping[str, Any]) -> str | None:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else None
