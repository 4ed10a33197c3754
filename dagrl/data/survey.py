"""What data files hold, in a few lines: for `dagrl data check`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from dagrl.data.tasks import read_tasks
from dagrl.types import Task

_SHOWN = 160
"""Characters of the first row that are shown."""
_NUM_NAMED = 3
"""Rows that a warning names."""


@dataclass(slots=True)
class Survey:
    """What was found in all files together."""

    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """Nothing that stops a run, but rarely meant."""


def survey(files: Sequence[str], *, base: Path, columns: Mapping[str, str]) -> Survey:
    """Reads every file as a run would. Raises DataError with all bad rows of the first file that has any."""
    found = Survey()
    tasks = {file: read_tasks([file], base=base, columns=columns, split_name="train") for file in files}
    for file, rows in tasks.items():
        _describe(file, rows, found)
    _compare(tasks, found)
    return found


def _describe(file: str, tasks: Sequence[Task], found: Survey) -> None:
    lengths = [len(_text(task)) for task in tasks]
    found.lines.append(f"{file}: {len(tasks)} rows, every one can be used")
    found.lines.append(f"  prompts: {_kind(tasks)}, {min(lengths)} to {max(lengths)} characters, half under "
                       f"{median(lengths):g}")  # fmt: skip
    found.lines.append(f"  ground truth: {_truths(tasks)}")
    sources = Counter(task.data_source for task in tasks)
    found.lines.append("  data_source: " + ", ".join(f"{name} ({count})" for name, count in sources.most_common(8)))
    found.lines.append(
        "  extra_info: " + (", ".join(sorted({key for task in tasks for key in task.extra_info})) or "-")
    )
    found.lines.append(f"  first row: {_short(_text(tasks[0]))} → {_short(tasks[0].ground_truth)}")
    repeated = [task_ids for task_ids in _by_prompt(tasks).values() if len(task_ids) > 1]
    if repeated:
        extra = sum(len(ids) - 1 for ids in repeated)
        found.warnings.append(f"{file}: {extra} rows repeat the prompt of another, such as {_named(repeated[0])}")
    if all(task.ground_truth is None for task in tasks):
        found.warnings.append(f"{file}: no column for the ground truth; rewards that compare answers cannot work")


def _compare(tasks: Mapping[str, Sequence[Task]], found: Survey) -> None:
    """Prompts that stand in more than one file: what is trained on must not be what is tested on."""
    names = list(tasks)
    for position, one in enumerate(names):
        for other in names[position + 1 :]:
            shared = _by_prompt(tasks[one]).keys() & _by_prompt(tasks[other]).keys()
            if shared:
                found.warnings.append(f"{len(shared)} prompts stand in both {one} and {other}")


def _by_prompt(tasks: Sequence[Task]) -> dict[str, list[str]]:
    """Prompt -> ids of its rows."""
    rows: dict[str, list[str]] = {}
    for task in tasks:
        rows.setdefault(_text(task), []).append(task.task_id)
    return rows


def _text(task: Task) -> str:
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n".join(f"{message['role']}: {message['content']}" for message in task.prompt)


def _kind(tasks: Sequence[Task]) -> str:
    texts = sum(isinstance(task.prompt, str) for task in tasks)
    return {0: "chat messages", len(tasks): "texts"}.get(texts, f"{texts} texts, {len(tasks) - texts} chat messages")


def _truths(tasks: Sequence[Task]) -> str:
    types = Counter(type(task.ground_truth).__name__ for task in tasks)
    different = len({_short(task.ground_truth) for task in tasks})
    return ", ".join(f"{name} ({count})" for name, count in types.most_common()) + f"; {different} different"


def _named(task_ids: Sequence[str]) -> str:
    return ", ".join(task_ids[:_NUM_NAMED]) + (", …" if len(task_ids) > _NUM_NAMED else "")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
