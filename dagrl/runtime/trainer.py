"""Trainer: the loop. Each step plays a batch of tasks, learns from it, and writes down what happened."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagrl.errors import StorageError
from dagrl.experience import Experience, collate
from dagrl.nodes.base import AnyLearnNode, stateful
from dagrl.nodes.reward import scorer_of
from dagrl.runtime.evaluate import Evaluation, evaluate
from dagrl.runtime.executor import Executor
from dagrl.runtime.held_out import HeldOut
from dagrl.runtime.held_out_scores import detailed_scores
from dagrl.runtime.ledger import Ledger
from dagrl.runtime.player import Player
from dagrl.runtime.probes import Probes
from dagrl.runtime.recorder import Recorder
from dagrl.runtime.summary import step_metrics
from dagrl.runtime.supply import Supply
from dagrl.runtime.trace import Trace
from dagrl.trace_events import EVALUATE, LEARN, PLAY, WRITE
from dagrl.types import Metrics
from dagrl.workflow.budgets import Budget, budgets
from dagrl.workflow.graph import Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReport:
    """What a run came to."""

    num_steps: int
    """Steps finished."""
    before: tuple[Evaluation, ...]
    """By held-out set, the one that counts first; empty where it was not measured."""
    after: tuple[Evaluation, ...]
    without: tuple[Evaluation, ...]
    """The team at the end, with one agent's text left out, on the set that counts."""
    stopped_by: int | None
    """Number of the signal that ended the run early; None where it came to its end."""
    spent: Budget | None
    """The budget of `stop_when` that ended the run."""
    checkpoint: Path | None

    def has_improved_by(self, least: float | None) -> bool:
        """Whether held-out accuracy rose by `least`; true where nothing was asked for."""
        if least is None:
            return True
        if not self.before or not self.after:
            return False
        return self.after[0].accuracy.mean - self.before[0].accuracy.mean >= least


