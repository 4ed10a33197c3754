"""Rewards: functions that score one trajectory, and the table of the built-in ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dagrl.rewards.code import compute_score as code_score
from dagrl.rewards.default import compute_score as default_score
from dagrl.rewards.format import format_score
from dagrl.rewards.language import language
from dagrl.rewards.length import overlong
from dagrl.rewards.math import compute_score as math_score
from dagrl.rewards.repetition import repetition

REWARDS: dict[str, Callable[..., Any]] = {
    "code": code_score,
    "default": default_score,
    "format": format_score,
    "language": language,
    "math": math_score,
    "overlong": overlong,
    "repetition": repetition,
}
"""Built-in rewards by name; `judge`, a model, is built by the REWARD node. `code`, `default` and `math` take
`(data_source, solution_str, ground_truth, extra_info)`, the others a trajectory."""
