"""A model behind a server as the judge of a REWARD node: a batch's questions go out side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from dagrl.backends.base import Chat
from dagrl.errors import FaultBudgetError, UserCodeError
from dagrl.nodes.reward_parts import Verdict, Withheld
from dagrl.nodes.usage import Usage
from dagrl.rewards.judge import Rubric, question, read_score
from dagrl.rewards.runner import RewardResult
from dagrl.types import Trajectory
from dagrl.workflow.sections import ServerSpec

MAX_AT_ONCE = 32
"""Questions that are open at a time."""


def server_of(rubric: Rubric) -> ServerSpec:
    """Where the judge is."""
    return ServerSpec(url=rubric.url, model=rubric.model, timeout_s=rubric.timeout_s, budget_s=rubric.budget_s)


class ModelJudge:
    """Gives the team's reward. No answer in time, and one without a score, is no score, never 0."""

    def __init__(self, rubric: Rubric, server: Chat) -> None:
        self._rubric = rubric
        self._server = server

    def judge_all(self, trajectories: Sequence[Trajectory], usage: Usage) -> list[Verdict]:
        """In the order of `trajectories`; every request counts as a judge call. Raises FaultBudgetError where the
        server answered none of them."""
        retries = self._server.num_retries
        with ThreadPoolExecutor(1) as beside:  # there may be an event loop in this thread already
            verdicts = beside.submit(asyncio.run, self._ask_all(trajectories)).result()
        usage.judge_calls += len(trajectories) + self._server.num_retries - retries
        silent = [one for one in verdicts if isinstance(one, Withheld) and one.kind == "judge_silent"]
        if trajectories and len(silent) == len(trajectories):
            raise FaultBudgetError(
                f"the judge answered none of {len(trajectories)} questions",
                where=f"server {self._server.url}",
                how=f"the first: {silent[0].why}",
            )
        return verdicts

    async def _ask_all(self, trajectories: Sequence[Trajectory]) -> list[Verdict]:
        gate = asyncio.Semaphore(MAX_AT_ONCE)

        async def ask(trajectory: Trajectory) -> Verdict:
            async with gate:
                return await self._ask(trajectory)

        return list(await asyncio.gather(*map(ask, trajectories)))

    async def _ask(self, trajectory: Trajectory) -> Verdict:
        asked = question(self._rubric, trajectory)
        try:
            verdict = await self._server.answer(asked, max_tokens=self._rubric.max_tokens)
        except UserCodeError as error:
            return Withheld(kind="judge_silent", why=error.what)
        score = read_score(verdict, self._rubric.scale)
        return Withheld(kind="judge_unread") if score is None else RewardResult(team=score)
