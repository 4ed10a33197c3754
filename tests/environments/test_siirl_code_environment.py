"""An environment written for siiRL that scores programs: awaited in a worker process, judged from a pool of threads."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from dagrl.environments.protocol import EnvAnswer, EnvRequest, Seats
from dagrl.environments.runner import EnvRunner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

ENVIRONMENT = """
import asyncio

from siirl.utils.reward_score.prime_code import compute_score


class Programs:
    def reset(self):
        return None

    async def step(self, actions, ground_truth):
        judged = asyncio.get_event_loop().run_in_executor(None, compute_score, actions[-1], ground_truth)
        score = float((await judged)[0])
        return [f"{action} scored {score}" for action in actions], score, score == 1.0
"""
TESTS = '{"inputs": ["1", "5"], "outputs": ["2", "6"]}'
SEATS = Seats(actors=(0, 1))


def test_programs_are_scored_in_the_worker_of_an_environment(tmp_path: Path) -> None:
    (tmp_path / "programs.py").write_text(ENVIRONMENT)
    runner = EnvRunner(num_workers=1, timeout_s=120)

    async def answer(program: str) -> EnvAnswer:
        env = await runner.open("programs.py:Programs", tmp_path, {})
        await env.reset({}, SEATS)
        actions = ("a plan", f"```python\n{program}\n```")
        return await env.step(EnvRequest(actions=actions, ground_truth=TESTS, seats=SEATS))

    async def both() -> list[EnvAnswer]:
        return list(await asyncio.gather(answer("print(int(input()) + 1)"), answer("print(2)")))

    try:
        right, wrong = asyncio.run(both())
    finally:
        runner.close()
    assert (right.rewards, right.terminated) == ((1.0, 1.0), True)
    assert (wrong.rewards, wrong.terminated) == ((0.0, 0.0), False)
