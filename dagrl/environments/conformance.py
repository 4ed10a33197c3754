"""Does a class keep the promises of an environment? For `dagrl check-env` and for users' own tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagrl.environments.calls import raised, reset_arguments, step_arguments
from dagrl.environments.protocol import EnvAnswer, Seats, read_reset, read_step
from dagrl.errors import UserCodeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What an environment is tried with.

    def test_my_env():
        assert check_environment(MyEnv, Trial(actions=("42",), ground_truth="42")) == []
    """

    actions: tuple[str, ...] = ("first answer", "second answer")
    """Responses of one round: one for each agent."""
    ground_truth: Any = None
    prompt: str = "prompt"
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """For the constructor."""
    rounds: int = 3
    timeout_s: float = 60.0
    """For everything of one object together."""

    @property
    def seats(self) -> Seats:
        return Seats(actors=tuple(range(len(self.actions))))

    @property
    def offers(self) -> dict[str, Any]:
        """What `reset` may ask for."""
        return {
            "prompt": self.prompt,
            "seed": 0,
            "ground_truth": self.ground_truth,
            "extra_info": dict(self.extra_info),
        }


def check_environment(env_class: Callable[..., Any], trial: Trial) -> list[str]:
    """What is wrong with the class, one sentence each; empty if nothing is.

    Runs it in this process. Checked: construction, `reset`, `step` and `close` with their shapes; that arguments are
    left as they are; that the same seed and actions give the same answers; that two objects do not share state.
    """
    shape = _shape_problems(env_class)
    if shape:
        return shape
    try:
        return asyncio.run(asyncio.wait_for(_check(env_class, trial), trial.timeout_s))
    except UserCodeError as error:
        return [str(error)]
    except TimeoutError:
        return [f"did not finish {trial.rounds} rounds within {trial.timeout_s:g} s"]


def _shape_problems(env_class: Callable[..., Any]) -> list[str]:
    if not callable(env_class):
        return [f"is a {type(env_class).__name__}, not a class"]
    problems = []
    if not callable(getattr(env_class, "step", None)):
        problems.append("has no method step(self, actions, ground_truth) -> (obs, reward, done)")
    for name in ("reset", "close"):
        if not callable(getattr(env_class, name, lambda: None)):
            problems.append(f"{name} is not a method")
    return problems


async def _check(env_class: Callable[..., Any], trial: Trial) -> list[str]:
    alone = await _Tried(env_class, trial).play()
    again = await _Tried(env_class, trial).play()
    problems = [] if alone == again else [f"two objects with one seed and the same actions differ: {alone} and {again}"]
    first, second = _Tried(env_class, trial), _Tried(env_class, trial)
    await first.start()
    await second.start()
    for _ in range(trial.rounds):
        await first.advance()
        await second.advance()
    for one in (first, second):
        await one.close()
    if alone == again and not first.answers == second.answers == alone:
        problems.append("two objects in play at once disturb each other: state is kept in the class or the module")
    return [*problems, *first.problems]


class _Tried:
    """One object being tried."""

    def __init__(self, env_class: Callable[..., Any], trial: Trial) -> None:
        self._class = env_class
        self._trial = trial
        self._env: Any = None
        self.answers: list[EnvAnswer] = []
        self.problems: list[str] = []

    async def play(self) -> list[EnvAnswer]:
        await self.start()
        for _ in range(self._trial.rounds):
            await self.advance()
        await self.close()
        return self.answers

    async def start(self) -> None:
        self._env = await self._call("__init__", self._class, **self._trial.kwargs)
        method = getattr(self._env, "reset", None)
        raw = None
        if method is not None:
            raw = await self._call("reset", method, **reset_arguments(method, self._trial.offers))
        self.answers.append(read_reset(raw, self._trial.seats))

    async def advance(self) -> None:
        """One step, unless it is over."""
        if self.answers[-1].terminated or self.answers[-1].truncated:
            return
        actions = list(self._trial.actions)
        positional, keywords = step_arguments(self._env.step, actions, self._trial.ground_truth)
        raw = await self._call("step", self._env.step, *positional, **keywords)
        self.answers.append(read_step(raw, self._trial.seats))
        if actions != list(self._trial.actions) and not self.problems:
            self.problems.append("step changes the list of actions that it is given")

    async def close(self) -> None:
        close = getattr(self._env, "close", None)
        if close is not None:
            await self._call("close", close)

    async def _call(self, name: str, method: Callable[..., Any], *args: Sequence[Any], **kwargs: Any) -> Any:
        try:
            value = method(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value
        except Exception as error:
            raise raised(error, name, None) from error
