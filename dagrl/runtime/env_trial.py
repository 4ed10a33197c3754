"""Environments outside a run: the contract check with a time limit, and a person in place of the agents."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagrl.environments.conformance import Trial, check_environment
from dagrl.environments.protocol import EnvAnswer, EnvRequest, Seats
from dagrl.environments.runner import EnvRunner, RemoteEnv
from dagrl.errors import UserCodeError
from dagrl.nodes.transcript import prompt_text
from dagrl.plain_text import safe
from dagrl.types import Task
from dagrl.workflow import plugins

_SHORT_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """How a person plays."""

    agents: int = 1
    rounds: int = 100
    """At most."""
    seed: int = 0
    timeout_s: float = 60.0
    """For each call of the environment."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """For the constructor."""


def spoken_to(task: Task) -> str:
    """The task's prompt as an environment gets it."""
    return prompt_text(task) if task.prompt else ""


def check_in_time(ref: str, base: Path, trial: Trial) -> list[str]:
    """What `check_environment` finds; a class that never comes back is a problem too. In the main thread only.

    One without fault is played in two processes as well, as in two runs.
    """
    try:
        with _alarm(trial.timeout_s):
            problems = check_environment(plugins.load(ref, base), trial)
    except TimeoutError as error:
        return [str(error)]
    return problems or _differing_processes(ref, base, trial)


def _differing_processes(ref: str, base: Path, trial: Trial) -> list[str]:
    """A problem where what it answers depends on the second, the process or the order of a set."""
    try:
        first, began = _course(ref, base, trial), int(time.time())
        while int(time.time()) == began:
            time.sleep(_SHORT_S)
        second = _course(ref, base, trial)
    except UserCodeError as error:
        return [f"in a process of its own: {error}"]
    if first == second:
        return []
    return [
        f"two processes with one seed and the same actions differ: {first} and {second}; what it says must not depend"
        " on the clock, the process id, unseeded draws or the order of a set"
    ]


def _course(ref: str, base: Path, trial: Trial) -> list[EnvAnswer]:
    """All answers of one object in a new process."""
    runner = EnvRunner(num_workers=1, timeout_s=trial.timeout_s)
    try:
        return asyncio.run(_play_alone(runner, ref, base, trial))
    finally:
        runner.close()


async def _play_alone(runner: EnvRunner, ref: str, base: Path, trial: Trial) -> list[EnvAnswer]:
    env = await runner.open(ref, base.resolve(), trial.kwargs)
    request = EnvRequest(actions=trial.actions, ground_truth=trial.ground_truth, seats=trial.seats)
    answers = [await env.reset(trial.offers, trial.seats)]
    while len(answers) <= trial.rounds and not (answers[-1].terminated or answers[-1].truncated):
        answers.append(await env.step(request))
    await env.close()
    return answers


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Interrupts blocking Python code with a TimeoutError, and again until it ends, because user code may catch it."""

    def ring(number: int, frame: Any) -> None:
        raise TimeoutError(f"did not come back within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    # Asynchronous code is ended by the check itself, which says more; the alarm is for code that blocks.
    signal.setitimer(signal.ITIMER_REAL, seconds + min(seconds, 1.0), seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def play(
    ref: str, base: Path, task: Task, seat: Seat, *, ask: Callable[[str], str], tell: Callable[[str], None]
) -> float:
    """Plays one trajectory with a person as every agent, in a process as in a run; gives the team's reward.

    `ask` shows its argument and gives a line, or raises EOFError when the person has had enough.
    """
    runner = EnvRunner(num_workers=1, timeout_s=seat.timeout_s)
    try:
        return asyncio.run(_Game(task, seat, ask, tell).run(runner, ref, base))
    finally:
        runner.close()


class _Game:
    """One trajectory."""

    def __init__(self, task: Task, seat: Seat, ask: Callable[[str], str], tell: Callable[[str], None]) -> None:
        self._task = task
        self._seat = seat
        self._seats = Seats(actors=tuple(range(seat.agents)))
        self._ask = ask
        self._tell = tell
        self._total = 0.0

    async def run(self, runner: EnvRunner, ref: str, base: Path) -> float:
        env = await runner.open(ref, base.resolve(), self._seat.kwargs)
        try:
            await self._rounds(env)
        except EOFError:
            self._tell(f"\nleft; reward so far {self._total:g}")
        finally:
            await env.close()
        return self._total

    async def _rounds(self, env: RemoteEnv) -> None:
        task = self._task
        if task.prompt:
            self._tell(f"problem: {safe(spoken_to(task))}")
        offers = {
            "prompt": spoken_to(task),
            "seed": self._seat.seed,
            "ground_truth": task.ground_truth,
            "extra_info": dict(task.extra_info),
        }
        self._hear(await env.reset(offers, self._seats))
        for number in range(1, self._seat.rounds + 1):
            self._tell(f"--- round {number}")
            actions = tuple(self._ask(f"agent {agent}> ") for agent in range(self._seat.agents))
            answer = await env.step(EnvRequest(actions=actions, ground_truth=task.ground_truth, seats=self._seats))
            self._hear(answer)
            self._count(answer)
            if answer.terminated or answer.truncated:
                end = "terminated" if answer.terminated else "truncated"
                self._tell(f"{end} after round {number}; reward {self._total:g} in all")
                return
        self._tell(f"stopped after {self._seat.rounds} rounds; reward {self._total:g} in all")

    def _hear(self, answer: EnvAnswer) -> None:
        texts = dict(answer.texts)
        if texts and len(texts) == self._seat.agents and len(set(texts.values())) == 1:
            self._tell(f"environment: {safe(answer.texts[0])}")
            return
        for agent, text in sorted(texts.items()):
            self._tell(f"environment to agent {agent}: {safe(text)}")

    def _count(self, answer: EnvAnswer) -> None:
        """A team's reward stands under each action and counts once."""
        gained = answer.rewards[0] if answer.is_team_reward else sum(answer.rewards)
        self._total += gained
        shown = f"{gained:g}" if answer.is_team_reward else ", ".join(f"{reward:g}" for reward in answer.rewards)
        self._tell(f"reward: {shown}")
