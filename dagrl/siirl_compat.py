"""Stands in for the two modules of siiRL that environments written for it import, where siiRL is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_PACKAGES = ("siirl", "siirl.utils", "siirl.utils.reward_score")


def install() -> None:
    """Makes `siirl.utils.reward_score.math` and `….prime_code` importable. Does nothing where siiRL is there."""
    if "siirl" in sys.modules or importlib.util.find_spec("siirl") is not None:
        return
    for name in _PACKAGES:
        package = ModuleType(name, "Stand-in of dagrl.")
        package.__path__ = []
        _register(package)
    _register(_scorer("math", _score_math))
    _register(_scorer("prime_code", _score_code))


def _scorer(name: str, function: Any) -> ModuleType:
    module = ModuleType(f"siirl.utils.reward_score.{name}", "Stand-in of dagrl.")
    module.compute_score = function  # type: ignore[attr-defined]
    return module


def _register(module: ModuleType) -> None:
    sys.modules[module.__name__] = module
    parent, _, name = module.__name__.rpartition(".")
    if parent:
        setattr(sys.modules[parent], name, module)


def _score_math(solution_str: str, ground_truth: Any) -> float:
    """1.0 if the last box of the text is the ground truth, else 0.0; our own scorer, which is looked up when called."""
    scorer = importlib.import_module("dagrl.rewards.math")
    return float(scorer.boxed_exact_match(solution_str, ground_truth))


def _score_code(completion: str, test_cases: Any, continuous: bool = False) -> tuple[float, dict[str, Any]]:
    """Score and what came of the tests of the last Python block; of the whole text where it has no block.

    The score is 1.0 if all tests pass, else 0.0; the share that passes where it is `continuous`. Raises `Undecided`
    where the machine kept a test from ending: the trajectory is dropped then and not scored.
    """
    code = importlib.import_module("dagrl.rewards.code")
    program = code.last_block(completion)
    verdict = code.judge(
        completion if program is None else program, code.read_tests(test_cases), stops_early=not continuous
    )
    score = verdict.share if continuous else float(verdict.failure is None)
    return score, {"passed": verdict.num_passed, "tests": verdict.num_tests, "failure": verdict.failure}
