"""What the books cost: the time of a step's issue, settling and writing, beside the time of the step itself.

    OMP_NUM_THREADS=1 python benchmarks/ledger.py [SECONDS_PER_STEP]

128 trajectories of six turns of 32 tokens, as in the demo. SECONDS_PER_STEP: what a step of the demo takes.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from dagrl.experience import collate
from dagrl.nodes.usage import Usage
from dagrl.runtime.ledger import Ledger
from dagrl.runtime.line_log import LineLog
from dagrl.types import FinishReason, Task, Trajectory, Turn

TRAJECTORIES, TURNS, TOKENS, STEPS = 128, 6, 32, 200
DEMO_STEP_S = 2.0


def played(step: int) -> list[Trajectory]:
    return [
        Trajectory(task=Task(task_id=f"train:{number}", prompt="p"), sample=0, step=step, turns=_turns())
        for number in range(TRAJECTORIES)
    ]


def _turns() -> list[Turn]:
    return [
        Turn(
            node_id=f"agent_{place % 2}", agent_group=place % 2, round=place // 2, prompt_ids=(1,) * 64,
            response_ids=(2,) * TOKENS, rollout_logprobs=(-1.0,) * TOKENS, temperature=1.0,
            finish_reason=FinishReason.STOP, policy_version=0, response_text="",
        )
        for place in range(TURNS)
    ]  # fmt: skip


def main() -> None:
    step_s = float(sys.argv[1]) if len(sys.argv) > 1 else DEMO_STEP_S
    usage = Usage()
    ledger, seconds = Ledger(["reasoner", "actor"], usage), []
    with tempfile.TemporaryDirectory() as folder:
        log = LineLog(Path(folder) / "ledger.jsonl")
        for step in range(STEPS):
            experience = collate(played(step))
            every = torch.arange(len(experience.turns))
            started = time.process_time()
            ledger.issue(step, [one.task for one in experience.trajectories], 1)
            experience.note_update("policy", every)
            experience.note_update("critic", every)
            log.write(ledger.settle(step, experience, []))
            ledger.metrics()
            seconds.append(time.process_time() - started)
        num_bytes = log.size()
        log.close()
    median = statistics.median(seconds)
    print(f"{median * 1e3:.2f} ms of CPU time a step (median of {STEPS}), {num_bytes / STEPS:,.0f} bytes a step")
    print(f"{median / step_s:.3%} of a step of {step_s:g} s")


if __name__ == "__main__":
    main()