class Trainer:
    """Owns the loop and the step counter; everything it works with comes by the constructor."""

    def __init__(
        self,
        workflow: Workflow,
        *,
        player: Player,
        executor: Executor,
        learn_nodes: Mapping[str, AnyLearnNode],
        supply: Supply,
        held_out: Sequence[HeldOut],
        recorder: Recorder,
        trace: Trace,
        ledger: Ledger,
        total_steps: int,
        probes: Probes | None = None,
    ) -> None:
        self._workflow = workflow
        self._config = workflow.spec.config
        self._player = player
        self._executor = executor
        self._learn_nodes = learn_nodes
        self._supply = supply
        self._held_out = tuple(held_out)
        self._recorder = recorder
        self._trace = trace
        self._ledger = ledger
        self._total_steps = total_steps
        self._probes = probes
        self._step = 0
        self._before: tuple[Evaluation, ...] = ()
        self._latest: tuple[Evaluation, ...] = ()
        self._stopped_by: int | None = None
        self._saved_at = time.monotonic()
        self._seconds_before = 0.0
        self._started = time.perf_counter()

    def request_stop(self, signal_number: int) -> None:
        """Ends the run after the step that is going on."""
        self._stopped_by = signal_number

    @property
    def num_steps(self) -> int:
        """Steps finished."""
        return self._step

    @property
    def is_stopping(self) -> bool:
        return self._stopped_by is not None

    async def run(self) -> TrainingReport:
        """All steps, with the evaluations and checkpoints that fall due."""
        trainer = self._config.trainer
        self._saved_at = time.monotonic()
        self._started = time.perf_counter()
        if (spent := self._spent) is not None:
            self._recorder.note(f"config.stop_when: the budget is spent ({spent}): nothing more is trained")
        if trainer.val_before_train and not self._before:
            self._before = self._latest = await self._evaluate()
        while self._step < self._total_steps and not self.is_stopping and (spent := self._spent) is None:
            await self._run_step()
            is_last = self._step == self._total_steps or self._spent is not None
            if trainer.test_freq and self._step % trainer.test_freq == 0 and not is_last:
                self._latest = await self._evaluate()
            if self._is_save_due and not is_last and not self.is_stopping:
                self._save()
        checkpoint = self._save()
        without: tuple[Evaluation, ...] = ()
        if self._held_out and not self.is_stopping:
            is_done = bool(self._latest) and self._latest[0].step == self._step
            whole: list[tuple[HeldOut, str | None]] = [] if is_done else [(one, None) for one in self._held_out]
            found = await self._judge([*whole, *((self._held_out[0], node_id) for node_id in trainer.val_without)])
            self._latest, without = found[: len(whole)] or self._latest, found[len(whole) :]
        return TrainingReport(
            num_steps=self._step,
            before=self._before,
            after=self._latest,
            without=without,
            stopped_by=self._stopped_by,
            spent=spent,
            checkpoint=checkpoint,
        )

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands, without the models: step, data position, and the state of every node that has one."""
        supply = self._supply.state_dict()
        self._ledger.check(supply["loader"]["drawn"])
        return {
            "step": self._step,
            "supply": supply,
            "ledger": self._ledger.state_dict(),
            "seconds": self._seconds,
            "executor": self._executor.state_dict(),
            "before": [one.state_dict() for one in self._before],
            "latest": [one.state_dict() for one in self._latest],
            "nodes": {name: node.state_dict() for name, node in stateful(self._learn_nodes).items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises StorageError where `state` is of another learn graph."""
        saved, own = sorted(state["nodes"]), sorted(stateful(self._learn_nodes))
        if saved != own:
            raise StorageError(
                f"the checkpoint holds the state of the nodes {saved}; the workflow has {own}",
                how="resume with the nodes that the run began with",
            )
        self._step = state["step"]
        self._supply.load_state_dict(state["supply"])
        self._ledger.load_state_dict(state["ledger"])
        self._seconds_before = state["seconds"]
        self._executor.load_state_dict(state["executor"])
        self._recorder.load_state_dict(state)
        self._before = tuple(map(Evaluation.of_state, state["before"]))
        self._latest = tuple(map(Evaluation.of_state, state["latest"]))
        for name, node in stateful(self._learn_nodes).items():
            node.load_state_dict(state["nodes"][name])

    async def _run_step(self) -> None:
        step, rollout = self._step, self._config.rollout
        with self._trace.step(step + 1):
            with self._trace.phase(PLAY, is_played=True) as play:
                trajectories, told = await self._supply.begin(step)
            with self._trace.phase(LEARN):
                probed = await self._probes.look(trajectories) if self._probes and self._probes.is_due(step) else {}
                experience = collate(trajectories, use_all_traj=rollout.use_all_traj)
                learnt = await self._executor.learn(experience, step) if len(experience.turns) else None
                books = self._supply.end()
                metrics = told | probed | step_metrics(self._workflow, experience, books.failed, step=step)
            seconds: dict[str, float] = {"play": play.seconds}
            if learnt is not None:
                metrics |= learnt.metrics
                seconds |= learnt.seconds
            with self._trace.phase(WRITE):
                settled = self._ledger.settle(step, experience, books.failed, books.carried, books.dropped)
                self._recorder.ledger(settled)
                self._record(step, experience, metrics, seconds)
                for warning in () if learnt is None else learnt.warnings:
                    self._recorder.warn(step + 1, warning)
        self._step += 1

    def _record(self, step: int, experience: Experience, metrics: Metrics, seconds: Mapping[str, float]) -> None:
        total = sum(seconds.values())
        metrics |= {f"perf/seconds/{name}": value for name, value in seconds.items()}
        metrics["perf/seconds_per_step"] = total
        metrics["perf/tokens_per_second"] = experience.num_tokens / total
        metrics |= self._totals()
        self._recorder.step(step, experience, metrics, seconds)

    def _save(self) -> Path:
        path = self._recorder.checkpoint(self._step, self.state_dict())
        # From the end of the save: one that takes longer than `save_minutes` must not make the next one due.
        self._saved_at = time.monotonic()
        return path

    @property
    def _is_save_due(self) -> bool:
        """By steps or by the clock, which decides only when a checkpoint is made, never what is in it."""
        frequency, minutes = self._config.trainer.save_freq, self._config.trainer.save_minutes
        if frequency > 0 and self._step % frequency == 0:
            return True
        return minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes

    async def _evaluate(self) -> tuple[Evaluation, ...]:
        """The whole team on every held-out set."""
        return await self._judge([(held_out, None) for held_out in self._held_out])

    async def _judge(self, wanted: Sequence[tuple[HeldOut, str | None]]) -> tuple[Evaluation, ...]:
        """Each set, without the text of a node where one is named. Between steps nothing is in play, and what waits for
        the next step is left as it is."""
        names = [group.name for group in self._workflow.groups]
        found: list[Evaluation] = []
        metrics: Metrics = {}
        for held_out, without in wanted:
            with self._trace.after_step(self._step, EVALUATE, is_played=True):
                evaluation = await evaluate(
                    self._player,
                    scorer_of(self._learn_nodes),
                    held_out.tasks,
                    step=self._step,
                    held_out=held_out.spec,
                    batch_size=self._config.data.val_batch_size,
                    without=without,
                )
            self._recorder.ledger(self._ledger.settle_evaluation(evaluation, held_out.num_samples))
            self._recorder.evaluation(evaluation)
            found.append(evaluation)
            metrics |= evaluation.metrics()
            if without is None:
                metrics |= detailed_scores(evaluation, held_out.tasks, held_out.spec.k, names)
        if found:
            self._recorder.scores(self._step, metrics | self._totals())
        return tuple(found)

    def _totals(self) -> Metrics:
        """What the run has used so far, earlier parts included."""
        return self._ledger.metrics() | {"perf/seconds_total": self._seconds}

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._started

    @property
    def _spent(self) -> Budget | None:
        """The first budget that is used up."""
        numbers = self._totals()
        if self._latest and self._latest[0].num_problems:
            numbers["val/accuracy"] = self._latest[0].accuracy.mean
        limits = self._config.stop_when.model_dump()
        return next((one for one in budgets(limits, numbers) if one.is_spent), None)

