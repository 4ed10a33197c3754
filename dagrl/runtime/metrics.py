"""Metrics of a run: a JSON object per step in metrics.jsonl, its clocks in timings.jsonl, and TensorBoard events.

The clocks stand apart so that metrics.jsonl is the same, byte for byte, whenever the same run is made again. This is
the door to tensorboard.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from dagrl.runtime.line_log import LineLog, cut_to, read_lines
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
        self._lines = {name: LineLog(folder / name) for name in (TIMINGS_FILE, METRICS_FILE)}
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
        self._lines[TIMINGS_FILE].write({"step": step, "time": now} | clocks)
        self._lines[METRICS_FILE].write(row | numbers)
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()]
        self._write_event(Event(wall_time=now, step=step, summary=Summary(value=values)))

    def sizes(self) -> dict[str, int]:
        """Bytes of each file so far, by its path in the run folder; for `cut_back`."""
        events = {f"{TENSORBOARD_FOLDER}/{file.name}": file for file in sorted(self._events_path.parent.iterdir())}
        lines = {name: log.size() for name, log in self._lines.items()}
        return lines | {name: file.stat().st_size for name, file in events.items()}

    def close(self) -> None:
        for log in self._lines.values():
            log.close()
        with storage(self._events_path):
            self._events.close()

    def _write_event(self, event: Event) -> None:
        with storage(self._events_path):
            self._events.write(event.SerializeToString())
            self._events.flush()


def cut_back(folder: Path, sizes: Mapping[str, int]) -> None:
    """Makes the files of metrics in `folder` as long as they were when `MetricsWriter.sizes` gave `sizes`."""
    for path in [folder / METRICS_FILE, folder / TIMINGS_FILE, *(folder / TENSORBOARD_FOLDER).glob("*")]:
        cut_to(path, sizes.get(path.relative_to(folder).as_posix()))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl, each with its clocks; a last line that was not finished is left out.

    Raises StorageError where the file cannot be read or another line is broken.
    """
    clocks_path = path.with_name(TIMINGS_FILE)
    clocks = read_lines(clocks_path) if clocks_path.exists() else []
    rows = read_lines(path)
    return [row | clock for row, clock in zip(rows, [*clocks, *[{}] * len(rows)])]


def _json_number(value: float) -> float | int | None:
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None
