"""Times `dagrl view` on a run of 100,000 trajectories: from the command to a drawn page in Chromium, and each answer.

Run `python benchmarks/viewer.py [FOLDER [TREE]]` in the repository root; the run is made in FOLDER (a temporary one by
default) and kept where a folder is given. Of a TREE, a folder with another version's `dagrl/`, each page is opened too,
in alternation. Each page is opened by a server of its own, in alternation ROUNDS times while
the run is done and ROUNDS times while it is being written, a step each WRITE_EVERY_S. Beside the time stands the CPU
time of the whole process `dagrl view`, which a busy machine lengthens less. Without chromium the answers alone are
timed.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser import MISSING, browser  # noqa: E402

from dagrl.data.trajectory_files import clocks_of  # noqa: E402
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
ROUNDS = 5
WRITE_EVERY_S = 0.5
PAGES = {
    "list": ("#/", ".run-card"),
    "curves": (f"#/run/{RUN.replace('/', '%2F')}/curves", ".chart svg"),
    "graph": (f"#/run/{RUN.replace('/', '%2F')}/graph", ".graph"),
    "config": (f"#/run/{RUN.replace('/', '%2F')}/config", "table code"),
    "talk": (f"#/run/{RUN.replace('/', '%2F')}/talk", ".conversation .turn"),
}
"""Page → where it is, and what is there once it is drawn."""


def main() -> None:
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]), [ROOT, *(Path(tree).resolve() for tree in sys.argv[2:])])
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), [ROOT])


def measure(folder: Path, trees: Sequence[Path]) -> None:
    run = folder / RUN
    if not run.exists():
        make_run(run)
    print(f"{NUM_STEPS * PER_STEP:,} trajectories, {NUM_STEPS} steps, {megabytes(run):.0f} MB")
    with started(folder) as (_, address):
        for question, params in questions():
            times = [timed(f"{address}api/{question}?{urlencode(params)}") for _ in range(2)]
            print(f"{question:<14} {times[0]:.3f} s, again {times[1]:.3f} s")
    if MISSING is None:
        in_chromium(folder, "done", trees)
        with being_written(run):
            in_chromium(folder, "being written", trees)


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


def in_chromium(folder: Path, state: str, trees: Sequence[Path]) -> None:
    """A new server and a new window for each page, so that nothing is kept from before."""
    found: dict[tuple[str, Path], list[tuple[float, float]]] = {(page, tree): [] for page in PAGES for tree in trees}
    for _ in range(ROUNDS):
        for name, tree in found:
            place, drawn = PAGES[name]
            with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as page:
                page.open("about:blank")
                start = time.perf_counter()
                with started(folder, tree) as (process, address):
                    page.open(address + place)
                    page.wait(f"document.querySelector('{drawn}')")
                    end = time.perf_counter()
                    found[name, tree].append((end - start, cpu_seconds(process.pid)))
    for (name, tree), pairs in found.items():
        wall, cpu = ([pair[part] for pair in pairs] for part in (0, 1))
        which = "" if tree == ROOT else f" of {tree}"
        print(f"{state:<13} {name:<8}{which} command to drawn {spread(wall)} s, CPU of dagrl view {spread(cpu)} s")


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def started(folder: Path, tree: Path = ROOT) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`dagrl view` of `tree` on `folder`, and its address."""
    code = "import sys; from dagrl.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", code, "view", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()[0]
        finally:
            process.terminate()


@contextmanager
def being_written(run: Path) -> Iterator[None]:
    """Steps are added to the run, as by this process, until the end."""
    end = threading.Event()
    with (run / ".lock").open("w"):
        writer = threading.Thread(target=write_steps, args=(run, end))
        writer.start()
        try:
            yield
        finally:
            end.set()
            writer.join()
            write_status(run, "done", NUM_STEPS)


def write_steps(run: Path, end: threading.Event) -> None:
    random = np.random.default_rng(1)
    step = max(int(file.stem.removeprefix("step_").split(".")[0]) for file in (run / "trajectories").iterdir())
    while not end.wait(WRITE_EVERY_S):
        step += 1
        write_step(run, step, random)
        write_status(run, "running", step)


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
    random = np.random.default_rng(0)
    for step in range(1, NUM_STEPS + 1):
        write_step(run, step, random)
    write_status(run, "done", NUM_STEPS)


def write_status(run: Path, state: str, step: int) -> None:
    status = {"state": state, "step": step, "pid": os.getpid(), "heartbeat": time.time()}
    whole_after_rename(run / "status.json", lambda path: path.write_text(json.dumps(status)))


def write_step(run: Path, step: int, random: np.random.Generator) -> None:
    table, clocks = step_tables(step, random)
    file = run / "trajectories" / f"step_{step:06d}.parquet"
    for path, content in ((clocks_of(file), clocks), (file, table)):
        whole_after_rename(path, lambda temp, content=content: pq.write_table(content, temp, compression="zstd"))
    row, clock = metrics_rows(step, random)
    for name, content in (("timings.jsonl", clock), ("metrics.jsonl", row)):
        with (run / name).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(content) + "\n")


def whole_after_rename(path: Path, write: Callable[[Path], object]) -> None:
    temp = path.with_name(f".{path.name}.tmp")
    write(temp)
    temp.rename(path)


def metrics_rows(step: int, random: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    names = ["reward/mean", "reward/std", *(f"agent_{agent}/policy/entropy" for agent in AGENTS)]
    clocks = ["perf/seconds_per_step", "perf/seconds/play", "perf/seconds/actor_train"]
    names += [f"agent_actor/filler_{place}" for place in range(NUM_METRICS - len(names) - len(clocks))]
    values, times = (
        {name: 1 - math.exp(-step / 80) + float(random.random()) * 0.1 for name in own} for own in (names, clocks)
    )
    return {"step": step, "nonfinite": [], **values}, {"step": step, "time": 1.7e9 + step, **times}


def step_tables(step: int, random: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """The turns of a step, and their clocks."""
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
        "policy_version": np.full(num_turns, step),
    }
    table = {name: pa.array(values) for name, values in columns.items()}
    ids = pa.array(random.integers(0, 1000, num_turns * TOKENS).astype(np.int32))
    table |= {name: pa.ListArray.from_arrays(offsets, ids) for name in ("prompt_ids", "response_ids")}
    for column in Column:
        values = pa.array(random.standard_normal(num_turns * TOKENS).astype(np.float32))
        table[str(column)] = pa.ListArray.from_arrays(offsets, values)
    return pa.table(table), pa.table({"seconds": random.random(num_turns), "trajectory_seconds": np.ones(num_turns)})


if __name__ == "__main__":
    main()
