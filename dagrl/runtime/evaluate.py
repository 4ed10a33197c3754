"""Evaluation on held-out problems: played with their own sampling, scored as in training, never learnt from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagrl.nodes.reward import RewardNode
from dagrl.runtime.player import Player
from dagrl.runtime.statistics import Interval, mean_interval
from dagrl.types import SOLVED, Metrics, Task, Trajectory
from dagrl.workflow.held_out import VAL, HeldOutSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Held-out results of one state of the team."""

    step: int
    held_out: str = ""
    """Name of the set, where it has one."""
    counts: bool = True
    """Whether the set is the one that the run goes by."""
    without: str | None
    """The rollout node whose text was left out; None for the whole team."""
    solved: tuple[float | None, ...]
    """Of each problem, in the order of the held-out set, the share of solved samples among those with a verdict; None
    where no sample has one: neither a fault nor a judge that timed out is a wrong answer."""
    solved_first_round: tuple[float | None, ...]
    """The same, counting only what was solved in the first round."""
    mean_reward: float
    """Of the samples with a verdict; NaN where there is none."""
    failed: Mapping[str, int]
    """Samples that user code broke, by the kind of the fault."""
    unknown: Mapping[str, int]
    """Samples that were played and whose reward nobody could find, by the reason."""
    trajectories: tuple[Trajectory, ...]
    """All that did not fail; empty where the evaluation comes from a checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """All but the trajectories, which are in the trajectory log."""
        return {
            "step": self.step,
            "held_out": self.held_out,
            "counts": self.counts,
            "without": self.without,
            "solved": self.solved,
            "solved_first_round": self.solved_first_round,
            "mean_reward": self.mean_reward,
            "failed": dict(self.failed),
            "unknown": dict(self.unknown),
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Evaluation:
        return cls(**state, trajectories=())

    @property
    def accuracy(self) -> Interval:
        """Share of solved problems with its 95 % confidence interval, over the problems with a verdict; its mean is NaN
        where there are none."""
        return mean_interval(known(self.solved))

    @property
    def accuracy_first_round(self) -> Interval:
        return mean_interval(known(self.solved_first_round))

    @property
    def num_problems(self) -> int:
        """Problems with a verdict: those that the accuracy is over."""
        return len(known(self.solved))

    @property
    def num_failed(self) -> int:
        return sum(self.failed.values())

    @property
    def num_unknown(self) -> int:
        return sum(self.unknown.values())

    @property
    def place(self) -> str:
        """What the names of its metrics begin with."""
        return f"val/{self.held_out}/" if self.held_out else "val/"

    def metrics(self) -> Metrics:
        """Under `val/<set>/…`, or `val/…` where it has no name; what the run goes by is under `val/…` always."""
        if self.without is not None:
            place = f"{self.place}without/{self.without}"
            return {f"{place}/accuracy": self.accuracy.mean, f"{place}/reward": self.mean_reward}
        by_source: dict[str, list[float]] = {}
        for trajectory in _scored(self.trajectories):
            by_source.setdefault(trajectory.task.data_source, []).append(trajectory.reward)
        scores = {
            "accuracy": self.accuracy.mean,
            "accuracy_first_round": self.accuracy_first_round.mean,
            "reward": self.mean_reward,
            "problems": float(self.num_problems),
            "failed": float(self.num_failed),
            "unknown": float(self.num_unknown),
        }
        places = dict.fromkeys((*(("val/",) if self.counts else ()), self.place))
        metrics = {f"{place}{name}": value for place in places for name, value in scores.items()}
        return metrics | {
            f"{self.place}{name}/reward": sum(own) / len(own) for name, own in sorted(by_source.items())
        }


async def evaluate(
    player: Player,
    scorer: RewardNode | None,
    tasks: Sequence[Task],
    *,
    step: int,
    held_out: HeldOutSet,
    batch_size: int | None = None,
    without: str | None = None,
) -> Evaluation:
    """Plays every task as `held_out` says. `scorer` is the workflow's REWARD node; None takes the environment's."""
    trajectories: list[Trajectory] = []
    failed: Counter[str] = Counter()
    size = len(tasks) if batch_size is None else batch_size
    for start in range(0, len(tasks), max(size, 1)):
        result = await player.play(
            tasks[start : start + size],
            step=step,
            sampling="val",
            n=held_out.k,
            held_out=held_out,
            without=frozenset() if without is None else frozenset({without}),
        )
        trajectories += result.trajectories
        failed.update(one.kind for one in result.failed)
    if scorer is not None:
        scorer.score_outcome(trajectories)
    return summed_up(tasks, trajectories, failed, step=step, without=without, held_out=held_out)


def summed_up(
    tasks: Sequence[Task],
    trajectories: Sequence[Trajectory],
    failed: Mapping[str, int],
    *,
    step: int,
    without: str | None,
    held_out: HeldOutSet = VAL,
) -> Evaluation:
    """The evaluation that `trajectories`, scored, are; `failed` are those of `tasks` that are missing."""
    return Evaluation(
        step=step,
        held_out=held_out.name,
        counts=held_out.counts,
        without=without,
        solved=solved_shares(tasks, trajectories),
        solved_first_round=solved_shares(tasks, trajectories, max_rounds=1),
        mean_reward=mean_reward(trajectories),
        failed=dict(sorted(failed.items())),
        unknown=dict(sorted(Counter(one.unscored for one in trajectories if one.unscored is not None).items())),
        trajectories=tuple(trajectories),
    )


def solved_shares(
    tasks: Sequence[Task], trajectories: Sequence[Trajectory], *, max_rounds: int | None = None
) -> tuple[float | None, ...]:
    """Of each task the share of its samples that were solved, within `max_rounds` where that is given, among those with
    a verdict; None where none has one."""
    marks: dict[str, list[bool]] = {task.task_id: [] for task in tasks}
    for one in _scored(trajectories):
        is_early = max_rounds is None or one.num_rounds <= max_rounds
        marks[one.task.task_id].append(is_early and one.reward >= SOLVED)
    return tuple(sum(own) / len(own) if own else None for own in marks.values())


def mean_reward(trajectories: Sequence[Trajectory]) -> float:
    """Of those with a verdict; NaN where there is none."""
    rewards = [one.reward for one in _scored(trajectories)]
    return sum(rewards) / len(rewards) if rewards else math.nan


def known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _scored(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    return [one for one in trajectories if one.unscored is None]
