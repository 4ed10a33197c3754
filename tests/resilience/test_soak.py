"""G16: hundreds of steps with a fault every few of them, and nothing piles up: memory, files, threads, processes."""

from __future__ import annotations

import gc
import json
import os
import statistics
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.resilience.fork_server import dagrl
from tests.tiny_project import ENVIRONMENT, write_project

pytestmark = pytest.mark.resilience

STEPS = 300
GROWTH = 0.01
"""Of memory, from the median of the second quarter of the steps to that of the last."""
_FAULTS = """        draw = random.random()
        if draw < 0.004:
            os._exit(3)
        if draw < 0.02:
            raise RuntimeError("a fault of the environment")
"""


def write(folder: Path) -> None:
    """The tiny project with an environment that raises, and now and then takes its process along."""
    write_project(folder, total_steps=STEPS)
    faulty = ENVIRONMENT.replace("        self.left -= 1\n", _FAULTS + "        self.left -= 1\n")
    (folder / "environment.py").write_text("import os\nimport random\n" + faulty)


def held() -> dict[str, int]:
    """What this process holds."""
    own = Path("/proc/self")
    threads = list((own / "task").iterdir())
    return {
        "memory": int((own / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "num_files": len(os.listdir(own / "fd")),
        "num_threads": len(threads),
        "num_children": sum(len((thread / "children").read_text().split()) for thread in threads),
    }


def measure(log: Path, leak: str | None = None) -> None:
    """A `setup` that writes down after every step what this process holds, and leaks as it is told."""
    from dagrl.runtime.trainer import Trainer

    kept: list[object] = []
    original = Trainer._run_step

    async def run_step(self: Trainer) -> None:
        await original(self)
        if leak == "memory":
            kept.append(bytearray(os.urandom(1 << 20)))
        elif leak == "num_files":
            kept.append(open(os.devnull))  # noqa: SIM115 - the leak
        elif leak == "num_threads":
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        gc.collect()
        row = held()
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")

    Trainer._run_step = run_step  # type: ignore[method-assign]


def grown(log: Path) -> dict[str, float]:
    """What a run held more of in its last quarter than in its second, by the median; memory as a share."""
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    quarter = len(rows) // 4
    found = {}
    for name in rows[0]:
        early = statistics.median(row[name] for row in rows[quarter : 2 * quarter])
        late = statistics.median(row[name] for row in rows[3 * quarter :])
        more = (late - early) / early if name == "memory" else late - early
        if more > (GROWTH if name == "memory" else 0):
            found[name] = more
    return found


def soak(folder: Path, steps: int, leak: str | None = None) -> Path:
    write(folder)
    dagrl(
        "run", "--workflow", "calling.yaml", "--run-dir", "run", "data.train_batch_size=4", "rollout.n=2",
        "data.val_max_prompts=4", "trainer.save_freq=20", "trainer.test_freq=40", "trainer.keep_last=2",
        f"trainer.total_steps={steps}", "rollout.max_failed_fraction=1", cwd=folder,
        setup=partial(measure, folder / "held.jsonl", leak),
    )  # fmt: skip
    return folder / "held.jsonl"


def test_after_hundreds_of_steps_with_faults_no_more_is_held_than_before(tmp_path):
    log = soak(tmp_path, STEPS)
    run = tmp_path / "run"
    timings = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    failures = [json.loads(file.read_text()) for file in (run / "failures").iterdir()]
    kinds = {kind: sum(one["kind"] == kind for one in failures) for kind in {one["kind"] for one in failures}}
    steps_with_faults = {one["step"] for one in failures}
    assert len(steps_with_faults) >= STEPS // 20, "too few faults to show anything"
    assert kinds.keys() == {"env_raised", "env_worker_died"}
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    print(f"\n{len(rows)} steps, {len(steps_with_faults)} with faults {kinds}, first {rows[20]}, last {rows[-1]}")
    assert len(timings) > STEPS
    assert grown(log) == {}


@pytest.mark.parametrize("leak", ["memory", "num_files", "num_threads"])
def test_a_leak_is_seen(tmp_path, leak):
    assert set(grown(soak(tmp_path, 40, leak))) >= {leak}
