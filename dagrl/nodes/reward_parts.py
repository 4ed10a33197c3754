"""What a REWARD node sums up: parts with a name and a weight, each giving a verdict on every trajectory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dagrl.errors import UserCodeError
from dagrl.nodes.usage import Usage
from dagrl.rewards.runner import RewardResult
from dagrl.rewards.verdicts import is_verdict
from dagrl.types import Trajectory

Judge = Callable[[Trajectory], RewardResult | None]
"""Scores one trajectory; None where the answer could not be judged in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """No score."""

    kind: str
    """For the books: `undecided`, `raised`, `timeout`, `judge_silent`, …"""
    why: str = ""
    error: UserCodeError | None = None
    """Where it is a fault of the reward function, of which only so many are allowed."""


Verdict = RewardResult | Withheld


class BatchJudge(Protocol):
    def judge_all(self, trajectories: Sequence[Trajectory], usage: Usage) -> list[Verdict]:
        """A verdict on each, in their order; calls are counted in `usage`."""
        ...


class OneByOne:
    """A function that is called for one trajectory after another."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def judge_all(self, trajectories: Sequence[Trajectory], usage: Usage) -> list[Verdict]:
        return [self._verdict(trajectory, usage) for trajectory in trajectories]

    def _verdict(self, trajectory: Trajectory, usage: Usage) -> Verdict:
        usage.judge_calls += 1
        try:
            result = self._judge(trajectory)
        except UserCodeError as error:
            return Withheld(kind=error.kind, error=error)
        return Withheld(kind="undecided") if result is None else result


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPart:
    """One summand. The first of a node is its outcome: it says what is right."""

    judge: BatchJudge
    weight: float = 1.0
    name: str | None = None
    """In metrics; None where it is the only part, whose own numbers then keep their names."""

    def told(self, result: RewardResult) -> dict[str, float]:
        """What goes to the metrics: the score before it is weighed, and the function's own numbers."""
        if self.name is None:
            return dict(result.parts)
        own = {key if is_verdict(key) else f"{self.name}/{key}": value for key, value in result.parts.items()}
        return {self.name: result.score, **own}
