"""G16: hundreds of steps with a fault every few of them: nothing piles up in memory, processes or on the disk."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import dagrl
from tests.tiny_project import ENVIRONMENT, write_project

pytestmark = pytest.mark.resilience

STEPS = 300
GROWTH = {"memory": 0.03, "disk": 0.03, "log": 0.25}
"""As a share, from the second quarter of the steps to the last; of anything else there may be no more at all."""
_FAULTS = """        draw = random.Random(self.seed).random()
        if draw < 0.01:
            os._exit(3)
        if draw < 0.03:
            raise RuntimeError("a fault of the environment")
"""


def write(folder: Path) -> None:
    """The tiny project with an environment that raises, and now and then takes its process along.

    The seed of a sample decides, so a second try meets the same end and every run has the same faults.
    """
    write_project(folder, total_steps=STEPS)
    faulty = ENVIRONMENT.replace("        self.left -= 1\n", _FAULTS + "        self.left -= 1\n")
    faulty = faulty.replace("def reset(self, prompt=None):", "def reset(self, seed):\n        self.seed = seed")
    (folder / "environment.py").write_text("import os\nimport random\n" + faulty)


def num_descendants(pid: int) -> int:
    """Processes that `pid` started and those that they started, the dead among them if nobody took their status."""
    found = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        children = (thread / "children").read_text().split()
        found += sum(1 + num_descendants(int(child)) for child in children)
    return found


def held(run: Path) -> dict[str, Any]:
    """What this process holds, and what its run has on the disk: what is kept, and the log, which grows."""
    own = Path("/proc/self")
    sizes = {file.relative_to(run).parts: file.stat().st_size for file in run.rglob("*") if file.is_file()}
    logs = ("tensorboard", "trajectories", "failures", "trace.json")
    is_log = {parts: parts[0] in logs or parts[0].endswith(".jsonl") for parts in sizes}
    return {
        "memory": int((own / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "num_files": len(os.listdir(own / "fd")),
        "num_threads": len(os.listdir(own / "task")),
        "num_processes": num_descendants(os.getpid()),
        "disk": sum(size for parts, size in sizes.items() if not is_log[parts]),
        "num_kept": sum(not one for one in is_log.values()),
        "log": sum(size for parts, size in sizes.items() if is_log[parts]),
        "cpu": sum(os.times()[:2]),
    }


def leak(kept: list[object], run: Path) -> None:
    """A little of everything."""
    kept.append(bytearray(os.urandom(1 << 22)))
    kept.append(open(os.devnull))  # noqa: SIM115 - the leak
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    kept.append(subprocess.Popen(["true"]))
    (run / f"leak_{len(kept)}").write_bytes(bytes(1 << 14))
    with (run / "leak.jsonl").open("ab") as log:
        log.write(bytes(1000 * len(kept)))


def measure(run: Path, rows: Path, is_leaking: bool) -> None:
    """A `setup` that writes down after every step what this process holds."""
    from dagrl.runtime.trainer import Trainer

    kept: list[object] = []
    original = Trainer._run_step

    async def run_step(self: Trainer) -> None:
        await original(self)
        if is_leaking:
            leak(kept, run)
        gc.collect()
        with rows.open("a") as file:
            file.write(json.dumps(held(run)) + "\n")

    Trainer._run_step = run_step  # type: ignore[method-assign]


def soak(folder: Path, steps: int, *, is_leaking: bool = False) -> list[dict[str, Any]]:
    write(folder)
    dagrl(
        "run", "--workflow", "calling.yaml", "--run-dir", "run", "data.train_batch_size=4", "rollout.n=2",
        "trainer.save_freq=10", "trainer.test_freq=0", "trainer.keep_last=2", f"trainer.total_steps={steps}",
        "rollout.max_failed_fraction=1", cwd=folder,
        setup=partial(measure, folder / "run", folder / "rows.jsonl", is_leaking),
    )  # fmt: skip
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def grown(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What a run held more of in its last quarter than in its second, by the median; of the log, what it grew by."""
    quarter = len(rows) // 4
    early, late = rows[quarter : 2 * quarter], rows[3 * quarter :]
    found = {}
    for name in rows[0].keys() - {"cpu"}:
        if name == "log":
            before, after = early[-1][name] - early[0][name], late[-1][name] - late[0][name]
        else:
            before, after = (statistics.median(row[name] for row in part) for part in (early, late))
        if after > before * (1 + GROWTH.get(name, 0)):
            found[name] = after / before
    return found


def test_after_hundreds_of_steps_with_faults_no_more_is_held_than_before(tmp_path):
    rows = soak(tmp_path, STEPS)
    run = tmp_path / "run"
    failures = [json.loads(file.read_text()) for file in (run / "failures").iterdir()]
    kinds = {kind: sum(one["kind"] == kind for one in failures) for kind in {one["kind"] for one in failures}}
    steps_with_faults = {one["step"] for one in failures}
    print(f"\n{len(rows)} steps, {len(steps_with_faults)} with faults {kinds}")
    print(f"after step 20 {rows[20]}\nafter the last {rows[-1]}")
    assert len(rows) == STEPS
    assert len(steps_with_faults) >= STEPS // 20, "too few faults to show anything"
    assert kinds["env_raised"] >= 10 and kinds["env_worker_died"] >= 5
    assert grown(rows) == {}


def test_twin_whatever_leaks_is_seen(tmp_path):
    rows = soak(tmp_path, 40, is_leaking=True)
    assert set(grown(rows)) == rows[0].keys() - {"cpu"}
