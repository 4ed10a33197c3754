"""Ledger: the books of a run. Every sample ever issued is trained, dropped for a reason, or carried over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from dagrl.experience import Experience
from dagrl.nodes.usage import Usage
from dagrl.runtime.evaluate import Evaluation
from dagrl.types import FailedTrajectory, Metrics, Task

LEDGER_FILE = "ledger.jsonl"
COUNTS = ("issued", "trained", "dropped", "held_out", "extra", "tokens", "prompt_tokens", "trained_tokens", "env_calls",
          "judge_calls", "hook_calls", "lost_branches")  # fmt: skip
"""What is counted over a run. `extra`: rollouts that nobody trains on; `tokens`: generated, those and held-out problems
included."""

Sample = tuple[int, str, int]
"""(step from 0 that issued it, task id, which of its samples)."""


class Ledger:
    """The balance so far, and a row for each step and evaluation; a row holds no clock and repeats byte for byte.

    What does not balance is a fault of dagrl, so it is an assertion, and it names the sample.
    """

    def __init__(self, agent_names: Sequence[str], usage: Usage) -> None:
        """`agent_names` by agent group; `usage` is what the run's nodes count into."""
        self._agent_names = tuple(agent_names)
        self._usage = usage
        self._open: dict[Sample, None] = {}
        self._tasks: list[str] = []
        """Issued since the last row."""
        self._num_issued = 0
        self._num_extra = 0
        self._num_tasks = 0
        self._totals: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self._dropped: Counter[str] = Counter()

    def issue(self, step: int, tasks: Sequence[Task], n: int) -> None:
        """`n` samples of each of `tasks` are going to be played."""
        for task in tasks:
            for number in range(n):
                sample = (step, task.task_id, number)
                assert sample not in self._open, f"{_named(sample)} is issued twice"
                self._open[sample] = None
        self._tasks += [task.task_id for task in tasks]
        self._num_tasks += len(tasks)
        self._num_issued += len(tasks) * n
        self._totals["issued"] += len(tasks) * n

    def note_extra(self, count: int) -> None:
        """So many rollouts were played that are no samples: for credit or a baseline."""
        self._num_extra += count
        self._totals["extra"] += count

    def settle(
        self,
        step: int,
        experience: Experience,
        failed: Sequence[FailedTrajectory],
        carried: Iterable[Sample] = (),
        left_out: Mapping[Sample, str] | None = None,
    ) -> dict[str, Any]:
        """The row of a step whose learning is over. `carried`: samples that a later step will settle; `left_out`: those
        that nodes took out of the step, with their reasons."""
        trained, dropped = _fates(experience, failed)
        dropped |= left_out or {}
        kept = set(carried)
        for sample in [*trained, *dropped]:
            assert sample in self._open, f"{_named(sample)} comes back, but it is not out"
            del self._open[sample]
        for sample in self._open:
            assert sample in kept, f"{_named(sample)} was issued and neither trained, dropped nor carried over"
        assert kept <= self._open.keys(), f"{_named(min(kept - self._open.keys()))} is carried over, but it is not out"
        self._dropped.update(dropped.values())
        self._totals.update(trained=len(trained), dropped=len(dropped))
        tasks, issued, extra = self._tasks, self._num_issued, self._num_extra
        self._tasks, self._num_issued, self._num_extra = [], 0, 0
        return {
            "step": step + 1,
            "kind": "step",
            "tasks": tasks,
            "issued": issued,
            "trained": len(trained),
            "dropped": [[*sample, reason] for sample, reason in dropped.items()],
            "carried": [list(sample) for sample in self._open],
            "extra": extra,
        } | self._spend(_trained_tokens(experience))

    def settle_evaluation(self, evaluation: Evaluation, num_asked: int) -> dict[str, Any]:
        """The row of an evaluation that asked for `num_asked` samples; nothing of it is trained."""
        num_played, num_failed = len(evaluation.trajectories), evaluation.num_failed
        assert num_played + num_failed == num_asked, f"held-out samples: {num_played} + {num_failed} of {num_asked}"
        self._totals["held_out"] += num_asked
        return {
            "step": evaluation.step,
            "kind": "evaluation",
            "set": evaluation.held_out,
            "without": evaluation.without,
            "held_out": num_asked,
            "failed": num_failed,
            "unknown": evaluation.num_unknown,
        } | self._spend(Counter())

    def check(self, num_drawn: int) -> None:
        """Asserts that the books balance and that what the loader gave out (`num_drawn` tasks) is what was settled."""
        left = self._totals["issued"] - self._totals["trained"] - self._totals["dropped"]
        assert left == len(self._open), f"{left} samples are unaccounted for, {len(self._open)} are carried over"
        assert sum(self._dropped.values()) == self._totals["dropped"]
        assert num_drawn == self._num_tasks, f"the loader gave {num_drawn} tasks, {self._num_tasks} were issued"

    def metrics(self) -> Metrics:
        """Totals under `ledger/…`."""
        return {f"ledger/{name}": float(self._totals[name]) for name in COUNTS} | {
            f"ledger/dropped/{reason}": float(count) for reason, count in sorted(self._dropped.items())
        }

    def state_dict(self) -> dict[str, Any]:
        assert not self._tasks, "a step is going on"
        return {
            "open": list(self._open),
            "num_tasks": self._num_tasks,
            "totals": dict(self._totals),
            "dropped": dict(self._dropped),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._open = dict.fromkeys(state["open"])
        self._num_tasks = state["num_tasks"]
        self._totals, self._dropped = Counter(state["totals"]), Counter(state["dropped"])

    def _spend(self, trained_tokens: Counter[int]) -> dict[str, Any]:
        """What was used since the last row, added to the totals; by agent, and calls."""
        used = self._usage.take()
        agents = {
            name: {
                "prompt_tokens": used.prompt_tokens[group],
                "tokens": used.generated_tokens[group],
                "trained_tokens": trained_tokens[group],
            }
            for group, name in enumerate(self._agent_names)
        }
        names = ("env_calls", "judge_calls", "hook_calls", "lost_branches")
        calls: dict[str, int] = {name: getattr(used, name) for name in names}
        self._totals.update(calls)
        for own in agents.values():
            self._totals.update(own)
        return {"agents": agents, **calls, "totals": {name: self._totals[name] for name in COUNTS}}


def _fates(experience: Experience, failed: Sequence[FailedTrajectory]) -> tuple[list[Sample], dict[Sample, str]]:
    """The samples that were trained, and those that were dropped with their reasons."""
    trained: list[Sample] = []
    dropped: dict[Sample, str] = {(one.step, one.task.task_id, one.sample): one.kind for one in failed}
    updated = experience.trained
    spoken = set(experience.turns.trajectory[experience.turns.response_len > 0].tolist())
    for index, one in enumerate(experience.trajectories):
        sample = (one.step, one.task.task_id, one.sample)
        if index in updated:
            trained.append(sample)
        else:
            idle = "nobody_trains" if index in spoken else "no_response"
            dropped[sample] = experience.excuses.get(index, idle)
    return trained, dropped


def _trained_tokens(experience: Experience) -> Counter[int]:
    """By agent group: response tokens that its policy was updated on, each counted once."""
    counts = experience.updates.get("policy")
    found: Counter[int] = Counter()
    if counts is not None:
        table = experience.turns
        for group in torch.unique(table.agent_group).tolist():
            own = (table.agent_group == group) & (counts > 0)
            found[group] = int(table.response_len[own].sum())
    return found


def _named(sample: Sample) -> str:
    return f"sample {sample[2]} of task {sample[1]!r} of step {sample[0] + 1}"
