"""Whether two runs came out the same, byte for byte; if not, the first difference in each kind of file."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagrl.data.trajectory_files import read_trajectories
from dagrl.errors import StorageError
from dagrl.runtime.metrics import METRICS_FILE
from dagrl.runtime.storage import storage

_CLOCKS = ".timings.parquet"


def differences(run: Path, other: Path) -> list[str]:
    """A line for metrics, for trajectories and for weights each, where what `run` has differs in `other`."""
    kinds = (_metrics(run, other), _trajectories(run, other), _weights(run, other))
    return [line for kind in kinds for line in [next(kind, None)] if line is not None]


def num_compared(run: Path, other: Path) -> tuple[int, int, int]:
    """Rows of metrics, files of trajectories and files of weights that `run` has, all of which are compared."""
    rows = (run / METRICS_FILE).read_bytes().count(b"\n")
    return rows, len(_trajectory_names(run)), len(_weight_names(run, other))


def _metrics(run: Path, other: Path) -> Iterator[str]:
    ours, theirs = _lines(run / METRICS_FILE), _lines(other / METRICS_FILE)
    for number, line in enumerate(ours):
        place = f"{METRICS_FILE} line {number + 1}"
        if number >= len(theirs):
            yield f"{place}: the repeated run ended before it"
        elif line != theirs[number]:
            yield _first_value(json.loads(line), json.loads(theirs[number]), place)


def _first_value(row: Mapping[str, Any], other: Mapping[str, Any], place: str) -> str:
    for name in dict.fromkeys([*row, *other]):
        if name not in row or name not in other or row[name] != other[name]:
            was, now = row.get(name, "absent"), other.get(name, "absent")
            return f"{place} (step {row['step']}): {name} was {was}, is {now}"
    return f"{place} (step {row['step']}): the same numbers in another order"


def _trajectories(run: Path, other: Path) -> Iterator[str]:
    return _differing(run, other, [f"trajectories/{name}" for name in _trajectory_names(run)], _first_cell)


def _differing(run: Path, other: Path, names: Sequence[str], tell: Callable[[Path, Path], str]) -> Iterator[str]:
    """A line for each file of `run` that `other` has not, or has otherwise, which `tell` says more of."""
    for name in names:
        if not (other / name).is_file():
            yield f"{name}: the repeated run has none"
        elif (run / name).read_bytes() != (other / name).read_bytes():
            yield f"{name}: {tell(run / name, other / name)}"


def _first_cell(ours: Path, theirs: Path) -> str:
    before, after = read_trajectories(ours), read_trajectories(theirs)
    clocks = ("seconds", "trajectory_seconds")
    for number, (row, other) in enumerate(zip(before, after)):
        for column in row:
            if column not in clocks and row[column] != other.get(column):
                where = f"row {number} (task {row['task_id']}, sample {row['sample']}, node {row['node']})"
                return f"{where}, column {column}: was {_short(row[column])}, is {_short(other.get(column))}"
    if len(before) != len(after):
        return f"{len(before)} turns then, {len(after)} now"
    return "the same values, written by another version of pyarrow"


def _weights(run: Path, other: Path) -> Iterator[str]:
    return _differing(run, other, [f"checkpoints/{name}" for name in _weight_names(run, other)], _first_tensor)


def _first_tensor(ours: Path, theirs: Path) -> str:
    """The name of the first tensor whose bytes differ, by the table at the head of a safetensors file."""
    tables = [_tensors(path) for path in (ours, theirs)]
    for name in tables[0]:
        if tables[0][name] != tables[1].get(name):
            return f"tensor {name} differs"
    return "the same tensors, other words about them"


def _tensors(path: Path) -> dict[str, bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    head = json.loads(content[8 : 8 + length])
    begin = 8 + length
    return {
        name: content[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]]
        for name, entry in head.items()
        if name != "__metadata__"
    }


def _trajectory_names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "trajectories").glob("*.parquet") if not path.name.endswith(_CLOCKS))


def _weight_names(run: Path, other: Path) -> list[str]:
    """Weights of agents and critics in the checkpoints that both runs kept, oldest first."""
    steps = sorted(
        path.name for path in (run / "checkpoints").glob("step_*") if (other / "checkpoints" / path.name).is_dir()
    )
    files = [file for step in steps for file in sorted((run / "checkpoints" / step).glob("*_*/*.safetensors"))]
    return [
        file.relative_to(run / "checkpoints").as_posix()
        for file in files
        if file.parent.name.startswith(("agent_", "critic_"))
    ]


def _lines(path: Path) -> list[bytes]:
    if not path.is_file():
        raise StorageError("is not there", where=str(path))
    with storage(path):
        return path.read_bytes().split(b"\n")[:-1]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}…"
