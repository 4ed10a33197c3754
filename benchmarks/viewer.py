"""Times `dagrl view` on a run of 100,000 trajectories: from the command to a drawn page in Chromium, and each answer.

Run `python benchmarks/viewer.py [FOLDER]` in the repository root; the run is made in FOLDER (a temporary one by
default) and kept where a folder is given. Without chromium the answers alone are timed.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser import MISSING, browser  # noqa: E402

from dagrl.workflow.kinds import Column  # noqa: E402

NUM_STEPS = 400
PER_STEP = 250
"""Trajectories of a step; 400 x 250 = 100,000."""
NUM_ROUNDS = 2
AGENTS = ("reasoner", "actor")
TOKENS = 24
"""Of a response."""
NUM_TASKS = 2_000
NUM_METRICS = 90
RUN = "marft/20260101-000000"


def main() -> None:
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder))


def measure(folder: Path) -> None:
    run = folder / RUN
    if not run.exists():
        make_run(run)
    print(f"{NUM_STEPS * PER_STEP:,} trajectories, {NUM_STEPS} steps, {megabytes(run):.0f} MB")
    start = time.perf_counter()
    with started(folder) as server:
        address = server.stdout.readline().split()[0]  # type: ignore[union-attr]
        print(f"command to first line   {time.perf_counter() - start:.2f} s")
        for question, params in questions():
            times = [timed(f"{address}api/{question}?{urlencode(params)}") for _ in range(2)]
            print(f"{question:<23} {times[0]:.3f} s, again {times[1]:.3f} s")
        server.terminate()
    if MISSING is None:
        in_chromium(folder)


def questions() -> list[tuple[str, dict[str, str]]]:
    last = f"step_{NUM_STEPS:06d}"
    return [
        ("runs", {}),
        ("run", {"run": RUN}),
        ("curves", {"run": RUN}),
        ("graph", {"run": RUN}),
        ("conversations", {"run": RUN, "file": last, "order": "worst"}),
        ("conversations", {"run": RUN, "file": last, "text": "boxed{7}"}),
        ("conversation", {"run": RUN, "file": last, "trajectory": "7"}),
        ("task", {"run": RUN, "task": "train:7"}),
    ]


def in_chromium(folder: Path) -> None:
    """A new server for each place, so that nothing is kept from before."""
    places = {"curves": ".chart svg", "graph": ".graph", "talk": ".conversation .turn"}
    for place, drawn in places.items():
        with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as page:
            start = time.perf_counter()
            with started(folder) as server:
                address = server.stdout.readline().split()[0]  # type: ignore[union-attr]
                asked = time.perf_counter()
                page.open(f"{address}#/run/{RUN.replace('/', '%2F')}/{place}")
                page.wait(f"document.querySelector('{drawn}')")
                end = time.perf_counter()
                print(f"{place:<8} address to drawn {end - asked:.2f} s, command to drawn {end - start:.2f} s")
                server.terminate()


def started(folder: Path) -> subprocess.Popen[str]:
    code = "import sys; from dagrl.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, "view", str(folder), "--port", "0"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def timed(url: str) -> float:
    start = time.perf_counter()
    with urllib.request.urlopen(url, timeout=120) as reply:
        json.load(reply)
    return time.perf_counter() - start


def megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


# The run


def make_run(run: Path) -> None:
    (run / "trajectories").mkdir(parents=True)
    workflow = (ROOT / "workflows" / "marft.yaml").read_text(encoding="utf-8")
    for name in ("workflow.yaml", "workflow.original.yaml"):
        (run / name).write_text(workflow, encoding="utf-8")
    (run / "overrides.txt").write_text("")
    (run / "versions.json").write_text(json.dumps({"seed": 0, "packages": {}}))
    (run / "status.json").write_text(json.dumps({"state": "done", "step": NUM_STEPS, "heartbeat": time.time()}))
    random = np.random.default_rng(0)
    with (run / "metrics.jsonl").open("w", encoding="utf-8") as lines:
        for step in range(1, NUM_STEPS + 1):
            lines.write(json.dumps(metrics_row(step, random)) + "\n")
            pq.write_table(
                step_table(step, random), run / "trajectories" / f"step_{step:06d}.parquet", compression="zstd"
            )


def metrics_row(step: int, random: np.random.Generator) -> dict[str, Any]:
    names = ["reward/mean", "reward/std", "perf/seconds_per_step", "perf/seconds/play", "perf/seconds/actor_train"]
    names += [f"agent_{agent}/policy/entropy" for agent in AGENTS]
    names += [f"agent_actor/filler_{place}" for place in range(NUM_METRICS - len(names))]
    noise = random.random(len(names)) * 0.1
    values = {name: 1 - math.exp(-step / 80) + float(noise[place]) for place, name in enumerate(names)}
    return {"step": step, "time": 1.7e9 + step, "nonfinite": [], **values}


def step_table(step: int, random: np.random.Generator) -> pa.Table:
    turns_each = NUM_ROUNDS * len(AGENTS)
    num_turns = PER_STEP * turns_each
    trajectory = np.arange(PER_STEP).repeat(turns_each)
    agent = np.tile(np.arange(len(AGENTS)), PER_STEP * NUM_ROUNDS)
    reward = (random.random(PER_STEP) < step / NUM_STEPS).astype(np.float32)
    task = random.integers(0, NUM_TASKS, PER_STEP)
    offsets = pa.array(np.arange(num_turns + 1) * TOKENS, pa.int32())
    number = random.integers(0, 100, num_turns)
    columns: dict[str, Any] = {
        "step": np.full(num_turns, step),
        "trajectory": trajectory,
        "task_id": [f"train:{task[one]}" for one in trajectory],
        "sample": np.zeros(num_turns, int),
        "data_source": ["made_up"] * num_turns,
        "ground_truth": ['"7"'] * num_turns,
        "stop_reason": ["max_rounds"] * num_turns,
        "num_rounds": np.full(num_turns, NUM_ROUNDS),
        "trajectory_reward": reward[trajectory],
        "trajectory_seconds": np.ones(num_turns),
        "round": np.tile(np.arange(NUM_ROUNDS).repeat(len(AGENTS)), PER_STEP),
        "position": np.tile(np.arange(turns_each), PER_STEP),
        "node": [f"rollout_{AGENTS[one]}" for one in agent],
        "agent_group": agent,
        "agent": [AGENTS[one] for one in agent],
        "branch": np.zeros(num_turns, int),
        "prompt": [f"Problem {task[one]}: what is the sum? Think step by step. " * 4 for one in trajectory],
        "response": [f"So it must be \\boxed{{{one}}}" for one in number],
        "observation": ["The answer is wrong."] * num_turns,
        "reward": reward[trajectory] / turns_each,
        "reward_parts": ["{}"] * num_turns,
        "finish_reason": ["stop"] * num_turns,
        "temperature": np.ones(num_turns, np.float32),
        "seconds": random.random(num_turns),
        "policy_version": np.full(num_turns, step),
    }
    table = {name: pa.array(values) for name, values in columns.items()}
    ids = pa.array(random.integers(0, 1000, num_turns * TOKENS).astype(np.int32))
    table |= {name: pa.ListArray.from_arrays(offsets, ids) for name in ("prompt_ids", "response_ids")}
    for column in Column:
        values = pa.array(random.standard_normal(num_turns * TOKENS).astype(np.float32))
        table[str(column)] = pa.ListArray.from_arrays(offsets, values)
    return pa.table(table)


if __name__ == "__main__":
    main()
