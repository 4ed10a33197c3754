"""Tests of programs in the forms they are published in, read into the one that dagrl's code reward reads."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from common import CODE_INSTRUCTION, Row, make_row
from overlap import Problem

from dagrl.errors import DataError
from dagrl.rewards.code import read_tests

_CALLS = ("functional", "function_call")
_STREAMS = ("stdin", "stdin_stdout")


def add_max_test_chars(arguments: argparse.ArgumentParser) -> None:
    """`--max_test_chars`, for sets whose tests are of any size."""
    arguments.add_argument(
        "--max_test_chars",
        type=int,
        default=1_000_000,
        help="characters of tests kept for one problem, the shortest first; dagrl reads texts up to 5,000,000",
    )


def read_code_problem(
    question: str, tests: Any, *, metadata: Any, starter_code: str | None, max_test_chars: int
) -> Problem:
    """One problem whose `answer` is JSON of its tests. Raises ValueError for tests in no form that is known.

    Known are APPS' and TACO's mapping (`inputs`, `outputs`, `fn_name`), and lists of `input` and `output` with a `type`
    (PrimeIntellect: `function_call`, its `fn_name` beside it) or a `testtype` (LiveCodeBench: `functional`, its
    `func_name` in the metadata of the test or of the problem).
    """
    cases, fn_name = _cases(_parsed(tests), _mapping(metadata))
    kept = _within(cases, max_test_chars)
    truth: dict[str, Any] = {"inputs": [given for given, _ in kept], "outputs": [wanted for _, wanted in kept]}
    if fn_name is not None:
        truth["fn_name"] = fn_name
    try:
        read_tests(truth)
    except DataError as error:
        raise ValueError(error.what) from error
    return Problem(
        question=f"{question.strip()}\n\n{CODE_INSTRUCTION} {_call_style(fn_name, starter_code)}",
        answer=json.dumps(truth),
        extra_info={"num_tests": len(kept), "num_tests_left_out": len(cases) - len(kept)},
    )


def code_row(problem: Problem, source: str, split: str, index: int) -> Row:
    """The row of a problem."""
    return make_row(
        data_source=source,
        question=problem.question,
        ability="code",
        ground_truth=problem.answer,
        extra_info={"split": split, "index": index, **problem.extra_info},
    )


def tell_left_out(problems: Sequence[Problem]) -> None:
    """Says how many tests did not fit."""
    counts = [problem.extra_info["num_tests_left_out"] for problem in problems]
    if any(counts):
        num_problems = sum(count > 0 for count in counts)
        print(f"{sum(counts)} tests of {num_problems} problems left out: past --max_test_chars")


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _mapping(metadata: Any) -> Mapping[str, Any]:
    parsed = _parsed(metadata or {})
    if not isinstance(parsed, Mapping):
        raise ValueError(f"its metadata is no mapping: {parsed!r:.80}")
    return parsed


def _cases(tests: Any, metadata: Mapping[str, Any]) -> tuple[list[tuple[Any, Any]], str | None]:
    """(input, output) of each test, and the function they call, None where they use stdin and stdout."""
    if isinstance(tests, Mapping) and isinstance(tests.get("inputs"), list) and isinstance(tests.get("outputs"), list):
        return list(zip(tests["inputs"], tests["outputs"], strict=True)), tests.get("fn_name") or None
    if not isinstance(tests, list) or not all(isinstance(t, Mapping) and {"input", "output"} <= set(t) for t in tests):
        raise ValueError(f"its tests are in no known form: {json.dumps(tests):.80}")
    cases = [(test["input"], test["output"]) for test in tests]
    styles = {_function_called(test, metadata) for test in tests}
    if len(styles) != 1:
        raise ValueError("it has no tests" if not styles else "its tests call different functions, or stdin and one")
    return cases, styles.pop()


def _function_called(test: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    kind = test.get("type") or test.get("testtype")
    own = _mapping(test.get("metadata"))
    name = test.get("fn_name") or own.get("func_name") or metadata.get("func_name")
    if kind in _STREAMS or (kind is None and name is None):
        return None
    if kind is not None and kind not in _CALLS:
        raise ValueError(f"a test is of type {kind!r}; known are {', '.join((*_CALLS, *_STREAMS))}")
    if name is None:
        raise ValueError("its tests call a function that has no name")
    return str(name)


def _within(cases: Sequence[tuple[Any, Any]], max_chars: int) -> list[tuple[Any, Any]]:
    """As many of `cases` as fit, the shortest first, in their order."""
    sizes = [len(json.dumps(case)) for case in cases]
    kept, used = set(), 0
    for number in sorted(range(len(cases)), key=lambda number: (sizes[number], number)):
        used += sizes[number]
        if used > max_chars:
            break
        kept.add(number)
    if cases and not kept:
        raise ValueError(f"its shortest test has {min(sizes):,} characters, more than --max_test_chars")
    return [case for number, case in enumerate(cases) if number in kept]


def _call_style(fn_name: str | None, starter_code: str | None) -> str:
    if fn_name is None:
        return "It reads stdin and prints to stdout."
    if starter_code and starter_code.strip():
        return f"It completes this code:\n```python\n{starter_code.strip()}\n```"
    return f"It defines the function `{fn_name}`."
