"""Rewards: functions that score one trajectory, and the table of the built-in ones."""

from __future__ import annotations

from collections.abc import Callable

from dagrl.rewards.code import compute_score as code_score
from dagrl.rewards.default import compute_score as default_score
from dagrl.rewards.math import compute_score as math_score

REWARDS: dict[str, Callable[..., float]] = {
    "code": code_score,
    "default": default_score,
    "math": math_score,
}
"""Built-in rewards by name; all of the form `compute_score(data_source, solution_str, ground_truth, extra_info)`."""
