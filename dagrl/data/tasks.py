"""Rows to tasks: which column holds what, and every fault of a file's rows at once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagrl.data.tables import Table, read_table
from dagrl.data.task_images import with_images
from dagrl.errors import DataError
from dagrl.images import are_parts
from dagrl.types import Task

if TYPE_CHECKING:
    from dagrl.workflow.sections import DataSpec

FIELDS: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt", "problem", "question"),
    "images": ("images",),
    "ground_truth": ("reward_model.ground_truth", "ground_truth", "answer", "solution"),
    "data_source": ("data_source",),
    "extra_info": ("extra_info",),
    "task_id": ("task_id",),
}
"""What a task is made of, and the columns each part is looked for in, best first; a dot goes into a nested column."""

NUM_FAULTS_SHOWN = 5
MAX_TEXT_CHARS = 5_000_000
"""Longest text of a row: more than a million tokens, no problem but a file in the wrong place."""
_ABSENT = object()

Tell = Callable[[str], None]
"""Is told which rows were left out."""


class _Faults:
    """Bad rows of one table, gathered so that all are reported at once."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._found: dict[int, str] = {}

    def add(self, row: int, column: str, what: str) -> None:
        self._found.setdefault(row, f"{self._table.places[row]}, column '{column}': {what}")

    def __contains__(self, row: int) -> bool:
        return row in self._found

    def settle(self, left_out: Tell | None) -> None:
        """Raises DataError if there is any, or tells `left_out` instead."""
        if not self._found:
            return
        shown = list(self._found.values())[:NUM_FAULTS_SHOWN]
        if len(self._found) > len(shown):
            shown.append(f"and {len(self._found) - len(shown)} more")
        count, rows = f"{len(self._found)} of {len(self._table.rows)} rows", "\n  ".join(shown)
        if left_out is None:
            raise DataError(
                f"{count} cannot be used:\n  {rows}",
                where=self._table.name,
                how="mend or remove these rows, leave them out with data.on_bad_row=drop, or name other columns with"
                " data.columns",
            )
        left_out(f"{self._table.name}: {count} are left out:\n  {rows}")


def read_tasks(
    paths: Sequence[str],
    *,
    base: Path,
    columns: Mapping[str, str],
    split_name: str,
    set_name: str = "",
    left_out: Tell | None = None,
) -> list[Task]:
    """All rows of `paths` in order: files (found from `base`, then the working directory) or Hugging Face names.

    `columns` maps parts of a task (`FIELDS`) to columns and goes before what is found by itself. Columns that are not
    used otherwise are kept in `extra_info`. Without a `task_id` column a task is called `<split>:<extra_info.index>`
    where every row has an index of its own, else `<split>:<row>`, rows counted over all files. A data set without any
    column for the ground truth gives tasks whose ground truth is None. `set_name` stands for the split in the
    names of tasks.

    No paths give no tasks. Raises DataError naming file, row and column; all bad rows of a file at once. With
    `left_out` such rows are left out and told to it.
    """
    _check_columns_option(columns)
    seen: dict[str, str] = {}
    drafts: list[dict[str, Any]] = []
    num_rows = 0
    for path in paths:
        table = read_table(path, base, split_name)
        for draft in _drafts(table, columns, seen, left_out):
            drafts.append({**draft, "row": num_rows + draft["row"]})
        num_rows += len(table.rows)
    if paths and not drafts:
        usable = " that can be used" if num_rows else ""
        raise DataError(f"the {split_name} data has no rows{usable}", where=", ".join(paths))
    ids = _task_ids(drafts, set_name or split_name)
    return [Task(task_id=task_id, **draft["task"]) for task_id, draft in zip(ids, drafts, strict=True)]


def tasks_of(
    data: DataSpec, files: Sequence[str], split_name: str, *, base: Path, tell: Tell, set_name: str = ""
) -> list[Task]:
    """The rows of `files`, read as `data` says: bad ones are a `DataError`, or left out and told."""
    left_out = tell if data.on_bad_row == "drop" else None
    return read_tasks(
        files, base=base, columns=data.columns, split_name=split_name, set_name=set_name, left_out=left_out
    )


def _check_columns_option(columns: Mapping[str, str]) -> None:
    for name in columns:
        if name not in FIELDS:
            raise DataError(
                f"'{name}' is not part of a task",
                where="data.columns",
                how=_nearest(name, FIELDS) or f"parts of a task: {', '.join(FIELDS)}",
            )


