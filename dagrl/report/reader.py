"""Run folders from outside: found by name, opened, read while they are still being written. Loads neither torch nor
pyarrow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dagrl.errors import DagrlError, StorageError
from dagrl.report.conversation_files import (
    STEP,
    TrajectoryFile,
    chosen_file,
    chosen_judged,
    judged_files,
    trajectory_files,
)
from dagrl.report.folders import names_in, read_mapping, reading
from dagrl.report.metrics import MetricsTail, Row
from dagrl.workflow.load import compose, read_text
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.tree import plain

DEFAULT_ROOT = Path("runs")
LATEST = "latest"
RUNNING, DEAD, UNKNOWN = "running", "dead", "unknown"
MAX_DEPTH = 4
"""How far below a root run folders are looked for: `root/<dag_id>/<time>` and two levels of the user's own."""

_MARKS = ("status.json", "metrics.jsonl")
"""A folder that holds one of these is a run folder."""
_STAMP = re.compile(r"(\d{8}-\d{6})(?:-(\d+))?")
_STEP_NAME = re.compile(r"step_(\d{6,})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a run is doing, or was when it died."""

    phase: str
    """`play`, `learn`, `write`, `evaluate`, `checkpoint`."""
    since: float
    """Seconds since 1970, as below."""
    nodes: Mapping[str, float]
    """Nodes at work, and environments as `node@env`, with the time since when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """What a run says of itself, and whether that can be so."""

    state: str
    """`running`, `done`, `interrupted`, `failed`; `dead` where it says running but its process is gone; `unknown`
    where there is no status file."""
    step: int
    """Steps done."""
    pid: int | None
    heartbeat: float | None
    """Seconds since 1970 at the last sign of life."""
    doing: Doing | None = None
    """None where it does not say, and where it is over."""

    @property
    def is_running(self) -> bool:
        return self.state == RUNNING

    def age_s(self, now: float | None = None) -> float | None:
        """Seconds since the last sign of life."""
        if self.heartbeat is None:
            return None
        return max(0.0, (time.time() if now is None else now) - self.heartbeat)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """A checkpoint as its manifest describes it; nothing is hashed."""

    step: int
    path: Path
    num_bytes: int
    is_complete: bool
    """Every file of the manifest is there with its size."""


class RunReader:
    """A run folder, read only. Everything is read anew at each call, but for the metrics, which are read on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metrics = MetricsTail(path / "metrics.jsonl")
        self._timings = MetricsTail(path / "timings.jsonl")

    @property
    def name(self) -> str:
        """`<dag_id>/<time>`, or as much of it as the path tells."""
        whole = self.path.absolute()
        return f"{whole.parent.name}/{whole.name}" if whole.parent.name else whole.name

    def status(self) -> RunStatus:
        file = self.path / "status.json"
        if not file.exists():
            return RunStatus(state=UNKNOWN, step=self._last_step(), pid=None, heartbeat=None)
        status = _status(file)
        if status.is_running and not is_alive(status.pid, self.path / ".lock"):
            # Read again: the process may have said that it is done, and ended, since.
            status = _status(file)
            return replace(status, state=DEAD) if status.is_running else status
        return status

    def metrics(self) -> list[Row]:
        """The rows of metrics.jsonl so far with their clocks, in order. Only what is new is read from the disk."""
        # A row's clocks are written before it, so that reading them after it finds them.
        self._metrics.update()
        self._timings.update()
        clocks = dict(enumerate(self._timings.rows))
        return [row | _if_same_step(row, clocks.get(number)) for number, row in enumerate(self._metrics.rows)]

    @cached_property
    def workflow(self) -> dict[str, Any]:
        """The resolved workflow."""
        content = plain(compose(read_text(self.path / "workflow.yaml"), str(self.path / "workflow.yaml")).root)
        if not isinstance(content, dict):
            raise StorageError("is not a workflow", where=str(self.path / "workflow.yaml"))
        return content

    @property
    def total_steps(self) -> int | None:
        """`trainer.total_steps`; None where the run counts epochs."""
        total = _inner(self.workflow, "config", "trainer", "total_steps")
        return total if isinstance(total, int) else None

    @property
    def limits(self) -> dict[str, Any]:
        """`config.stop_when`; empty where the run has no budgets."""
        limits = _inner(self.workflow, "config", "stop_when")
        return dict(limits) if isinstance(limits, Mapping) else {}

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents, by group, as the metrics spell them."""
        groups = self.workflow.get("agent_groups")
        if not isinstance(groups, Mapping):
            return ()
        ordered = sorted(groups.items(), key=lambda item: (len(str(item[0])), str(item[0])))
        return tuple(str(group["name"]) for _, group in ordered if isinstance(group, Mapping) and "name" in group)

    def overrides(self) -> list[str]:
        return self._text("overrides.txt").splitlines()

    def origins(self) -> dict[str, str]:
        """Dotted path of each value that a file or the command line set → where; empty where it was not written."""
        file = self.path / "origins.json"
        return read_mapping(file) if file.exists() else {}

    def versions(self) -> dict[str, Any]:
        """Python, packages, machine, seed and command line of the run; empty where they were not written."""
        file = self.path / "versions.json"
        return read_mapping(file) if file.exists() else {}

    def code(self) -> dict[str, str]:
        """The user's files that the run used: place below `code/` to text."""
        folder = self.path / "code"
        files = sorted(file for file in folder.rglob("*") if file.is_file() and file != folder / "hashes.json")
        return {file.relative_to(folder).as_posix(): self._text(f"code/{file.relative_to(folder)}") for file in files}

    def trajectory_files(self) -> list[TrajectoryFile]:
        """All that are there and whole, oldest first; at a step the trained ones come after the held-out ones."""
        return trajectory_files(self.path)

    def judged_files(self) -> list[TrajectoryFile]:
        """What `dagrl eval` kept, oldest first."""
        return judged_files(self.path)

    def trajectory_file(
        self, step: int | None, kind: str = STEP, without: str = "", *, held_out: str = ""
    ) -> TrajectoryFile:
        """The file of one step, of the last one that has any where `step` is None.

        Raises DagrlError, naming those that there are, where there is none.
        """
        return chosen_file(self.trajectory_files(), step, kind, without, str(self.path), held_out=held_out)

    def judged_file(self, time: str) -> TrajectoryFile:
        """What `dagrl eval` kept under that time or the beginning of it; `latest` is the newest. Raises DagrlError."""
        return chosen_judged(self.judged_files(), time, str(self.path))

    def evaluations(self) -> list[Row]:
        """The rows of metrics that hold held-out results (names that begin with `val/`)."""
        return [row for row in self.metrics() if any(name.startswith("val/") for name in row)]

    def checkpoints(self) -> list[CheckpointInfo]:
        """Oldest first; ones that are being written are not there yet."""
        folder = self.path / "checkpoints"
        steps = [(int(match[1]), folder / name) for name in names_in(folder) if (match := _STEP_NAME.fullmatch(name))]
        return [_checkpoint(step, path) for step, path in sorted(steps)]

    def failures(self) -> list[dict[str, Any]]:
        """Trajectories that user code broke: the content of each file, with its `path`."""
        files = [self.path / "failures" / name for name in names_in(self.path / "failures") if name.endswith(".json")]
        return [{**read_mapping(file), "path": str(file)} for file in files]

    def _last_step(self) -> int:
        rows = self.metrics()
        return int(rows[-1]["step"]) if rows else 0

    def _text(self, name: str) -> str:
        with reading(self.path / name):
            return (self.path / name).read_text(encoding="utf-8", errors="replace")


def _if_same_step(row: Row, clock: Row | None) -> Row:
    return clock if clock is not None and clock["step"] == row["step"] else {}


def is_run(path: Path) -> bool:
    return any(os.path.isfile(path / mark) for mark in _MARKS)


def find_runs(root: Path) -> list[Path]:
    """Run folders at and below `root`, oldest first; links are not followed. Empty where `root` does not exist."""
    return sorted(_walk(root, MAX_DEPTH), key=_age_key)


def open_run(name: str | Path, root: Path = DEFAULT_ROOT) -> RunReader:
    """A run by the path of its folder, by the path of a folder of runs (its newest), `latest` (the newest in `root`),
    a dag_id (its newest), or a time or the beginning of one. Raises DagrlError where that is none or several.
    """
    text = str(name)
    path = Path(text).expanduser()
    if is_run(path):
        return RunReader(path)
    if os.path.isdir(path) and text != LATEST and (inside := find_runs(path)):
        return RunReader(inside[-1])
    runs = find_runs(root)
    if not runs:
        raise DagrlError(
            f"'{text}' is no run folder, and there are no runs in {root}/",
            how="give a run folder (it holds status.json and metrics.jsonl), or the folder of runs with --root",
        )
    if text == LATEST:
        return RunReader(runs[-1])
    if of_dag := [run for run in runs if run.parent.name == text]:
        return RunReader(of_dag[-1])
    return RunReader(_only(text, [run for run in runs if run.name.startswith(text)], runs, root))


def is_alive(pid: int | None, lock: Path) -> bool:
    """Whether process `pid` of this machine lives and holds `lock` open; a number that was given to another process
    since is told apart where the system shows what a process has open (Linux, the same user)."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    folder = f"/proc/{pid}/fd"
    try:
        handles = os.listdir(folder)
    except OSError:
        return True
    return any(_target(f"{folder}/{handle}") == str(lock.resolve()) for handle in handles)


def _target(link: str) -> str | None:
    """What a link points at; None where it is gone by now."""
    try:
        return os.readlink(link)
    except OSError:
        return None


def _only(text: str, matching: Sequence[Path], runs: Sequence[Path], root: Path) -> Path:
    if len(matching) == 1:
        return matching[0]
    if matching:
        shown = ", ".join(str(run) for run in matching[:6])
        raise DagrlError(f"'{text}' is the beginning of {len(matching)} runs", how=f"one of {shown}")
    known = {run.parent.name for run in runs} | {run.name for run in runs} | {LATEST}
    raise DagrlError(f"no run '{text}' in {root}/", how=did_you_mean(text, known) or "`dagrl ps` lists all runs")


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    if is_run(folder):
        yield folder
        return
    if depth == 0 or not folder.is_dir():
        return
    with reading(folder):
        inner = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    for path in inner:
        if not path.name.startswith("."):
            yield from _walk(path, depth - 1)


def _age_key(path: Path) -> tuple[str, int, str]:
    """Runs in the order of their start: by the time in the folder's name, else by when status.json changed."""
    match = _STAMP.fullmatch(path.absolute().name)
    if match is not None:
        return match[1], int(match[2] or 1), str(path)
    changed = max((mark.stat().st_mtime for name in _MARKS if (mark := path / name).exists()), default=0.0)
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(changed)), 1, str(path)


