"""The reward of a workflow that names none: what a ground truth looks like says how an answer is judged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dagrl.rewards.code import compute_score as code_score
from dagrl.rewards.math import compute_score as math_score


def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """`code` where the ground truth holds tests for a program (`inputs` and `outputs`), `math` for everything else."""
    judge = code_score if holds_tests(ground_truth) else math_score
    return judge(data_source, solution_str, ground_truth, extra_info)


def holds_tests(ground_truth: Any) -> bool:
    """Whether it is a mapping, or JSON of one, with `inputs` and `outputs`."""
    if isinstance(ground_truth, str) and ground_truth.lstrip().startswith("{"):
        try:
            ground_truth = json.loads(ground_truth)
        except ValueError:
            return False
    return isinstance(ground_truth, Mapping) and {"inputs", "outputs"} <= set(ground_truth)
