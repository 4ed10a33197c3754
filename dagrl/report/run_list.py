"""All runs below a folder, a line each: what state they are in, how far they came, when they last gave a sign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dagrl.errors import DagrlError
from dagrl.plain_text import duration
from dagrl.report.doing_text import doing_text
from dagrl.report.reader import DEAD, Doing, RunReader, find_runs
from dagrl.report.screen import BAD, GOOD, Line, table

BROKEN = "broken"
_STYLES = {"running": GOOD, "failed": BAD, DEAD: BAD, BROKEN: BAD}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One line of the list."""

    path: Path
    state: str
    """As in `RunStatus`; `broken` where its files cannot be read."""
    step: int | None
    total_steps: int | None
    """None where the run counts epochs or is done."""
    age_s: float | None
    """Seconds since the last sign of life."""
    pid: int | None
    doing: Doing | None = None
    """What it does now; of a dead one, what it did."""
    fault: str | None = None
    """What cannot be read."""


def list_runs(root: Path) -> list[ListedRun]:
    """Oldest first."""
    return [_listed(path) for path in find_runs(root)]


def list_lines(runs: Sequence[ListedRun]) -> list[Line]:
    rows = [[str(run.path), run.state, _progress(run), _age(run), doing_text(run.doing),
             "" if run.pid is None else str(run.pid)]
            for run in runs]  # fmt: skip
    lines = table(("RUN", "STATE", "STEP", "LAST SIGN", "DOING", "PID"), rows, right=("STEP", "LAST SIGN", "PID"))
    styled = [lines[0], *((text, _STYLES.get(run.state, "")) for (text, _), run in zip(lines[1:], runs, strict=True))]
    faults = [(f"{run.path}: {run.fault}", BAD) for run in runs if run.fault is not None]
    if any(run.state == DEAD for run in runs):
        faults.append(("dead: the run says that it is running, but its process is gone from this machine", ""))
    return [*styled, *faults]


def _listed(path: Path) -> ListedRun:
    reader = RunReader(path)
    try:
        status = reader.status()
        total = None if status.state == "done" else reader.total_steps
    except DagrlError as error:
        fault = " ".join(error.what.split())
        return ListedRun(path=path, state=BROKEN, step=None, total_steps=None, age_s=None, pid=None, fault=fault)
    return ListedRun(
        path=path,
        state=status.state,
        step=status.step,
        total_steps=total,
        age_s=status.age_s(),
        pid=status.pid if status.is_running else None,
        doing=status.doing,
    )


def _progress(run: ListedRun) -> str:
    if run.step is None:
        return ""
    return str(run.step) if run.total_steps is None else f"{run.step}/{run.total_steps}"


def _age(run: ListedRun) -> str:
    return "" if run.age_s is None else f"{duration(run.age_s)} ago"