def _drafts(
    table: Table, columns: Mapping[str, str], seen: dict[str, str], left_out: Tell | None
) -> list[dict[str, Any]]:
    """For each row its number (`row`), its task's fields but the id (`task`), and the id it names (`id`, or None).

    `seen` gathers the ids of all files, each with its place.
    """
    if not table.rows:
        return []
    chosen = {name: _choose(table, name, columns.get(name)) for name in FIELDS}
    faults = _Faults(table)
    folder = Path(table.name).parent
    drafts = [_draft(number, row, chosen, faults, folder) for number, row in enumerate(table.rows)]
    for number, draft in enumerate(drafts):
        if draft["id"] is None or number in faults:
            continue
        task_id = str(draft["id"])
        if task_id in seen:
            faults.add(number, chosen["task_id"] or "task_id", f"'{task_id}' is the id of {seen[task_id]} already")
        else:
            seen[task_id] = f"{table.places[number]} of {table.name}"
    faults.settle(left_out)
    return [draft for number, draft in enumerate(drafts) if number not in faults]


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


def _draft(
    number: int, row: Mapping[str, Any], chosen: Mapping[str, str | None], faults: _Faults, folder: Path
) -> dict[str, Any]:
    """`folder`: where the paths of images begin."""
    values: dict[str, Any] = {}
    for name, column in chosen.items():
        if column is None:
            continue
        value = _value(row, column)
        fault = _FIELD_FAULTS[name](value)
        if fault is not None:
            faults.add(number, column, fault)
        values[name] = value
    if number not in faults:
        try:
            values["prompt"], values["images"] = with_images(values["prompt"], values.get("images"), folder)
        except ValueError as error:
            faults.add(number, chosen["prompt"] or "prompt", str(error))
    parts = ("prompt", "images", "ground_truth", "data_source")
    task: dict[str, Any] = {name: values[name] for name in parts if name in values}
    task["extra_info"] = _extra_info(row, chosen, values.get("extra_info"))
    return {"row": number, "task": task, "id": values.get("task_id")}


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
        return _content_fault(value)
    if not isinstance(value, Sequence):
        return _got(value, "a text or a list of messages")
    if not value:
        return "is an empty list of messages"
    return next((fault for number, message in enumerate(value) if (fault := _message_fault(number, message))), None)


def _message_fault(number: int, message: Any) -> str | None:
    if not isinstance(message, Mapping):
        return f"message {number} {_got(message, 'a mapping with role and content')}"
    content = message.get("content", _ABSENT)
    texts = {"role": [message.get("role", _ABSENT)], "content": [content]}
    if isinstance(content, (list, tuple)) and content:
        shape = "a list of parts, each with its type"
        if not are_parts(content):
            return f"'content' of message {number} {_got(content, shape)}"
        texts["content"] = [part.get("text", _ABSENT) for part in content if part["type"] == "text"]
    for key, found in texts.items():
        fault = next((fault for text in found if (fault := _text_fault(text)) is not None), None)
        if fault is not None:
            return f"'{key}' of message {number} {fault}"
    return None


def _text_fault(value: Any) -> str | None:
    return _content_fault(value) if isinstance(value, str) else _got(value, "a text")


def _content_fault(text: str) -> str | None:
    if not text.strip():
        return "is empty"
    if len(text) > MAX_TEXT_CHARS:
        return f"has {len(text):,} characters, more than {MAX_TEXT_CHARS:,}"
    if "\0" in text:
        return f"holds a NUL, as character {text.index(chr(0))}"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"holds half of a surrogate pair, as character {error.start}"
    return None


def _images_fault(value: Any) -> str | None:
    return _got(value, "images") if value is _ABSENT else None


def _ground_truth_fault(value: Any) -> str | None:
    if value is _ABSENT or value is None:
        return _got(value, "an answer")
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}"
    return _content_fault(value) if isinstance(value, str) else None


def _extra_info_fault(value: Any) -> str | None:
    return None if value is None or value is _ABSENT or isinstance(value, Mapping) else _got(value, "a mapping")


def _task_id_fault(value: Any) -> str | None:
    if isinstance(value, str):
        return _content_fault(value)
    return None if _is_index(value) else _got(value, "a text or a whole number")


_FIELD_FAULTS: dict[str, Callable[[Any], str | None]] = {
    "prompt": _prompt_fault,
    "images": _images_fault,
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
        return [str(name) for name in named]
    indices = [draft["task"]["extra_info"].get("index") for draft in drafts]
    if all(_is_index(index) for index in indices) and len({str(index) for index in indices}) == len(indices):
        return [f"{split_name}:{index}" for index in indices]
    return [f"{split_name}:{draft['row']}" for draft in drafts]


def _nearest(word: str, known: Sequence[str] | Mapping[str, Any]) -> str | None:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else None
