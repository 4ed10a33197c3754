"""Player: plays a batch of tasks; every trajectory goes at its own pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dagrl.backends.base import Generator, Models, TellsPasses, Voices
from dagrl.environments.runner import EnvRunner
from dagrl.errors import DagrlError
from dagrl.hooks import Condition, Hooks
from dagrl.nodes.base import TrajectoryFault
from dagrl.nodes.env import EnvNode
from dagrl.nodes.rollout import RolloutNode
from dagrl.nodes.transcript import Scribe
from dagrl.nodes.usage import Usage
from dagrl.runtime.conversation import Conversation, Scene, Stage
from dagrl.runtime.failures import check_budget, write_failure
from dagrl.runtime.plan import PlayPlan, make_plan
from dagrl.runtime.trace import Trace
from dagrl.trace_events import Kind, Timed, untimed
from dagrl.types import ExtraRollout, FailedTrajectory, Metrics, StopReason, Task, Trajectory, Turn, Variation
from dagrl.workflow.graph import Workflow
from dagrl.workflow.held_out import VAL, HeldOutSet, held_out_sets
from dagrl.workflow.kinds import Node, NodeKind, reward_placement

Sampling = Literal["train", "val"]
_ALONE_AT_ONCE = 4
"""Trajectories at once that are played again in processes of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayResult:
    """What one batch came to; every sample asked for is in one of the two lists."""

    trajectories: tuple[Trajectory, ...]
    """In the order of tasks, then samples, whatever ended first."""
    failed: tuple[FailedTrajectory, ...]
    """In the same order."""
    num_tasks: int
    """How many of the tasks were played to their end: the first ones."""
    metrics: Metrics


