"""Metrics of a run: a JSON object per step in metrics.jsonl, its clocks in timings.jsonl, and TensorBoard events.

The clocks stand apart so that metrics.jsonl is the same, byte for byte, whenever the same run is made again. This is
the door to tensorboard.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from dagrl.errors import StorageError
from dagrl.runtime.storage import make_folder, storage

METRICS_FILE = "metrics.jsonl"
TIMINGS_FILE = "timings.jsonl"
CLOCKS = "perf/"
"""Metrics whose names begin so stand in timings.jsonl."""
TENSORBOARD_FOLDER = "tensorboard"
_OWN_KEYS = ("step", "time", "nonfinite")


class MetricsWriter:
    """Appends to `metrics.jsonl`, `timings.jsonl` and `tensorboard/` in `folder`, flushed with each row.

    A row of metrics is `{"step": 3, "nonfinite": [names], "<name>": number, …}`, the row of timings that belongs to it
    `{"step": 3, "time": <seconds since 1970>, "perf/…": number, …}`. NaN and infinity are written as null, their names
    listed in `nonfinite`. An unfinished last line, left by a crash, is cut off when the files are opened.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self._folder = folder
        self._lines = {name: _open_lines(folder / name) for name in (TIMINGS_FILE, METRICS_FILE)}
        events = make_folder(folder / TENSORBOARD_FOLDER)
        now = time.time()
        self._events_path = events / f"events.out.tfevents.{now:.6f}.{os.getpid()}"
        with storage(self._events_path):
            self._events = RecordWriter(self._events_path.open("ab"))
        self._write_event(Event(wall_time=now, file_version="brain.Event:2"))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row. Names are tags with slashes, such as `agent_reasoner/entropy`."""
        assert not set(_OWN_KEYS) & set(metrics), f"names of metrics may not be any of {_OWN_KEYS}"
        now = time.time()
        numbers = {name: _json_number(value) for name, value in metrics.items()}
        clocks = {name: numbers.pop(name) for name in metrics if name.startswith(CLOCKS)}
        row: dict[str, Any] = {"step": step, "nonfinite": [name for name, value in numbers.items() if value is None]}
        self._write_line(TIMINGS_FILE, {"step": step, "time": now} | clocks)
        self._write_line(METRICS_FILE, row | numbers)
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()]
        self._write_event(Event(wall_time=now, step=step, summary=Summary(value=values)))

    def sizes(self) -> dict[str, int]:
        """Bytes of each file so far, by its path in the run folder; for `cut_back`."""
        files = [*self._lines, *(f"{TENSORBOARD_FOLDER}/{file.name}" for file in self._events_path.parent.iterdir())]
        return {name: (self._folder / name).stat().st_size for name in sorted(files)}

    def close(self) -> None:
        for name, file in self._lines.items():
            with storage(self._folder / name):
                file.close()
        with storage(self._events_path):
            self._events.close()

    def _write_line(self, name: str, row: Mapping[str, Any]) -> None:
        with storage(self._folder / name):
            self._lines[name].write(json.dumps(row, allow_nan=False) + "\n")
            self._lines[name].flush()

    def _write_event(self, event: Event) -> None:
        with storage(self._events_path):
            self._events.write(event.SerializeToString())
            self._events.flush()


def cut_back(folder: Path, sizes: Mapping[str, int]) -> None:
    """Makes the files of metrics in `folder` as long as they were when `MetricsWriter.sizes` gave `sizes`."""
    for path in [folder / METRICS_FILE, folder / TIMINGS_FILE, *(folder / TENSORBOARD_FOLDER).glob("*")]:
        size = sizes.get(path.relative_to(folder).as_posix())
        with storage(path):
            if size is None:
                path.unlink(missing_ok=True)
            elif path.stat().st_size < size:
                raise StorageError("is shorter than when the checkpoint was made", where=str(path))
            else:
                os.truncate(path, size)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl, each with its clocks; a last line that was not finished is left out.

    Raises StorageError where the file cannot be read or another line is broken.
    """
    clocks_path = path.with_name(TIMINGS_FILE)
    clocks = _read_lines(clocks_path) if clocks_path.exists() else []
    rows = _read_lines(path)
    return [row | clock for row, clock in zip(rows, [*clocks, *[{}] * len(rows)])]


def _read_lines(path: Path) -> list[dict[str, Any]]:
    with storage(path):
        text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.split("\n")
    return [_parse(line, path, number) for number, line in enumerate(lines[:-1], start=1)]


def _open_lines(path: Path) -> TextIO:
    with storage(path):
        _cut_torn_line(path)
        return path.open("a", encoding="utf-8")


def _parse(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise StorageError(f"is not JSON: {error}", where=f"{path}:{number}") from error
    if not isinstance(row, dict):
        raise StorageError(f"is a {type(row).__name__}, not a row of metrics", where=f"{path}:{number}")
    return row


def _json_number(value: float) -> float | int | None:
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
