"""Resuming a run: which checkpoint, whether anything was changed since, and everything put back as it was."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagrl.backends.pool import ModelPool
from dagrl.errors import DagrlError, StorageError
from dagrl.runtime import checkpoint, identity, trace
from dagrl.runtime.ledger import LEDGER_FILE
from dagrl.runtime.line_log import cut_to
from dagrl.runtime.metrics import cut_back
from dagrl.runtime.process_random import set_random_state
from dagrl.runtime.storage import TEMP_PREFIX, remove, storage
from dagrl.runtime.trainer import Trainer
from dagrl.trace_events import TRACE_FILE
from dagrl.workflow.graph import Workflow

LATEST = "latest"
_STEP_OF_FILE = re.compile(r"(?:step|eval)_(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """A whole checkpoint and what it holds besides the models."""

    path: Path
    step: int
    state: Mapping[str, Any]
    skipped: tuple[str, ...]
    """A line for each newer checkpoint that is not whole."""


def find_run(ref: str, runs_dir: Path) -> Path:
    """The run folder that `ref` names: a path, or `latest`, the run below `runs_dir` that was written to last."""
    if ref != LATEST:
        if not Path(ref).is_dir():
            raise DagrlError("there is no such run folder", where=ref, how="give a run folder, or 'latest'")
        return Path(ref).resolve()
    runs = sorted(runs_dir.glob("*/*/status.json"), key=lambda file: (file.stat().st_mtime, str(file)))
    if not runs:
        raise DagrlError(f"there is no run in {runs_dir}", where="--resume latest", how="give a run folder")
    return runs[-1].parent.resolve()


def find_point(run: Path, *, steps_back: bool) -> ResumePoint:
    """The newest checkpoint of `run`. One that is not whole is an error that names the part, or, with `steps_back`,
    left out for the newest whole one. Raises StorageError; a run never starts again from its initial weights."""
    newest = checkpoint.newest(run / "checkpoints")
    if newest.skipped and not steps_back:
        raise StorageError(newest.skipped[0], where=str(run), how="`--resume latest` takes the newest whole one")
    point = _point(newest)
    if point is None:
        raise StorageError(
            "has no whole checkpoint to go on from", where=str(run), how="start a new run with `dagrl run --workflow`"
        )
    return point


def find_point_before(run: Path, step: int) -> ResumePoint | None:
    """The newest whole checkpoint of `run` after at most `step` steps; None where the initial weights are newer."""
    return _point(checkpoint.newest(run / "checkpoints", at_most=step))


def _point(newest: checkpoint.Newest) -> ResumePoint | None:
    if newest.path is None:
        return None
    return ResumePoint(
        path=newest.path,
        step=checkpoint.step_of(newest.path),
        state=checkpoint.load_state(newest.path),
        skipped=newest.skipped,
    )


def differences(run: Path, *, resolved: str, code: Sequence[Path]) -> str:
    """What was changed since the run began, as unified differences; empty where nothing was.

    `resolved` is the text of the workflow now, `code` the files of the user's code that it names now.
    """
    before = (run / "workflow.yaml").read_text(encoding="utf-8")
    changes = _diff(before, resolved, "workflow.yaml")
    hashes: dict[str, str] = json.loads((run / "code" / "hashes.json").read_text(encoding="utf-8"))
    kept = {digest: run / "code" / name for name, digest in hashes.items()}
    by_name = {Path(name).name: run / "code" / name for name in hashes}
    for file in code:
        with storage(file):
            content = file.read_bytes()
        if hashlib.sha256(content).hexdigest() in kept:
            continue
        old = by_name.get(file.name)
        text = "" if old is None else old.read_text(encoding="utf-8", errors="replace")
        changes += _diff(text, content.decode(errors="replace"), file.name)
    return changes


def cut_back_to(run: Path, point: ResumePoint) -> None:
    """Takes away what the run wrote after the checkpoint, for it will be written again, and what was not finished.

    Only for who holds the run folder's lock.
    """
    checkpoint.remove_leftovers(run / "checkpoints")
    for folder in (run, run / "trajectories", run / "failures"):
        for leftover in folder.glob(f"{TEMP_PREFIX}*"):
            with storage(leftover):
                remove(leftover)
    cut_back(run, point.state["files"])
    trace.cut_back(run / TRACE_FILE, point.state["files"].get(TRACE_FILE))
    cut_to(run / LEDGER_FILE, point.state["files"].get(LEDGER_FILE))
    for file in (run / "trajectories").glob("*.parquet"):
        found = _STEP_OF_FILE.match(file.name)
        if found is not None and int(found[1]) > point.step:
            with storage(file):
                file.unlink()


def restore(point: ResumePoint, workflow: Workflow, pool: ModelPool, trainer: Trainer) -> None:
    """Puts back weights, optimizers, positions, controllers and random states.

    Raises StorageError where the checkpoint is of another workflow, model or tokenizer.
    """
    restore_models(point, workflow, pool)
    trainer.load_state_dict(point.state)
    set_random_state(point.state["random"])


def restore_models(point: ResumePoint, workflow: Workflow, pool: ModelPool) -> None:
    """Puts back the weights of every policy and critic that is trained, with its optimizer; refuses as `restore`."""
    identity.check(point.path, identity.identities(workflow, pool))
    models = point.state["models"]
    restore_policies(point.path, workflow, pool)
    for group in workflow.groups:
        if group.is_trained:
            pool.policy(group.index).load_state_dict(models[f"agent_{group.name}"])
    for owner, critic in pool.critics().items():
        name = f"critic_{workflow.groups[owner].name}"
        critic.load(point.path / name)
        critic.load_state_dict(models[name])


def restore_policies(
    path: Path, workflow: Workflow, pool: ModelPool, *, only: Collection[int] | None = None
) -> None:
    """Puts back the weights of every trained agent (of the groups `only`) from the checkpoint at `path`, nothing else.

    Raises StorageError where an agent has another model or tokenizer there.
    """
    identity.check(path, identity.agents(workflow, pool))
    for group in workflow.groups:
        if group.is_trained and (only is None or group.index in only):
            pool.policy(group.index).load(path / f"agent_{group.name}")


def _diff(before: str, after: str, name: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{name} (the run)", f"{name} (now)"
    )
    return "".join(lines)
