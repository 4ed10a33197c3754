"""Budgets of a run: what `config.stop_when` limits, by which number of the metrics, and how much of it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from dagrl.workflow.fields import Positive, PositiveInt, Spec

NUMBER_OF: Mapping[str, str] = {
    "tokens": "ledger/tokens",
    "seconds": "perf/seconds_total",
    "env_calls": "ledger/env_calls",
    "judge_calls": "ledger/judge_calls",
    "held_out_accuracy": "val/accuracy",
}
"""Key of `stop_when` → the metric that it is compared with."""


class StopSpec(Spec):
    """Budgets: the run ends after the step or evaluation in which one of them is reached, as if `total_steps` were."""

    tokens: PositiveInt | None = None
    """Tokens that all agents generated, on held-out problems too."""
    seconds: Positive | None = None
    """Time of steps, evaluations and checkpoints by the clock; a resumed run counts its earlier parts."""
    env_calls: PositiveInt | None = None
    """Calls of `reset` and `step`, of every environment object."""
    judge_calls: PositiveInt | None = None
    """Calls of the function of a REWARD node, on held-out problems too."""
    held_out_accuracy: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """A target: share of held-out problems solved, as evaluations measure it (`trainer.test_freq`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One limit and how far the run has come."""

    name: str
    used: float
    limit: float

    @property
    def is_spent(self) -> bool:
        return self.used >= self.limit

    @property
    def share(self) -> float:
        return self.used / self.limit if self.limit else 1.0

    def __str__(self) -> str:
        return f"{self.name} {_number(self.used)} of {_number(self.limit)}"


def budgets(limits: Mapping[str, float | None], numbers: Mapping[str, float | None]) -> list[Budget]:
    """Every limit that is set, by `stop_when`'s keys, beside the latest metrics; a number not known yet counts as 0."""
    return [
        Budget(name=name, used=float(numbers.get(metric) or 0.0), limit=float(limit))
        for name, metric in NUMBER_OF.items()
        if (limit := limits.get(name)) is not None
    ]


def as_line(found: list[Budget]) -> str:
    """`tokens 1,024 of 4,000 (26%), …`; empty without budgets."""
    return ", ".join(f"{budget} ({budget.share:.0%})" for budget in found)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"
