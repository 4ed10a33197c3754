"""CPU time that the scheduler itself costs: per turn of the player, per node of the executor, per event of the trace.

Run `OMP_NUM_THREADS=1 python benchmarks/scheduler.py` in the repository root. There is no model: turns are scripted and
learn nodes do nothing, so that what is left is dagrl's own work. There are no environments and no hooks either.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dagrl.environments.runner import EnvRunner
from dagrl.experience import Experience, collate
from dagrl.runtime.executor import Executor
from dagrl.runtime.player import Player
from dagrl.runtime.token_check import TokenCheck
from dagrl.runtime.trace import Trace
from dagrl.trace_events import PLAY, TRACE_FILE, Kind
from dagrl.types import Metrics, Task
from dagrl.workflow.graph import Workflow, load_workflow
from dagrl.workflow.kinds import Node
from tests.play_builders import Team, rollout, workflow

ROOT = Path(__file__).resolve().parents[1]
NUM_TASKS = 256
NUM_SAMPLES = 4
NUM_AGENTS = 3
REPEATS = 5


class Nothing:
    """A learn node that does nothing."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def run(self, experience: Experience, step: int) -> Metrics:
        return {}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        chain = workflow(Path(folder), [rollout("a0"), rollout("a1", "a0", group=1), rollout("a2", "a1", group=2)])
        num_turns = NUM_TASKS * NUM_SAMPLES * NUM_AGENTS
        untraced = seconds(lambda: play(chain, Trace()))
        print(f"player    {1e6 * untraced / num_turns:6.0f} us per turn ({num_turns:,} turns, {NUM_AGENTS} agents)")
        traced = seconds(lambda: play_traced(chain, Path(folder)))
        print(f"          {1e6 * traced / num_turns:6.0f} us per turn with trace.json written")
    flow = load_workflow(ROOT / "workflows" / "marft.yaml")
    num_nodes = len(flow.live(0))
    learnt = seconds(lambda: learn(flow)) / 100
    print(f"executor  {1e6 * learnt / num_nodes:6.0f} us per node ({num_nodes} nodes, marft.yaml)")
    print(f"trace     {1e6 * seconds(lambda: events(100_000)) / 100_000:6.2f} us per beginning and end of one thing")


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds, as nothing here waits: median of some repeats, after one that does not count."""
    work()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def play(flow: Workflow, trace: Trace) -> None:
    team = Team(lambda prompt, request: "so it is 42")
    player = Player(flow, team.models, EnvRunner(), run_seed=0, trace=trace)
    tasks = [Task(task_id=f"t{number}", prompt="What is it?") for number in range(NUM_TASKS)]
    asyncio.run(player.play(tasks, step=0, sampling="train", n=NUM_SAMPLES))


def play_traced(flow: Workflow, folder: Path) -> None:
    trace = Trace(folder / TRACE_FILE, flow, num_full_steps=1)
    with trace.step(1), trace.phase(PLAY, is_played=True):
        play(flow, trace)


def learn(flow: Workflow) -> None:
    """A hundred steps."""
    names = [group.name for group in flow.groups]
    check = TokenCheck(names, ["float32"] * len(names), lambda group, ids: "", stops=False)
    executor = Executor(flow, {node.node_id: Nothing(node) for node in flow.learn}, check)
    asyncio.run(_learn(executor, collate([])))


async def _learn(executor: Executor, experience: Experience) -> None:
    for _ in range(100):
        await executor.learn(experience, 0)


def events(count: int) -> None:
    timed = Trace().timed(Kind.SPEAK, "a")
    for _ in range(count):
        with timed:
            pass


if __name__ == "__main__":
    main()