def _status(file: Path) -> RunStatus:
    content = read_mapping(file)
    state, step, pid, heartbeat = (content.get(key) for key in ("state", "step", "pid", "heartbeat"))
    if not (isinstance(state, str) and isinstance(step, int)):
        raise StorageError("has no 'state' or no 'step'", where=str(file))
    return RunStatus(
        state=state,
        step=step,
        pid=pid if isinstance(pid, int) else None,
        heartbeat=float(heartbeat) if isinstance(heartbeat, (int, float)) else None,
        doing=_doing(content.get("doing")),
    )


def _doing(content: Any) -> Doing | None:
    """None where that is not as a run writes it: it is not worth refusing a run for."""
    try:
        nodes = {str(name): float(since) for name, since in content["nodes"].items()}
        return Doing(phase=str(content["phase"]), since=float(content["since"]), nodes=nodes)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _checkpoint(step: int, path: Path) -> CheckpointInfo:
    try:
        files = read_mapping(path / "MANIFEST.json")["content"]["files"]
        sizes = {name: entry["size"] for name, entry in files.items()}
        is_complete = all((path / name).stat().st_size == size for name, size in sizes.items())
    except (StorageError, KeyError, TypeError, AttributeError, OSError):
        return CheckpointInfo(step=step, path=path, num_bytes=0, is_complete=False)
    return CheckpointInfo(step=step, path=path, num_bytes=sum(sizes.values()), is_complete=is_complete)


def _inner(content: Any, *keys: str) -> Any:
    for key in keys:
        content = content.get(key) if isinstance(content, Mapping) else None
    return content
