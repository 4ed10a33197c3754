"""Recorder: everything a run leaves behind goes through here, to the run folder and to the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagrl.backends.pool import ModelPool
from dagrl.experience import Experience, collate
from dagrl.runtime import checkpoint
from dagrl.runtime.console import Console
from dagrl.runtime.evaluate import Evaluation
from dagrl.runtime.identity import identities
from dagrl.runtime.ledger import LEDGER_FILE
from dagrl.runtime.line_log import LineLog
from dagrl.runtime.metrics import MetricsWriter
from dagrl.runtime.process_random import random_state
from dagrl.runtime.retention import Retention
from dagrl.runtime.run_folder import RunFolder
from dagrl.runtime.trace import Trace
from dagrl.runtime.trajectory_log import TrajectoryLog
from dagrl.runtime.watchdog import Watchdog
from dagrl.trace_events import CHECKPOINT
from dagrl.types import Metrics
from dagrl.workflow.graph import Workflow


class Recorder:
    """Writes metrics, trajectories, checkpoints and status; shows progress."""

    def __init__(self, workflow: Workflow, folder: RunFolder, pool: ModelPool, console: Console, trace: Trace) -> None:
        self._workflow = workflow
        self._trainer = workflow.spec.config.trainer
        self._folder = folder
        self._pool = pool
        self._console = console
        self._trace = trace
        self._metrics = MetricsWriter(folder.path)
        self._ledger = LineLog(folder.path / LEDGER_FILE)
        self._watchdog = Watchdog()
        self._accuracies: dict[int, float] = {}
        self._identities = identities(workflow, pool)
        self._told_halved: dict[str, int] = {}
        self._log = TrajectoryLog(
            folder.trajectories,
            agent_names=[group.name for group in workflow.groups],
            decode=lambda group, ids: pool.tokenizer(group).decode(ids),
        )

    def step(self, step: int, experience: Experience, metrics: Metrics, seconds: Mapping[str, float]) -> None:
        """One finished step, numbered from 0; it is shown and logged as step + 1, the number of steps done."""
        done = step + 1
        self._metrics.write(done, metrics | self._memory())
        if self._trainer.log_trajectories:
            self._log.write_step(done, experience)
        self._folder.write_status("running", done)
        self._console.step(done, metrics, seconds)
        for warning in self._watchdog.look(done, metrics):
            self.warn(done, warning)
        frequency = self._trainer.show_sample_freq
        if frequency and (done == 1 or done % frequency == 0) and experience.trajectories:
            self._console.conversation(done, experience.trajectories[0])

    def warn(self, done: int, warning: str) -> None:
        """Tells of something that is going wrong, after `done` steps."""
        self._console.note(f"warning after step {done}: {warning}")

    def ledger(self, row: Mapping[str, Any]) -> None:
        """The books of a step or an evaluation."""
        self._ledger.write(row)

    def evaluation(self, evaluation: Evaluation) -> None:
        """Held-out conversations; those of the whole team on the set that counts say which checkpoint is best."""
        if evaluation.without is None and evaluation.counts and evaluation.num_problems:
            self._accuracies[evaluation.step] = evaluation.accuracy.mean
        if self._trainer.log_trajectories:
            of = "" if evaluation.counts else evaluation.held_out
            self._log.write_evaluation(evaluation.step, collate(evaluation.trajectories), evaluation.without, of)
        self._console.evaluation(evaluation)

    def scores(self, step: int, metrics: Metrics) -> None:
        """Held-out results after `step` steps, of all sets, and what the run has used by now."""
        self._metrics.write(step, metrics)

    def checkpoint(self, step: int, state: Mapping[str, Any]) -> Path:
        """Saves every trained agent, every critic once, and the state of the run."""
        with self._trace.after_step(step, CHECKPOINT):
            return self._save(step, state)

    def _save(self, step: int, state: Mapping[str, Any]) -> Path:
        names = {group.index: group.name for group in self._workflow.groups}
        trained = [group.index for group in self._workflow.groups if group.is_trained]
        policies, critics = self._pool.policies(), self._pool.critics()
        models = {f"agent_{names[index]}": policies[index].state_dict() for index in trained}
        models |= {f"critic_{names[index]}": critic.state_dict() for index, critic in critics.items()}
        return checkpoint.save(
            self._folder.checkpoints,
            step,
            checkpoint.CheckpointParts(
                agents={names[index]: policies[index].save for index in trained},
                critics={names[index]: critic.save for index, critic in critics.items()},
                state={
                    **state,
                    "models": models,
                    "accuracies": self._accuracies,
                    "watchdog": self._watchdog.state_dict(),
                    "random": random_state(),
                    "files": self._metrics.sizes() | {LEDGER_FILE: self._ledger.size()} | self._trace.sizes(),
                },
                identity=self._identities,
            ),
            Retention(
                keep_last=self._trainer.keep_last,
                keep_best=self._trainer.keep_best,
                accuracies=self._accuracies,
            ),
        )

    def _memory(self) -> Metrics:
        """How often memory ran out so far, by model; what is new is told. Nothing where it never did."""
        budgets = {name: budget for name, budget in self._pool.budgets().items() if budget.num_halved}
        for name, budget in budgets.items():
            if budget.num_halved > self._told_halved.get(name, 0):
                self._told_halved[name] = budget.num_halved
                self.note(f"memory ran out at {name}: micro_batch_tokens is {budget.micro_batch_tokens} from now on")
        return {f"memory/{name}/halved": float(budget.num_halved) for name, budget in budgets.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes from a checkpoint's state what is the recorder's own."""
        self._accuracies = dict(state["accuracies"])
        self._watchdog.load_state_dict(state["watchdog"])

    def note(self, text: str) -> None:
        """A line of news on the terminal."""
        self._console.note(text)

    def close(self) -> None:
        self._metrics.close()
        self._trace.close()
        self._ledger.close()
