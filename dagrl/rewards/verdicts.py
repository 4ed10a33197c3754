"""Verdicts: what an agent that judges said, beside what it should have said; a confusion matrix over a batch.

A reward function gives them beside its score: `{"score": 1.0, "verdict": {"verifier": ("approve", "reject")}}`, or a
list of such pairs for an agent that judged several times. What is said may be None: it gave no verdict. They are kept
among the numbers of the reward, so that they stand in the trajectory log.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dagrl.types import Metrics, Trajectory

KEY = "verdict"
"""The entry of what a reward function gives."""
NONE = "none"
_LABEL = re.compile(r"[\w.-]+")


def as_parts(told: Any) -> dict[str, float]:
    """`verdict/<who>/<said>/<should have said>` to how often; nothing for a number, which is a part of its own.

    Raises ValueError where `told` is no such entry."""
    if isinstance(told, numbers.Real):
        return {}
    if not isinstance(told, Mapping):
        raise ValueError("is no mapping of an agent to (said, should have said)")
    parts: dict[str, float] = {}
    for who, pairs in told.items():
        for said, truth in _pairs(pairs):
            labels = [str(who), NONE if said is None else said, truth]
            if not all(isinstance(label, str) and _LABEL.fullmatch(label) for label in labels):
                raise ValueError(f"has {said!r} and {truth!r} for {who!r}: labels are words, or None for no verdict")
            name = "/".join((KEY, *labels))
            parts[name] = parts.get(name, 0.0) + 1.0
    return parts


def _pairs(told: Any) -> Sequence[tuple[Any, Any]]:
    pairs = [told] if isinstance(told, tuple) else told
    if not isinstance(pairs, (list, tuple)) or not all(isinstance(one, tuple) and len(one) == 2 for one in pairs):
        raise ValueError(f"has {told!r}, which is neither a pair (said, should have said) nor a list of them")
    return pairs


def is_verdict(part: str) -> bool:
    """Whether a number of a reward is one of these."""
    return part.startswith(f"{KEY}/")


def confusion(trajectories: Sequence[Trajectory]) -> Metrics:
    """By who judged: `verdict/<who>/<said>/<should have said>` as a share of its verdicts, for all labels that appear,
    `…/right` the share that is as it should be, and `…/count`."""
    counts: dict[str, dict[tuple[str, str], float]] = {}
    for trajectory in trajectories:
        for turn in trajectory.turns:
            for part, number in turn.reward_parts.items():
                if is_verdict(part):
                    _, who, said, truth = part.split("/")
                    own = counts.setdefault(who, {})
                    own[said, truth] = own.get((said, truth), 0.0) + number
    metrics: Metrics = {}
    for who, own in sorted(counts.items()):
        total, place = sum(own.values()), f"{KEY}/{who}"
        for said in sorted({said for said, _ in own}):
            for truth in sorted({truth for _, truth in own}):
                metrics[f"{place}/{said}/{truth}"] = own.get((said, truth), 0.0) / total
        metrics[f"{place}/right"] = sum(number for (said, truth), number in own.items() if said == truth) / total
        metrics[f"{place}/count"] = total
    return metrics
