"""Evaluation on held-out problems: played with their own sampling, scored as in training, never learnt from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagrl.nodes.reward import RewardNode
from dagrl.runtime.player import Player
from dagrl.runtime.statistics import Interval, mean_interval
from dagrl.types import Metrics, Task, Trajectory

SOLVED = 1.0
"""A trajectory counts as solved when its team's reward reaches this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Held-out results of one state of the team."""

    step: int
    without: str | None
    """The rollout node whose text was left out; None for the whole team."""
    solved: tuple[float, ...]
    """Share of solved samples of each problem, in the order of the held-out set; 0 where all samples failed."""
    solved_first_round: tuple[float, ...]
    """The same, counting only what was solved in the first round."""
    mean_reward: float
    num_failed: int
    trajectories: tuple[Trajectory, ...]
    """Empty where the evaluation comes from a checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """All but the trajectories, which are in the trajectory log."""
        return {
            "step": self.step,
            "without": self.without,
            "solved": self.solved,
            "solved_first_round": self.solved_first_round,
            "mean_reward": self.mean_reward,
            "num_failed": self.num_failed,
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Evaluation:
        return cls(**state, trajectories=())

    @property
    def accuracy(self) -> Interval:
        """Share of solved problems with its 95 % confidence interval."""
        return mean_interval(self.solved)

    @property
    def accuracy_first_round(self) -> Interval:
        return mean_interval(self.solved_first_round)

    def metrics(self) -> Metrics:
        by_source: dict[str, list[float]] = {}
        for trajectory in self.trajectories:
            by_source.setdefault(trajectory.task.data_source, []).append(trajectory.reward)
        metrics = {
            "val/accuracy": self.accuracy.mean,
            "val/accuracy_first_round": self.accuracy_first_round.mean,
            "val/reward": self.mean_reward,
            "val/failed": float(self.num_failed),
        }
        return metrics | {f"val/{name}/reward": sum(own) / len(own) for name, own in sorted(by_source.items())}


async def evaluate(
    player: Player,
    scorer: RewardNode | None,
    tasks: Sequence[Task],
    *,
    step: int,
    num_samples: int,
    batch_size: int | None = None,
    without: str | None = None,
) -> Evaluation:
    """Plays every task `num_samples` times. `scorer` is the workflow's REWARD node; None takes the environment's."""
    trajectories: list[Trajectory] = []
    num_failed = 0
    size = len(tasks) if batch_size is None else batch_size
    for start in range(0, len(tasks), max(size, 1)):
        result = await player.play(
            tasks[start : start + size],
            step=step,
            sampling="val",
            n=num_samples,
            without=frozenset() if without is None else frozenset({without}),
        )
        trajectories += result.trajectories
        num_failed += len(result.failed)
    if scorer is not None:
        scorer.score(trajectories)
    num_failed += sum(one.unscored is not None for one in trajectories)
    trajectories = [one for one in trajectories if one.unscored is None]
    return Evaluation(
        step=step,
        without=without,
        solved=solved_shares(tasks, trajectories, num_samples, max_rounds=None),
        solved_first_round=solved_shares(tasks, trajectories, num_samples, max_rounds=1),
        mean_reward=sum(one.reward for one in trajectories) / max(len(trajectories), 1),
        num_failed=num_failed,
        trajectories=tuple(trajectories),
    )


def solved_shares(
    tasks: Sequence[Task], trajectories: Sequence[Trajectory], num_samples: int, *, max_rounds: int | None
) -> tuple[float, ...]:
    """Of each task the share of its samples that were solved, within `max_rounds` where that is given."""
    solved = dict.fromkeys((task.task_id for task in tasks), 0.0)
    for one in trajectories:
        is_early = max_rounds is None or one.num_rounds <= max_rounds
        solved[one.task.task_id] += float(is_early and one.reward >= SOLVED) / num_samples
    return tuple(solved.values())
