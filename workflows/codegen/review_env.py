"""CodeReviewEnv: a program and tests written for it; both are tried in the sandbox, the tests on a reference too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dagrl.errors import DataError
from dagrl.rewards.code import Tests, judge, last_block, read_tests


class CodeReviewEnv:
    """What became of one program and of the tests that were written for it.

    A row has the true tests as ground truth, in the form of dagrl.rewards.code, and a right program in
    `extra_info.reference`; held-out rows (`extra_info.split: test`) may do without, and tests for them earn nothing.
    Tests are written as JSON of that form, the last object of the text; of more than `max_tests` the first count. The
    coder's reward is 1 if its program passes the true tests. The tester's is 1/2 for tests that the reference passes,
    and 1/2 more if their verdict on the program is the true one: tests that are wrong or cannot be read earn nothing,
    whatever becomes of the program.

    It ends the conversation unless a test that can be read fails: then the coder is told the first of them, and what
    the program gave. Of the true tests nobody is told anything.
    """

    def __init__(self, max_tests: int = 2, cpu_limit_s: int = 2) -> None:
        self._max_tests = max_tests
        self._cpu_limit_s = cpu_limit_s

    def reset(self, prompt: str | None = None, extra_info: Mapping[str, Any] | None = None) -> None:
        row = extra_info or {}
        if row.get("reference") is None and row.get("split") != "test":
            raise ValueError("the row has no extra_info.reference: a program that solves the problem")
        self._reference = row.get("reference")

    def step(self, actions: Sequence[str], ground_truth: object) -> tuple[list[str | None], list[float], bool]:
        """`actions` are the coder's and the tester's: (report for the coder, rewards of both, whether that is all)."""
        program = last_block(actions[0])
        is_right = program is not None and self._failure(program, read_tests(ground_truth)) is None
        tests = written_tests(actions[1], self._max_tests)
        if tests is None:
            return [None, None], [float(is_right), 0.0], True
        failure = "there is no program" if program is None else self._failure(program, tests)
        is_valid = self._reference is not None and self._failure(self._reference, tests) is None
        agrees = (failure is None) == is_right
        return [failure, None], [float(is_right), 0.5 * is_valid * (1 + agrees)], failure is None

    def _failure(self, program: str, tests: Tests) -> str | None:
        """What is told of the first test that fails."""
        failure = judge(program, tests, cpu_limit_s=self._cpu_limit_s).failure
        if failure is None:
            return None
        number, _, what = failure.removeprefix("test ").partition(": ")
        return f"input {tests.cases[int(number)]}, expected {tests.expected[int(number)]}: {what}"


def written_tests(text: str, max_tests: int) -> Tests | None:
    """The tests that a text ends with; None where they cannot be read."""
    start, end = text.rfind("{"), text.rfind("}")
    try:
        tests = read_tests(json.loads(text[start : end + 1]))
    except (ValueError, RecursionError, DataError):
        return None
    return Tests(fn_name=tests.fn_name, cases=tests.cases[:max_tests], expected=tests.expected[:max_tests])
