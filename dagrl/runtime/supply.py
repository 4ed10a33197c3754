"""Supply: what a step trains on. Draws prompts, has them played, plays more where a learn node asks for it, and keeps
for the next step what this one has no room for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagrl.data import DataLoader
from dagrl.errors import UserCodeError
from dagrl.nodes.dynamic_sampling import DynamicSamplingNode
from dagrl.nodes.reward import RewardNode
from dagrl.runtime.ledger import Ledger, Sample
from dagrl.runtime.player import Player, PlayResult
from dagrl.runtime.trace import Trace
from dagrl.runtime.trajectory_state import trajectory_of_state, trajectory_state
from dagrl.trace_events import EXTRA_PLAY
from dagrl.types import ExtraRollout, FailedTrajectory, Metrics, Task, Trajectory
from dagrl.workflow.graph import Workflow

ABORTED = "aborted"
"""Why samples are dropped that were asked for beyond the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBooks:
    """What became of samples that a step did not learn from."""

    failed: tuple[FailedTrajectory, ...]
    dropped: Mapping[Sample, str]
    """Played and left out, by the reason."""
    carried: tuple[Sample, ...]
    """Wait for the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judges:
    """The learn nodes that say what a rollout is worth."""

    scorer: RewardNode | None
    """The workflow's REWARD node; None takes the environment's rewards."""
    sampler: DynamicSamplingNode | None


class Supply:
    """One for a run; what it has carried over is part of a checkpoint."""

    def __init__(
        self, workflow: Workflow, *, loader: DataLoader, player: Player, judges: Judges, ledger: Ledger, trace: Trace
    ) -> None:
        config = workflow.spec.config
        self._sampler = judges.sampler
        self._batch_size, self._n = config.data.train_batch_size, config.rollout.n
        self._loader = loader
        self._player = player
        self._scorer = judges.scorer
        self._ledger = ledger
        self._trace = trace
        self._step = 0
        self._waiting: list[Trajectory] = []
        self._failed: list[FailedTrajectory] = []
        self._dropped: dict[Sample, str] = {}

    async def begin(self, step: int) -> tuple[tuple[Trajectory, ...], Metrics]:
        """The trajectories of a step, and what to tell of their play: those carried over, then those of new prompts."""
        self._step, self._failed, self._dropped = step, [], {}
        waiting, self._waiting = self._waiting, []
        missing = self._batch_size - len({one.prompt_key for one in waiting})
        self._loader.begin_step()
        played = await self._play(max(missing, 0))
        return (*waiting, *played.trajectories), played.metrics

    async def more(self, num_prompts: int) -> list[Trajectory] | None:
        """Samples of that many further prompts, scored; None where all of the data is in this step already."""
        with self._trace.phase(EXTRA_PLAY, is_played=True):
            played = await self._play(num_prompts)
        if not played.trajectories and not played.failed:
            return None
        if self._scorer is not None:
            self._scorer.score(played.trajectories)
        return list(played.trajectories)

    async def again(self, wanted: Sequence[ExtraRollout]) -> list[Trajectory | None]:
        """Varied rollouts, scored, which nobody trains on."""
        if not wanted:
            return []
        with self._trace.phase(EXTRA_PLAY, is_played=True):
            played = await self._player.play_extra(wanted)
        self._ledger.note_extra(len(wanted))
        whole = [one for one in played if isinstance(one, Trajectory)]
        if self._scorer is not None:
            self._scorer.score(whole)
        return [one if isinstance(one, Trajectory) and one.unscored is None else None for one in played]

    def leave_out(self, trajectories: Iterable[Trajectory], reason: str) -> None:
        """These are not trained on."""
        self._dropped |= {_sample(one): reason for one in trajectories}

    def carry_over(self, trajectories: Iterable[Trajectory]) -> None:
        """The next step begins with these."""
        self._waiting += trajectories

    def end(self) -> StepBooks:
        """Of the step that is over."""
        return StepBooks(
            failed=tuple(self._failed), dropped=self._dropped, carried=tuple(map(_sample, self._waiting))
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        return {"loader": self._loader.state_dict(), "waiting": [trajectory_state(one) for one in self._waiting]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._loader.load_state_dict(state["loader"])
        tasks = {task.task_id: task for task in self._loader.tasks}
        self._waiting = [trajectory_of_state(one, tasks) for one in state["waiting"]]

    async def _play(self, num_missing: int) -> PlayResult:
        """New prompts for those that the batch lacks."""
        oversample = 1.0 if self._sampler is None else self._sampler.oversample
        tasks = self._loader.draw(math.ceil(oversample * num_missing))
        self._ledger.issue(self._step, tasks, self._n)
        if self._sampler is not None and self._sampler.aborts:
            played = await self._play_until_full(tasks, num_missing, self._sampler)
        else:
            played = await self._player.play(tasks, step=self._step, sampling="train", n=self._n)
        self._failed += played.failed
        return played

    async def _play_until_full(
        self, tasks: Sequence[Task], num_missing: int, sampler: DynamicSamplingNode
    ) -> PlayResult:
        """The first of `tasks`, scored, of which `num_missing` have signal; the others are dropped."""
        num_found = num_scored = 0
        errors: list[UserCodeError] = []

        def is_full(samples: Sequence[Trajectory]) -> bool:
            nonlocal num_found, num_scored
            if self._scorer is not None:
                errors.extend(self._scorer.score_some(samples))
            num_scored += len(samples)
            num_found += sampler.has_signal(samples)
            return num_found >= num_missing

        played = await self._player.play_until(tasks, step=self._step, n=self._n, is_enough=is_full)
        if self._scorer is not None:
            self._scorer.check_failures(errors, num_scored)
        aborted = [(self._step, task.task_id, n) for task in tasks[played.num_tasks :] for n in range(self._n)]
        self._dropped |= dict.fromkeys(aborted, ABORTED)
        return played


def _sample(trajectory: Trajectory) -> Sample:
    return *trajectory.prompt_key, trajectory.sample