class Player:
    """Plays the play graph of one workflow."""

    def __init__(
        self,
        workflow: Workflow,
        models: Models,
        env_runner: EnvRunner,
        *,
        run_seed: int,
        failures_dir: Path | None = None,
        usage: Usage | None = None,
        trace: Trace | None = None,
    ) -> None:
        """Loads all hooks. `failures_dir`: where failed trajectories are written, None writes none.

        `usage` counts tokens and calls; `trace` is told of everything that begins and ends.
        """
        rollout, algorithm = workflow.spec.config.rollout, workflow.spec.config.algorithm
        self._max_failed_fraction = rollout.max_failed_fraction
        self._max_concurrency = rollout.max_concurrency
        self._env_runner = env_runner
        self._generator = models.generator
        self._base = workflow.path.parent
        self._is_warm = False
        self._held_out = held_out_sets(workflow.spec.config)
        self._run_seed = run_seed
        self._failures_dir = failures_dir
        self._usage = Usage() if usage is None else usage
        self._trace = Trace() if trace is None else trace
        if isinstance(models.generator, TellsPasses):
            models.generator.tell_passes(self._trace.timed)
        plan = make_plan(workflow)
        nodes = rollout_nodes(workflow, plan, models, run_seed=run_seed, timed=self._trace.timed)
        self._stage = Stage(
            plan=plan,
            rollouts=nodes,
            envs={
                unit: EnvNode(
                    env.node,
                    runner=env_runner,
                    base=workflow.path.parent,
                    seats=env.seats,
                    run_seed=run_seed,
                    condition=_condition(env.node, workflow),
                    away=_timed_away(models.generator, self._trace.timed(Kind.ENV, unit)),
                )
                for unit, env in plan.envs.items()
            },
            scribe=Scribe(models.tokenizer),
            max_rounds=rollout.max_rounds,
            env_text=rollout.env_text,
            env_reward_mode=reward_placement(workflow.nodes, algorithm) if rollout.rewards_with_env else None,
        )

    async def play(
        self,
        tasks: Sequence[Task],
        *,
        step: int,
        sampling: Sampling,
        n: int,
        without: frozenset[str] = frozenset(),
        held_out: HeldOutSet = VAL,
    ) -> PlayResult:
        """`n` samples of every task; with `sampling` val as `held_out` says.

        `without`: rollout nodes whose responses are left out; what depends on them gets the context that they would
        have got. Raises `FaultBudgetError` as soon as too many trajectories failed.
        """
        unknown = without - self._stage.plan.rollouts.keys()
        if unknown:
            known = ", ".join(self._stage.plan.rollouts)
            raise DagrlError(f"cannot leave out '{min(unknown)}': no such rollout node", how=f"there are: {known}")
        scene = Scene(sampling=sampling, held_out=held_out, variation=Variation(silent=tuple(sorted(without))))
        batch = _Batch(len(tasks) * n)
        played = await self._play_all(batch, [_Try(scene, t, sample, step) for t in tasks for sample in range(n)])
        return PlayResult(
            trajectories=tuple(one for one in played if isinstance(one, Trajectory)),
            failed=tuple(one for one in played if isinstance(one, FailedTrajectory)),
            num_tasks=len(tasks),
            metrics=self._metrics(batch),
        )

    async def play_until(
        self, tasks: Sequence[Task], *, step: int, n: int, is_enough: Callable[[Sequence[Trajectory]], bool]
    ) -> PlayResult:
        """`n` samples to train on of the first tasks, up to the one at which `is_enough` says so.

        All tasks begin at once. `is_enough` is told the samples of each in their order, as soon as it and those before
        it are done; what comes after is aborted, however far it is. So nothing depends on what ends first, and of what
        is aborted nothing is counted: neither its faults nor what it used. Raises `FaultBudgetError` as `play` does.
        """
        scene, batch, gate = Scene(sampling="train"), _Batch(len(tasks) * n), asyncio.Semaphore(self._max_concurrency)
        await self._warm_up()
        self._generator.begin_batch()
        tries = [_Try(scene, task, sample, step) for task in tasks for sample in range(n)]
        jobs = [asyncio.create_task(self._perform(batch, gate, one)) for one in tries]
        played: list[Trajectory | FailedTrajectory] = []
        try:
            for first in range(0, len(tries), n):
                own = [
                    self._settled(batch, one, await job)
                    for one, job in zip(tries[first : first + n], jobs[first : first + n], strict=True)
                ]
                played += own
                if is_enough([one for one in own if isinstance(one, Trajectory)]):
                    break
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
        return PlayResult(
            trajectories=tuple(one for one in played if isinstance(one, Trajectory)),
            failed=tuple(one for one in played if isinstance(one, FailedTrajectory)),
            num_tasks=len(played) // n,
            metrics=self._metrics(batch),
        )

    async def play_extra(self, wanted: Sequence[ExtraRollout]) -> list[Trajectory | FailedTrajectory]:
        """Each varied rollout, in the same order. A turn whose prompt is that of the sample is not given again.

        Raises `FaultBudgetError` as soon as too many of them failed.
        """
        tries = [_Try(_varied(one), one.sample.task, one.sample.sample, one.sample.step) for one in wanted]
        return await self._play_all(_Batch(len(wanted)), tries)

    async def _play_all(self, batch: _Batch, tries: Sequence[_Try]) -> list[Trajectory | FailedTrajectory]:
        await self._warm_up()
        self._generator.begin_batch()
        gate = asyncio.Semaphore(self._max_concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                jobs = [group.create_task(self._play_one(batch, gate, one)) for one in tries]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [job.result() for job in jobs]

    async def play_again(self, failed: FailedTrajectory) -> Trajectory:
        """Plays the sample that failed as it was played; nothing is written or counted.

        Raises `TrajectoryFault` with what the user's code raised as its cause, if it fails again.
        """
        await self._warm_up()
        self._generator.begin_batch()
        sampling: Sampling = "val" if failed.sampling == "val" else "train"
        scene = Scene(sampling=sampling, held_out=self._set_called(failed.held_out), variation=failed.variation)
        start = Trajectory(task=failed.task, sample=failed.sample, step=failed.step)
        conversation = Conversation(self._stage, scene, start)
        trajectory = await conversation.play()
        if not trajectory.turns and trajectory.stop_reason is StopReason.MAX_CONTEXT:
            raise TrajectoryFault("prompt_too_long", conversation.context_message)
        return trajectory

    def _set_called(self, name: str) -> HeldOutSet:
        return next((one for one in self._held_out if one.name == name), VAL)

    async def _warm_up(self) -> None:
        """Before the first batch, so that no trajectory's environment is late for want of a process."""
        if self._is_warm or not self._stage.plan.envs:
            return
        nodes = [env.node for env in self._stage.plan.envs.values()]
        await self._env_runner.warm([(ref, self._base) for node in nodes for ref in node.options.env_path])
        self._is_warm = True

    def close(self) -> None:
        """Ends the processes of environments."""
        self._env_runner.close()

    async def _play_one(self, batch: _Batch, gate: asyncio.Semaphore, one: _Try) -> Trajectory | FailedTrajectory:
        return self._settled(batch, one, await self._perform(batch, gate, one))

    async def _perform(self, batch: _Batch, gate: asyncio.Semaphore, one: _Try) -> list[_Attempt]:
        """One attempt, or two; the last one counts."""
        async with gate:
            first = await self._attempt(one)
            if not _is_unlucky(first.played):
                return [first]
        async with batch.alone:
            return [first, await self._attempt(one, is_alone=True)]

    async def _attempt(self, one: _Try, *, is_alone: bool = False) -> _Attempt:
        """A second one gives the same, draw for draw, unless it is user code that differs."""
        trajectory = Trajectory(task=one.task, sample=one.sample, step=one.step)
        conversation = Conversation(self._stage, one.scene, trajectory, is_alone=is_alone)
        played: Trajectory | _Broken = trajectory
        try:
            await conversation.play()
        except TrajectoryFault as fault:
            played = _Broken(trajectory, fault)
        else:
            if not trajectory.turns and trajectory.stop_reason is StopReason.MAX_CONTEXT:
                played = _Broken(trajectory, TrajectoryFault("prompt_too_long", conversation.context_message))
        self._trace.conversation_ended(one.name, conversation.legs)
        return _Attempt(played, conversation.usage, len(conversation.close_faults))

    def _settled(self, batch: _Batch, one: _Try, attempts: Sequence[_Attempt]) -> Trajectory | FailedTrajectory:
        """Writes into the books what became of it."""
        for attempt in attempts:
            self._usage.add(attempt.usage)
            batch.num_close_faults += attempt.num_close_faults
        batch.num_retried += len(attempts) - 1
        played = attempts[-1].played
        return played if isinstance(played, Trajectory) else self._fail(batch, one.scene, played)

    def _fail(self, batch: _Batch, scene: Scene, broken: _Broken) -> FailedTrajectory:
        trajectory, fault = broken.trajectory, broken.fault
        failed = FailedTrajectory(
            task=trajectory.task,
            sample=trajectory.sample,
            step=trajectory.step,
            kind=fault.kind,
            message=fault.message,
            turns=tuple(trajectory.turns),
            sampling=scene.sampling,
            held_out=scene.held_out.name,
            variation=scene.variation,
        )
        if self._failures_dir is not None:
            write_failure(self._failures_dir, failed, self._run_seed)
        batch.failed.append(failed)
        check_budget(batch.failed, batch.size, self._max_failed_fraction)
        return failed

    def _metrics(self, batch: _Batch) -> Metrics:
        if not self._stage.plan.envs:
            return self._generator.metrics()
        return {
            **self._generator.metrics(),
            "env/close_failed": float(batch.num_close_faults),
            "env/retried": float(batch.num_retried),
            "env/workers_replaced": float(self._env_runner.num_replaced),
        }


class _Batch:
    """The books of rollouts that are played together."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Trajectories asked for."""
        self.failed: list[FailedTrajectory] = []
        self.num_close_faults = 0
        self.num_retried = 0
        """Trajectories played once more, because the process that their environment lived in died."""
        self.alone = asyncio.Semaphore(_ALONE_AT_ONCE)


@dataclass(frozen=True, slots=True)
class _Try:
    """What is to be played."""

    scene: Scene
    task: Task
    sample: int
    step: int

    @property
    def name(self) -> str:
        varied = self.scene.variation.name
        return f"{self.task.task_id}/{self.sample}" + (f" ({varied})" if varied else "")


@dataclass(frozen=True, slots=True)
class _Broken:
    """An attempt that came to nothing."""

    trajectory: Trajectory
    fault: TrajectoryFault


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What one attempt came to, and what it used."""

    played: Trajectory | _Broken
    usage: Usage
    num_close_faults: int


def _varied(one: ExtraRollout) -> Scene:
    known: dict[tuple[str, int], dict[int, Turn]] = {}
    for turn in one.sample.turns:
        known.setdefault((turn.node_id, turn.round), {})[turn.branch] = turn
    return Scene(sampling="train", variation=one.variation, known=known)


def _is_unlucky(played: Trajectory | _Broken) -> bool:
    """Whether another environment in the same process may be to blame."""
    return isinstance(played, _Broken) and played.fault.kind == "env_worker_died"


def _condition(node: Node, workflow: Workflow) -> Condition | None:
    """The `when` of an ENV node; that of a rollout node with an environment is for the rollout."""
    if node.kind is not NodeKind.ENV:
        return None
    return Condition(node.options.when, workflow.path.parent, timeout_s=workflow.spec.config.rollout.hook_timeout_s)


def _timed_away(
    generator: Generator, timed: AbstractContextManager[None]
) -> Callable[[], AbstractContextManager[None]]:
    @contextmanager
    def away() -> Iterator[None]:
        with generator.away(), timed:
            yield

    return away


def rollout_nodes(
    workflow: Workflow, plan: PlayPlan, voices: Voices, *, run_seed: int, timed: Timed = untimed
) -> dict[str, RolloutNode]:
    """Every rollout node by its id, with its hooks loaded."""
    base, rollout = workflow.path.parent, workflow.spec.config.rollout
    return {
        name: RolloutNode(
            node,
            tokenizer=voices.tokenizer(node.agent_group),
            generator=voices.generator,
            hooks=Hooks(node.options, base, timeout_s=rollout.hook_timeout_s),
            condition=Condition(node.options.when, base, timeout_s=rollout.hook_timeout_s),
            max_context_len=rollout.max_context_len,
            run_seed=run_seed,
            timed=timed,
        )
        for name, node in plan.rollouts.items()
    }
