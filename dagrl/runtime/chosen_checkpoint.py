"""Which checkpoint of a run is meant: `RUN`, `RUN@40`, `RUN@best`; only a whole one will do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dagrl.errors import DagrlError, StorageError
from dagrl.runtime import checkpoint

BEST = "best"
_WITH_PLACE = re.compile(r"(?P<run>.+)@(?P<place>[0-9]+|best)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A whole checkpoint."""

    path: Path
    step: int
    skipped: tuple[str, ...] = ()
    """A line for each newer one that is not whole and was not asked for."""


def split_reference(text: str) -> tuple[str, str | None]:
    """The run and the place in it (`40`, `best`, None for the newest). A folder's own name goes first.

    >>> split_reference("runs/marft/20260101-120000@best")
    ('runs/marft/20260101-120000', 'best')
    """
    found = _WITH_PLACE.fullmatch(text)
    if found is None or os.path.exists(text):
        return text, None
    return found["run"], found["place"]


def choose(run: Path, place: str | None, accuracies: Mapping[int, float]) -> Chosen:
    """The checkpoint at `place`; `accuracies` are the run's held-out accuracies by step.

    `best` is the checkpoint there is with the highest accuracy, of equals the latest. Raises DagrlError where there is
    none, StorageError naming the part where the one meant is damaged.
    """
    folder = run / "checkpoints"
    if place is None:
        return _newest(run)
    step = _best(folder, accuracies) if place == BEST else int(place)
    path = _folder_of(folder, step)
    if not path.is_dir():
        kept = ", ".join(str(int(one.name.removeprefix("step_"))) for one in sorted(folder.glob("step_*")))
        raise DagrlError(f"has no checkpoint of step {step}", where=str(run), how=f"there are steps {kept or '(none)'}")
    faults = checkpoint.verify(path)
    if faults:
        raise StorageError(
            f"the checkpoint is not whole: {faults[0]}", where=str(path), how="choose another with @STEP"
        )
    return Chosen(path=path, step=step)


def _newest(run: Path) -> Chosen:
    newest = checkpoint.newest(run / "checkpoints")
    if newest.path is None:
        what = newest.skipped[0] if newest.skipped else "there is none"
        raise StorageError(f"has no whole checkpoint: {what}", where=str(run))
    return Chosen(path=newest.path, step=checkpoint.step_of(newest.path), skipped=newest.skipped)


def _best(folder: Path, accuracies: Mapping[int, float]) -> int:
    kept = {step: accuracy for step, accuracy in accuracies.items() if _folder_of(folder, step).is_dir()}
    if not kept:
        raise DagrlError(
            "no checkpoint has a held-out accuracy to choose by",
            where=str(folder.parent),
            how="choose one with @STEP; config.trainer.test_freq and save_freq say when both are made",
        )
    return max(kept, key=lambda step: (kept[step], step))


def _folder_of(folder: Path, step: int) -> Path:
    return folder / f"step_{step:06d}"
