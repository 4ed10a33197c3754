"""The tiny project in the size that kills are made in, and what of its runs must be the same byte for byte."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from tests.tiny_project import write_project

STEPS, TASKS, SAMPLES = 6, 4, 2
OPTIONS = (
    f"data.train_batch_size={TASKS}", f"rollout.n={SAMPLES}", "data.val_max_prompts=4",
    "trainer.save_freq=1", "trainer.test_freq=2", "trainer.keep_last=2",
)  # fmt: skip
START = ("run", "--workflow", "calling.yaml", *OPTIONS)
_STATE = "trainer_state/structure.json"


def write(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    write_project(folder, total_steps=STEPS, max_rounds=2)
    return folder


def fingerprint(run: Path) -> dict[str, str]:
    """SHA-256 of metrics, trajectories, weights, optimizers and random states, and the other state of the run.

    Left out of the state: seconds, and how long the files of metrics are, some of which have clocks in them.
    """
    clocks = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    assert not any(row.get("perf/went_on_without") for row in clocks), "the machine stood still for a minute"
    last = run / "checkpoints" / f"step_{STEPS:06d}"
    files = [run / "metrics.jsonl", *last.rglob("*.safetensors")]
    files += [file for file in (run / "trajectories").glob("*.parquet") if not file.name.endswith(".timings.parquet")]
    found = {file.relative_to(run).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    state = dict(json.loads((last / _STATE).read_text())["dict"])
    del state["files"], state["seconds"]
    return found | {f"state {name}": json.dumps(value) for name, value in state.items()}


def trained(run: Path) -> Counter[tuple[str, int]]:
    """How often each (problem, sample) was trained on, as the trajectory log has it."""
    played: Counter[tuple[str, int]] = Counter()
    for file in sorted((run / "trajectories").glob("step_??????.parquet")):
        rows = pq.read_table(file, columns=["task_id", "sample"]).to_pylist()
        played.update({(row["task_id"], row["sample"]) for row in rows})
    return played
