"""EnvNode: the environments of one ENV node, or of one rollout node with `env_path`, stepped in order."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from dagrl.environments.protocol import EnvAnswer, EnvRequest, Seats
from dagrl.environments.runner import EnvRunner, RemoteEnv
from dagrl.errors import UserCodeError
from dagrl.hooks import Condition, HookScene
from dagrl.nodes.base import blaming
from dagrl.nodes.transcript import prompt_text
from dagrl.nodes.usage import Usage
from dagrl.seeds import derive_seed
from dagrl.types import Trajectory
from dagrl.workflow.kinds import Node

_SEED_RANGE = 2**32
"""Environments may hand their seed to numpy's old generator, which takes no larger one."""


Away = Callable[[], AbstractContextManager[None]]


class EnvNode:
    """Makes the environments of one trajectory; holds nothing of any."""

    def __init__(
        self,
        node: Node,
        *,
        runner: EnvRunner,
        base: Path,
        seats: Seats,
        run_seed: int,
        condition: Condition | None = None,
        away: Away = nullcontext,
    ) -> None:
        """`base`: the folder that classes are found from. `seats`: who acts, in the order of `actions`.

        `condition`: whether it is stepped in a round; always, without one.
        `away` (`Generator.away`) is entered while an environment is at work, because requests will follow.
        """
        self.node = node
        self._runner = runner
        self._away = away
        self._base = base
        self._seats = seats
        self._seed = run_seed
        self._condition = condition

    async def is_wanted(self, trajectory: Trajectory, usage: Usage) -> bool:
        """What `when` of an ENV node says; the call is counted in `usage`."""
        if self._condition is None:
            return True
        usage.hook_calls += not self._condition.is_always
        with blaming("when"), self._away():
            return await self._condition.holds(HookScene(trajectory=trajectory))

    def session(self, trajectory: Trajectory, *, usage: Usage | None = None, is_alone: bool = False) -> EnvSession:
        """Nothing is opened yet. `usage`: what its calls are counted in. `is_alone`: in processes of its own."""
        refs = self.node.options.env_path
        key = (*trajectory.prompt_key, trajectory.sample, self.node.node_id, "env")
        seeds = [derive_seed(self._seed, *key, index) % _SEED_RANGE for index in range(len(refs))]
        opened = [(ref, self._base, self.node.options.env_kwargs) for ref in refs]
        open_env = partial(self._runner.open, is_alone=is_alone)
        counted = Usage() if usage is None else usage
        return EnvSession(open_env, self._away, opened, seeds, self._seats, trajectory, usage=counted)


class EnvSession:
    """The environments of one node in one trajectory, from their making to their end."""

    def __init__(
        self,
        open_env: Callable[..., Awaitable[RemoteEnv]],
        away: Away,
        classes: Sequence[tuple[str, Path, Mapping[str, Any]]],
        seeds: Sequence[int],
        seats: Seats,
        trajectory: Trajectory,
        *,
        usage: Usage,
    ) -> None:
        self._open = open_env
        self._away = away
        self._classes = classes
        self._seeds = seeds
        self._seats = seats
        self._task = trajectory.task
        self._usage = usage
        self._envs: list[RemoteEnv] = []

    async def reset(self) -> EnvAnswer:
        """Makes all of them and resets each once."""
        answers: list[EnvAnswer] = []
        with blaming("env"), self._away():
            for (ref, base, kwargs), seed in zip(self._classes, self._seeds):
                await self._add(self._open(ref, base, kwargs))
                self._usage.env_calls += 1
                answers.append(await self._envs[-1].reset(self._offers(seed), self._seats))
        return merge(answers)

    async def _add(self, opening: Awaitable[RemoteEnv]) -> None:
        """One that is being made when the rollout is aborted is waited for, or nobody would close it."""
        making = asyncio.ensure_future(opening)
        try:
            await asyncio.shield(making)
        except asyncio.CancelledError:
            self._envs.append(await making)
            raise
        self._envs.append(making.result())

    async def step(self, actions: Sequence[str]) -> EnvAnswer:
        """Each gets the same actions, one after the other."""
        request = EnvRequest(actions=tuple(actions), ground_truth=self._task.ground_truth, seats=self._seats)
        with blaming("env"), self._away():
            answers: list[EnvAnswer] = []
            for env in self._envs:
                self._usage.env_calls += 1
                answers.append(await env.step(request))
            return merge(answers)

    async def close(self) -> list[str]:
        """Closes all; gives the messages of those whose `close` failed."""
        faults: list[str] = []
        with self._away():
            for env in self._envs:
                try:
                    await env.close()
                except UserCodeError as error:
                    faults.append(str(error))
        self._envs = []
        return faults

    def _offers(self, seed: int) -> dict[str, Any]:
        return {
            "prompt": prompt_text(self._task),
            "seed": seed,
            "ground_truth": self._task.ground_truth,
            "extra_info": dict(self._task.extra_info),
        }


def merge(answers: Sequence[EnvAnswer]) -> EnvAnswer:
    """Several environments as one: texts joined by a line break, rewards added, ended if any ended."""
    if len(answers) == 1:
        return answers[0]
    groups = sorted({group for answer in answers for group in answer.texts})
    by_seat = itertools.zip_longest(*(answer.seat_texts for answer in answers))
    return EnvAnswer(
        texts={group: "\n".join(one.texts[group] for one in answers if group in one.texts) for group in groups},
        seat_texts=tuple(_joined(texts) for texts in by_seat),
        rewards=tuple(map(sum, zip(*(answer.rewards for answer in answers)))),
        is_team_reward=all(answer.is_team_reward for answer in answers),
        terminated=any(answer.terminated for answer in answers),
        truncated=any(answer.truncated for answer in answers),
        images=tuple(dict.fromkeys(image for answer in answers for image in answer.images)),
    )


def _joined(texts: Iterable[str | None]) -> str | None:
    said = [text for text in texts if text is not None]
    return "\n".join(said) if said else None
