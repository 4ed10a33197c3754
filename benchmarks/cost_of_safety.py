"""What checkpoints, the trajectory log and the checks of every step cost, as shares of a run of the demo's workflow.

Run `python benchmarks/cost_of_safety.py [STEPS]` in the repository root. It trains workflows/marft.yaml for STEPS steps
(20 by default) with a checkpoint each 5 and next to no evaluation, in this process, with a clock around each function
named below; whole is the trainer's loop, the making of the model left out. Both kinds of time are of this process:
the environments' workers do not count, which makes the shares larger, not smaller. Time holds waiting for the disk; CPU
time does not, and is lengthened less by a busy machine.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dagrl.cli import exit_code  # noqa: E402
from dagrl.runtime import checkpoint  # noqa: E402
from dagrl.runtime.ledger import Ledger  # noqa: E402
from dagrl.runtime.metrics import MetricsWriter  # noqa: E402
from dagrl.runtime.recorder import Recorder  # noqa: E402
from dagrl.runtime.run_folder import RunFolder  # noqa: E402
from dagrl.runtime.token_check import TokenCheck  # noqa: E402
from dagrl.runtime.trainer import Trainer  # noqa: E402
from dagrl.runtime.trajectory_log import TrajectoryLog  # noqa: E402
from dagrl.runtime.watchdog import Watchdog  # noqa: E402

STEPS = 20
SAVE_EVERY = 5
CLOCKED: dict[str, list[tuple[Any, str]]] = {
    "checkpoints": [(Recorder, "checkpoint")],
    "  of which hashes": [(checkpoint, "_entry")],
    "trajectory log": [(TrajectoryLog, "write_step"), (TrajectoryLog, "write_evaluation")],
    "metrics and status": [(MetricsWriter, "write"), (RunFolder, "write_status")],
    "token-in, token-out": [(TokenCheck, "begin"), (TokenCheck, "ids"), (TokenCheck, "drift")],
    "ledger": [(Ledger, "issue"), (Ledger, "settle"), (Ledger, "check"), (Recorder, "ledger")],
    "warnings": [(Watchdog, "look")],
}
"""What is told → the functions that do it."""


class Clocks:
    """Seconds and CPU seconds of this process by name, and how often."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def clocked(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                return function(*arguments, **keywords)
            finally:
                self._add(name, wall, cpu)

        return call

    def clocked_async(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*arguments: Any, **keywords: Any) -> Any:
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                return await function(*arguments, **keywords)
            finally:
                self._add(name, wall, cpu)

        return call

    def _add(self, name: str, wall: float, cpu: float) -> None:
        self.wall[name] += time.perf_counter() - wall
        self.cpu[name] += time.process_time() - cpu
        self.calls[name] += 1


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    clocks = Clocks()
    for name, functions in CLOCKED.items():
        for owner, function in functions:
            setattr(owner, function, clocks.clocked(name, getattr(owner, function)))
    Trainer.run = clocks.clocked_async("whole", Trainer.run)
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"trainer.runs_dir={folder}", f"trainer.total_steps={steps}", f"trainer.save_freq={SAVE_EVERY}",
                    "trainer.val_before_train=false", "trainer.val_without=[]", "trainer.test_freq=0",
                    "trainer.min_improvement=null", "data.val_max_prompts=2"]  # fmt: skip
        workflow = str(ROOT / "workflows" / "marft.yaml")
        code = exit_code(["run", "--workflow", workflow, *(f"config.{one}" for one in settings)])
    assert code == 0, f"the run ended with exit code {code}"
    wall, cpu = clocks.wall["whole"], clocks.cpu["whole"]
    print(f"\n{steps} steps: {wall:.1f} s, CPU {cpu:.1f} s; {Path('/proc/pressure/cpu').read_text().splitlines()[0]}")
    for name in CLOCKED:
        print(f"{name:20s} {clocks.calls[name]:4d} calls  {clocks.wall[name] / wall:7.2%} of the time  "
              f"{clocks.cpu[name] / cpu:7.2%} of the CPU time")  # fmt: skip


if __name__ == "__main__":
    main()
