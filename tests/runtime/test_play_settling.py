"""How many turns of the event loop lie between an answer and the request that follows from it: the engine waits so
many before it takes its next pass (`HFGenerator`), and what a pass is over must not depend on how fast anything was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dagrl.backends.hf_generator import _QUIET_TURNS
from dagrl.backends.scripted import ScriptedGenerator, ScriptedModels, ScriptedTokenizer
from dagrl.environments.runner import EnvRunner
from dagrl.runtime.player import Player
from dagrl.types import Completion, GenerationRequest
from tests.play_builders import rollout, task, workflow

NEVER = "def never(trajectory):\n    return False\n"


class Clock(ScriptedGenerator):
    """Counts turns of the event loop in which the engine is asked for nothing and nobody is away."""

    def __init__(self, tokenizer: ScriptedTokenizer) -> None:
        super().__init__({0: tokenizer}, lambda request: "said")
        self.longest = 0
        self._turn = self._last = self._inside = 0

    async def tick(self) -> None:
        while True:
            self._turn += 1
            await asyncio.sleep(0)

    async def generate(self, request: GenerationRequest) -> Completion:
        with self.away():
            return await super().generate(request)

    @contextmanager
    def away(self) -> Iterator[None]:
        if self._inside == 0 and self._last:
            self.longest = max(self.longest, self._turn - self._last)
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._last = self._turn


@pytest.mark.parametrize("num_skipped", [1, 10, 60])
def test_the_way_to_the_next_request_is_shorter_than_the_engine_waits(tmp_path, num_skipped):
    skipped = [rollout(f"skipped_{n}", "first" if n == 0 else f"skipped_{n - 1}") for n in range(num_skipped)]
    skipped[0]["agent_options"] = {"when": "when.py:never"}
    nodes = [rollout("first"), *skipped, rollout("last", "first", f"skipped_{num_skipped - 1}")]
    graph = workflow(tmp_path, nodes, files={"when.py": NEVER})
    tokenizer = ScriptedTokenizer()
    clock = Clock(tokenizer)
    player = Player(graph, ScriptedModels({0: tokenizer}, clock), EnvRunner(), run_seed=1)

    async def main() -> None:
        ticking = asyncio.create_task(clock.tick())
        played = await player.play([task()], step=0, sampling="train", n=1)
        assert [turn.node_id for turn in played.trajectories[0].turns] == ["first", "last"]
        ticking.cancel()

    asyncio.run(main())
    assert num_skipped <= clock.longest < _QUIET_TURNS + len(graph.play)
