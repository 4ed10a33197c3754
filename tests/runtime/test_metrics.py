"""Metrics come back as they were written, from the rows and from TensorBoard's events."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from dagrl.errors import StorageError
from dagrl.runtime.metrics import MetricsWriter, read_metrics


def test_rows_come_back_with_nonfinite_numbers_named(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    writer.write(0, {"reward/mean": 0.1, "n": 3, "loss": math.nan, "ratio": -math.inf})
    first, *rest = read_metrics(tmp_path / "metrics.jsonl")
    assert rest == []
    assert first.pop("time") > 0
    expected = {"step": 0, "reward/mean": 0.1, "n": 3, "loss": None, "ratio": None, "nonfinite": ["loss", "ratio"]}
    assert first == expected
    line = (tmp_path / "metrics.jsonl").read_text().splitlines()[0]
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not strict JSON"))
    writer.close()


def test_tensorboard_reads_every_tag_and_step(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    writer.write(0, {"agent_reasoner/entropy": 0.5})
    writer.write(1, {"agent_reasoner/entropy": 0.25, "loss": math.nan})
    (file,) = (tmp_path / "tensorboard").iterdir()
    read = [
        (event.step, value.tag, value.tensor.float_val[0])
        for event in EventFileLoader(str(file)).Load()
        for value in event.summary.value
    ]
    assert read[:2] == [(0, "agent_reasoner/entropy", 0.5), (1, "agent_reasoner/entropy", 0.25)]
    assert read[2][:2] == (1, "loss")
    assert math.isnan(read[2][2])
    writer.close()


def test_a_torn_last_line_is_left_out_and_cut_off_when_the_run_goes_on(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    writer.write(0, {"a": 1.0})
    writer.close()
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 1, "a": 2.')
    assert [row["step"] for row in read_metrics(path)] == [0]
    writer = MetricsWriter(tmp_path)
    writer.write(1, {"a": 3.0})
    writer.close()
    assert [row["a"] for row in read_metrics(path)] == [1.0, 3.0]


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"ste\n{"step": 2}\n')
    with pytest.raises(StorageError, match=r"metrics\.jsonl:2"):
        read_metrics(path)
