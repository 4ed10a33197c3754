"""What a run has taken so far, in the forecast's terms: read from its ledger, its clocks and its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagrl.runtime.ledger import LEDGER_FILE
from dagrl.runtime.line_log import read_lines
from dagrl.runtime.metrics import METRICS_FILE, read_metrics

_NODE_SECONDS = "perf/seconds/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Means of the steps done, unless it says otherwise."""

    steps: int
    """Done so far."""
    agents: Mapping[str, Mapping[str, float]]
    """By agent: `prompt_tokens`, `tokens`, `trained_tokens`."""
    seconds: Mapping[str, float]
    """By learn node, in steps in which it ran; `play` is all that is sampled."""
    trained_in: Mapping[str, tuple[int, ...]]
    """By node: the steps, from 1, in which it ran."""
    totals: Mapping[str, float] = field(default_factory=dict)
    """The ledger's, of the whole run so far."""
    seconds_total: float = 0.0
    held_out_tokens: float = 0.0
    """Generated in one evaluation."""
    checkpoint_bytes: int | None = None
    """Of the newest checkpoint."""
    num_checkpoints: int = 0
    trajectory_bytes: int = 0
    """Of the training steps."""
    log_bytes: int = 0


def measure(run: Path) -> Measured:
    """Raises StorageError where the run has written no books."""
    rows = read_lines(run / LEDGER_FILE)
    steps = [row for row in rows if row["kind"] == "step"]
    evaluations = [row for row in rows if row["kind"] == "evaluation"]
    clocks = [row for row in read_metrics(run / METRICS_FILE) if "trajectory/count" in row]
    trained_in = {
        name: tuple(row["step"] for row in clocks if _NODE_SECONDS + name in row) for name in _timed_nodes(clocks)
    }
    checkpoints = sorted((run / "checkpoints").glob("step_*"))
    logs = [run / name for name in (LEDGER_FILE, METRICS_FILE, "timings.jsonl")] + _files(run / "tensorboard")
    return Measured(
        steps=len(steps),
        agents=_agents(steps),
        seconds={
            name: _mean([row[_NODE_SECONDS + name] for row in clocks if _NODE_SECONDS + name in row])
            for name in _timed_nodes(clocks)
        },
        trained_in=trained_in,
        totals=rows[-1]["totals"] if rows else {},
        seconds_total=clocks[-1].get("perf/seconds_total", 0.0) if clocks else 0.0,
        held_out_tokens=_mean([_tokens(row) for row in evaluations]),
        checkpoint_bytes=_size(_files(checkpoints[-1])) if checkpoints else None,
        num_checkpoints=len(checkpoints),
        trajectory_bytes=_size([file for file in _files(run / "trajectories") if file.name.startswith("step_")]),
        log_bytes=_size(logs),
    )


def _agents(steps: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    if not steps:
        return {}
    return {
        name: {what: _mean([row["agents"][name][what] for row in steps]) for what in own}
        for name, own in steps[0]["agents"].items()
    }


def _timed_nodes(clocks: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(
        {name.removeprefix(_NODE_SECONDS) for row in clocks for name in row if name.startswith(_NODE_SECONDS)}
    )


def _tokens(row: Mapping[str, Any]) -> float:
    return float(sum(own["tokens"] for own in row["agents"].values()))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()] if folder.is_dir() else []


def _size(files: Sequence[Path]) -> int:
    return sum(file.stat().st_size for file in files)
