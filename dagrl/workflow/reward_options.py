"""What a REWARD node is made of: a weighted list of functions, and weights by how the trajectory came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagrl.workflow.fields import Spec

JUDGE = "judge"
REWARD_REFS: Mapping[str, str] = {
    "code": "dagrl.rewards.code:compute_score",
    "default": "dagrl.rewards.default:compute_score",
    "format": "dagrl.rewards.format:format_score",
    JUDGE: "dagrl.rewards.judge:Rubric",
    "language": "dagrl.rewards.language:language",
    "math": "dagrl.rewards.math:compute_score",
    "overlong": "dagrl.rewards.length:overlong",
    "repetition": "dagrl.rewards.repetition:repetition",
}
"""Names of `rewards.REWARDS`, and the judge: what is built in, and what its kwargs are checked against."""


class RewardPartSpec(Spec):
    """One summand of a REWARD node."""

    fn: str
    """default · math · code · overlong · format · language · repetition · judge (a model) · `path.py:function`."""
    weight: float = 1.0
    """What its reward is multiplied with in the sum."""
    name: str | None = None
    """Name in metrics (`reward/parts/NAME`); that of the function if not given."""
    kwargs: dict[str, Any] = {}
    """Keyword arguments for it."""

    @property
    def shown(self) -> str:
        return self.fn.rpartition(":")[2] if self.name is None else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeWeights:
    """What the rewards of turns are multiplied with, by whether the trajectory came out right."""

    correct: float | Mapping[str, float] = 1.0
    """For all turns, or by rollout node; of nodes that are not named 1."""
    incorrect: float | Mapping[str, float] = 1.0
    outcome_node: str | None = None
    """The rollout node whose last turn decides; the last turn of all, if not given."""

    def of(self, node_id: str, *, is_right: bool) -> float:
        weight = self.correct if is_right else self.incorrect
        return weight.get(node_id, 1.0) if isinstance(weight, Mapping) else weight
