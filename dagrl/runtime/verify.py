"""Is a run folder whole, and do its numbers come out again? Every damaged part is named; nothing is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagrl.data.trajectory_files import read_columns
from dagrl.errors import DagrlError, StorageError
from dagrl.runtime import checkpoint, manifest
from dagrl.runtime.hashes import entry_of
from dagrl.runtime.metrics import METRICS_FILE, TIMINGS_FILE
from dagrl.runtime.recompute import Recomputed, recompute_evaluation, recompute_step, spread
from dagrl.runtime.run_folder import LOCK_FILE, RunFolder
from dagrl.workflow.graph import Workflow, load_workflow

FEW = 5
"""Steps whose numbers are computed again unless more are asked for."""
_OWN_FOLDERS = ("trajectories/", "code/", "checkpoints/")
"""Where a file that the run did not write is a fault."""
_STEP_FILE = re.compile(r"step_(\d+)\.parquet")
_SHOWN_WRONG = 20

Row = Mapping[str, Any]


@dataclass(slots=True)
class Verdict:
    """What is wrong with a run, and what could not be looked at."""

    damaged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    num_files: int = 0
    """With a hash that was checked."""
    num_checkpoints: int = 0
    steps: list[int] = field(default_factory=list)
    """Whose numbers were computed again."""
    num_numbers: int = 0


def verify(run: Path, num_steps: int | None = FEW) -> Verdict:
    """Looks at everything in `run`; the numbers of `num_steps` steps are computed again, of all if None.

    Raises DagrlError where a process is writing to it.
    """
    _refuse_busy(run)
    verdict = Verdict()
    _check_hashes(run, verdict)
    _check_checkpoints(run, verdict)
    rows = _check_metrics(run, verdict)
    _check_trajectories(run, rows, verdict)
    _check_numbers(run, rows, num_steps, verdict)
    return verdict


def _refuse_busy(run: Path) -> None:
    if not (run / LOCK_FILE).is_file():
        return
    try:
        RunFolder(run).close()
    except StorageError:
        return  # lent read-only: nobody writes to it


def _check_hashes(run: Path, verdict: Verdict) -> None:
    if not (run / manifest.MANIFEST).is_file():
        verdict.notes.append("there is no manifest.json, so nothing has a hash to be checked by, but for checkpoints")
        return
    try:
        content = manifest.read(run)
    except StorageError as error:
        verdict.damaged.append(f"{manifest.MANIFEST}: {error.what}")
        return
    files = content["files"]
    if files is None:
        verdict.notes.append("the run did not come to its end: only code and checkpoints have hashes to be checked by")
        files = {f"code/{name}": entry for name, entry in content["inputs"]["code"].items()}
    else:
        extra = set(manifest.written_files(run)) - set(files)
        verdict.damaged += [f"{name}: was not there when the run ended" for name in sorted(extra) if _is_own(name)]
    for name, entry in files.items():
        verdict.num_files += 1
        if not (run / name).is_file():
            verdict.damaged.append(f"{name}: is missing")
        elif entry_of(run / name) != entry:
            verdict.damaged.append(f"{name}: is not what the run wrote")


def _is_own(name: str) -> bool:
    return name.startswith(_OWN_FOLDERS)


def _check_checkpoints(run: Path, verdict: Verdict) -> None:
    for path in sorted((run / manifest.CHECKPOINTS).glob("step_*")):
        verdict.num_checkpoints += 1
        verdict.damaged += [fault.removeprefix(f"{run}/") for fault in checkpoint.verify(path)]


def _check_metrics(run: Path, verdict: Verdict) -> list[Row]:
    """The rows that can be read; a line for each that cannot, and for steps that are missing."""
    rows = list(_rows(run / METRICS_FILE, verdict))
    steps = [int(row["step"]) for row in rows if "trajectory/count" in row]
    for before, after in zip([0, *steps], steps):
        if after != before + 1:
            verdict.damaged.append(f"{METRICS_FILE}: step {after} comes after step {before}")
    clocks = [row["step"] for row in _rows(run / TIMINGS_FILE, verdict)]
    if clocks != [row["step"] for row in rows]:
        verdict.damaged.append(f"{TIMINGS_FILE}: its steps are not those of {METRICS_FILE}")
    return rows


def _rows(path: Path, verdict: Verdict) -> Iterator[Row]:
    if not path.is_file():
        verdict.damaged.append(f"{path.name}: is missing")
        return
    *lines, rest = path.read_bytes().split(b"\n")
    if rest:
        verdict.damaged.append(f"{path.name}: its last line is not finished")
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            row["step"] + 0
        except (ValueError, TypeError, KeyError):
            verdict.damaged.append(f"{path.name} line {number}: is not a row of numbers")
        else:
            yield row


def _check_trajectories(run: Path, rows: list[Row], verdict: Verdict) -> None:
    there = set()
    for path in sorted((run / "trajectories").glob("*.parquet")):
        try:
            read_columns(path)
        except StorageError as error:
            verdict.damaged.append(f"trajectories/{path.name}: {error.what}")
        found = _STEP_FILE.fullmatch(path.name)
        there |= set() if found is None else {int(found[1])}
    done = {int(row["step"]) for row in rows if "trajectory/count" in row}
    if there:
        verdict.damaged += [f"trajectories/step_{step:06d}.parquet: is missing" for step in sorted(done - there)]


def _check_numbers(run: Path, rows: list[Row], num_steps: int | None, verdict: Verdict) -> None:
    try:
        workflow = load_workflow(run / "workflow.yaml")
    except DagrlError as error:
        verdict.damaged.append(f"workflow.yaml: {error.what.splitlines()[0]}")
        return
    found = Recomputed()
    steps = [int(row["step"]) for row in rows if _step_file(run, row).is_file()]
    wanted = set(spread(sorted(set(steps)), num_steps))
    for row in rows:
        if int(row["step"]) in wanted:
            _try(_recompute(row), workflow, _step_file(run, row), row, found)
    verdict.steps = sorted(wanted)
    verdict.num_numbers = found.num_numbers
    verdict.damaged += found.wrong[:_SHOWN_WRONG]
    if len(found.wrong) > _SHOWN_WRONG:
        verdict.damaged.append(f"and {len(found.wrong) - _SHOWN_WRONG} more numbers that do not come out again")
    verdict.notes += [f"not computed again: {what}" for what in sorted(found.left_out)]


def _recompute(row: Row) -> Callable[[Workflow, Path, Row, Recomputed], None]:
    return recompute_step if "trajectory/count" in row else recompute_evaluation


def _step_file(run: Path, row: Row) -> Path:
    kind = "step" if "trajectory/count" in row else "eval"
    return run / "trajectories" / f"{kind}_{int(row['step']):06d}.parquet"


def _try(
    compute: Callable[[Workflow, Path, Row, Recomputed], None],
    workflow: Workflow,
    path: Path,
    row: Row,
    found: Recomputed,
) -> None:
    """A file that cannot be read is named already; one whose values make no sense is named here."""
    try:
        compute(workflow, path, row, found)
    except StorageError:
        return
    except (AssertionError, RuntimeError, ValueError, KeyError, TypeError, IndexError) as error:
        found.wrong.append(f"trajectories/{path.name}: its numbers cannot be computed again: {error!r}")
