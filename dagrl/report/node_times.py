"""How long each node took in a step, as plain JSON values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dagrl.data.trajectory_files import read_columns
from dagrl.report.metrics import merged
from dagrl.report.questions import Params, number
from dagrl.report.reader import RunReader

_NODE_TIME = "perf/seconds/"


def node_times(reader: RunReader, asked: Params) -> dict[str, Any]:
    """Milliseconds of each node in one step; of the nodes that speak also turns and milliseconds per turn."""
    step = number(asked, "step", 0)
    row = next((row for row in merged(reader.metrics()) if row["step"] == step), {})
    took = {name.removeprefix(_NODE_TIME): value for name, value in row.items() if name.startswith(_NODE_TIME)}
    files = [file for file in reader.trajectory_files() if (file.kind, file.step) == ("step", step)]
    spoke = seconds_by_node(files[0].path) if files else {}
    return {
        "step": step,
        "total_ms": _ms(row.get("perf/seconds_per_step")),
        "nodes": {name: _ms(seconds) for name, seconds in took.items()},
        "spoke": {name: {"turns": turns, "ms_per_turn": seconds * 1000} for name, (turns, seconds) in spoke.items()},
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def seconds_by_node(path: Path) -> dict[str, tuple[int, float]]:
    """Of each node that spoke: its turns and its mean seconds per turn; empty where the clocks of the file are gone."""
    table = read_columns(path, ("node", "seconds"))
    if set(table.column_names) != {"node", "seconds"}:
        return {}
    found: dict[str, list[float]] = {}
    for node, seconds in zip(table.column("node").to_pylist(), table.column("seconds").to_pylist(), strict=True):
        found.setdefault(node, []).append(seconds)
    return {node: (len(seconds), sum(seconds) / len(seconds)) for node, seconds in found.items()}
