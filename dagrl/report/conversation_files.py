"""The files of conversations in a run folder: of steps, of evaluations, and of what `dagrl eval` kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dagrl.errors import DagrlError
from dagrl.report.folders import names_in
from dagrl.workflow.nearest import did_you_mean

STEP, EVALUATION, JUDGED = "step", "eval", "judged"
"""Kinds: trained on; held out, played by the run; played by `dagrl eval` after it."""
LATEST = "latest"

_NAME = re.compile(r"(step|eval)_(\d{6,})(?:@([\w.-]+?))?(?:_without_(.+))?(?<!\.timings)\.parquet")
"""The clocks beside each file are none of them."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TrajectoryFile:
    """One parquet file of a run; ordered by step."""

    step: int
    kind: str
    """`step`, `eval` or `judged`."""
    held_out: str = ""
    """Set of an evaluation; empty for the one that the run goes by."""
    without: str = ""
    """Node whose text was left out of an evaluation; empty for none."""
    time: str = ""
    """Of `dagrl eval`: when, as its file in evaluations/ is called; else empty."""
    path: Path

    @property
    def name(self) -> str:
        """No other file of the run is called so."""
        return f"{JUDGED}_{self.time}" if self.kind == JUDGED else self.path.stem

    def __str__(self) -> str:
        if self.kind == STEP:
            return f"step {self.step}"
        who = f"dagrl eval of {self.time}, after" if self.kind == JUDGED else "held out after"
        of = f", {self.held_out}" if self.held_out else ""
        return f"{who} step {self.step}{of}" + (f", without {self.without}" if self.without else "")


def trajectory_files(run: Path) -> list[TrajectoryFile]:
    """Of steps and evaluations, all that are there and whole, oldest first; at a step the trained ones come after the
    held-out ones."""
    folder = run / "trajectories"
    found = [(match, folder / name) for name in names_in(folder) if (match := _NAME.fullmatch(name))]
    return sorted(
        TrajectoryFile(
            step=int(match[2]), kind=match[1], held_out=match[3] or "", without=match[4] or "", path=path
        )
        for match, path in found
    )


def judged_files(run: Path) -> list[TrajectoryFile]:
    """What `dagrl eval` kept in evaluations/, oldest first."""
    found = []
    for time in sorted(names_in(run / "evaluations"), key=_age):
        folder = run / "evaluations" / time
        for name in names_in(folder):
            if match := _NAME.fullmatch(name):
                without, path = match[4] or "", folder / name
                found.append(TrajectoryFile(step=int(match[2]), kind=JUDGED, without=without, time=time, path=path))
    return found


def chosen_file(
    files: Sequence[TrajectoryFile], step: int | None, kind: str, without: str, where: str, *, held_out: str = ""
) -> TrajectoryFile:
    """The one of step `step`, of the last where that is None. Raises DagrlError, naming those that there are."""
    _check_set(files, held_out, where)
    of_kind = [file for file in files if file.kind == kind and file.held_out == held_out]
    own = [file for file in of_kind if file.without == without]
    found = next((file for file in reversed(own) if step in (None, file.step)), None)
    if found is not None:
        return found
    which = "training" if kind == STEP else "held-out"
    left_out = sorted({file.without for file in of_kind if file.without})
    if own:
        there = f"there are steps {_ranges([file.step for file in own])}"
        how = None
    elif without and left_out:
        there = f"what was left out is {', '.join(left_out)}"
        how = did_you_mean(without, left_out)
    else:
        there = "the run has not written any"
        how = _to_get(kind, without)
    at = "" if step is None else f" of step {step}"
    less = f" without '{without}'" if without else ""
    raise DagrlError(f"no {which} trajectories{at}{less}; {there}", where=where, how=how)


def _check_set(files: Sequence[TrajectoryFile], held_out: str, where: str) -> None:
    known = sorted({file.held_out for file in files if file.held_out})
    if held_out and held_out not in known:
        there = f"there are {', '.join(known)}" if known else "there is only one"
        how = "the set that counts (config.trainer.best_set) is shown without --set"
        raise DagrlError(f"no conversations of a held-out set '{held_out}'; {there}", where=where, how=how)


def chosen_judged(files: Sequence[TrajectoryFile], time: str, where: str) -> TrajectoryFile:
    """The newest where `time` is `latest`, else the only one whose time begins so. Raises DagrlError."""
    found = files[-1:] if time == LATEST else [file for file in files if file.time == time]
    found = found or [file for file in files if file.time.startswith(time)]
    if len(found) == 1:
        return found[0]
    times = ", ".join(file.time for file in files)
    there = f"there are {times}" if files else "`dagrl eval` has kept none"
    told = f"several evaluations begin with '{time}'" if found else f"no evaluation '{time}'"
    raise DagrlError(f"{told}; {there}", where=where)


def _to_get(kind: str, without: str) -> str:
    if without:
        return "config.trainer.val_without names the nodes that are left out at the end of a run"
    return "config.trainer.log_trajectories must be true" + (
        "" if kind == STEP else ", and the run must have held-out problems (config.data.val_files)"
    )


def _age(time: str) -> tuple[str, int]:
    """`20260102-120000-2` comes after `20260102-120000` and before `…-10`."""
    stamp, number = time[:15], time[16:]
    return stamp, int(number) if number.isdecimal() else 0


def _ranges(steps: Sequence[int]) -> str:
    """`1-40, 50, 60-62`."""
    parts: list[list[int]] = []
    for step in sorted(set(steps)):
        if parts and step == parts[-1][1] + 1:
            parts[-1][1] = step
        else:
            parts.append([step, step])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
