"""Programs as answers: the last Python block of a response against tests, judged outside the sandbox it runs in."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from dagrl.errors import DataError
from dagrl.rewards.runner import Undecided
from dagrl.rewards.sandbox import Ending, Limits, Outcome, run_program

TOLERANCE = 1e-6
"""Two numbers of which one has a fraction part are the same within this, relative or absolute."""

_BLOCK = re.compile(r"```[ \t]*(?:python3?|py)[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,300}(?:\.[0-9]{0,300})?|\.[0-9]{1,300})(?:[eE][+-]?[0-9]{1,3})?")
_UNDECIDED = (Ending.CLOCK, Ending.LOST)
_PATIENCE = 10.0
"""So many times its CPU limit a test may take by the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """What a program is tried on."""

    fn_name: str | None
    """The function that is called; None where the program reads stdin and prints."""
    cases: tuple[Any, ...]
    """For each test the text on stdin, or the list of arguments."""
    expected: tuple[Any, ...]
    """For each test the text on stdout, or the value returned, in JSON's types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of the tests that were played."""

    num_passed: int
    num_tests: int
    failure: str | None
    """The first failure in a line, without the expected output; None where all tests passed."""

    @property
    def share(self) -> float:
        return self.num_passed / self.num_tests


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    *,
    partial: bool = False,
    cpu_limit_s: int = 6,
) -> float:
    """1.0 if the last Python block of the response `solution_str` passes every test of `ground_truth`, else 0.0.

    Stops at the first failure; with `partial` it plays all tests and gives the share that passed. `cpu_limit_s` is CPU
    time per test. `ground_truth` is a mapping, or JSON of one, as in APPS, TACO and PRIME: `inputs` and `outputs`, and
    `fn_name` for tests that call a function. Raises `Undecided` where the machine and not the program kept a test from
    ending, DataError where there are no tests.
    """
    tests = read_tests(ground_truth)
    program = last_block(solution_str)
    if program is None:
        return 0.0
    verdict = judge(program, tests, cpu_limit_s=cpu_limit_s, stops_early=not partial)
    return verdict.share if partial else float(verdict.failure is None)


def last_block(text: str) -> str | None:
    r"""The program in the last block marked as Python; one that is not closed goes to the end. None without one.

    >>> last_block("a\n```python\nprint(1)\n```\nb")
    'print(1)\n'
    """
    blocks = _BLOCK.findall(text)
    return blocks[-1] if blocks else None


def read_tests(ground_truth: Any) -> Tests:
    """The tests of a data row. Raises DataError where they cannot be read or there is none."""
    truth = _from_json(ground_truth, "ground truth") if isinstance(ground_truth, str) else ground_truth
    if not isinstance(truth, Mapping):
        raise _unreadable(f"tests are a mapping with 'inputs' and 'outputs', not {truth!r:.80}")
    inputs, outputs = truth.get("inputs"), truth.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs) or not inputs:
        raise _unreadable(f"'inputs' and 'outputs' must be lists of one length and not empty; has {truth!r:.80}")
    fn_name = truth.get("fn_name") or None
    if fn_name is None:
        return Tests(fn_name=None, cases=tuple(map(_text, inputs)), expected=tuple(map(_text, outputs)))
    calls = [_call_test(given, output) for given, output in zip(inputs, outputs, strict=True)]
    return Tests(fn_name=fn_name, cases=tuple(c for c, _ in calls), expected=tuple(e for _, e in calls))


def judge(program: str, tests: Tests, *, cpu_limit_s: int = 6, stops_early: bool = True) -> Verdict:
    """Plays `program` on the tests and compares. Raises `Undecided` where a test did not end for want of the machine,
    twice in a row.

    What is expected never enters the sandbox, and no exit code or word of the program's counts: it must give the value.
    """
    num_passed, failure = 0, None
    outcomes = _outcomes(program, tests, Limits(cpu_s=cpu_limit_s, wall_s=_PATIENCE * cpu_limit_s))
    with contextlib.closing(outcomes):
        for number, (outcome, expected) in enumerate(zip(outcomes, tests.expected, strict=True)):
            wrong = _fault(outcome, tests, expected)
            num_passed += wrong is None
            if wrong is not None and failure is None:
                failure = f"test {number}: {wrong}"
            if failure is not None and stops_early:
                break
    return Verdict(num_passed=num_passed, num_tests=len(tests.cases), failure=failure)


def _outcomes(program: str, tests: Tests, limits: Limits) -> Generator[Outcome, None, None]:
    """One for each test, in order; one that says nothing of the program is played once more, with all that follow."""
    num_told, is_again = 0, False
    while num_told < len(tests.cases):
        outcomes = run_program(program, tests.cases[num_told:], fn_name=tests.fn_name, limits=limits)
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                if outcome.ending in _UNDECIDED and not is_again:
                    is_again = True
                    break
                num_told, is_again = num_told + 1, False
                yield outcome


def _fault(outcome: Outcome, tests: Tests, expected: Any) -> str | None:
    """What is wrong with the outcome of one test; None if it passed."""
    if outcome.ending in _UNDECIDED:
        raise Undecided(
            f"a program was stopped ({outcome.ending}) after {outcome.wall_s:.0f} s by the clock"
            f" with {outcome.cpu_s:.1f} s of CPU used",
            where="reward 'code'",
        )
    if outcome.ending is not Ending.FINISHED:
        return f"{outcome.ending} {outcome.stderr[-300:]}".rstrip()
    if tests.fn_name is None:
        return None if same_output(outcome.stdout, expected) else f"printed {outcome.stdout!r:.200}"
    is_right = bool(outcome.answer) and _is_returned(outcome.answer, expected)
    return None if is_right else f"returned {outcome.answer or 'nothing'!r:.200}"


def same_output(printed: str, expected: str) -> bool:
    """Whether two outputs have the same lines of the same words; space at ends does not count, numbers as in TOLERANCE.

    >>> same_output("1 0.5\\n", "1 0.500000")
    True
    """
    lines, wanted = (text.strip().splitlines() for text in (printed, expected))
    if len(lines) != len(wanted):
        return False
    return all(_same_words(line.split(), want.split()) for line, want in zip(lines, wanted, strict=True))


def same_value(value: Any, expected: Any) -> bool:
    """Whether two values in JSON's types are equal; numbers as in TOLERANCE."""
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(same_value, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(same_value(value[key], expected[key]) for key in value)
    if isinstance(value, float) and isinstance(expected, int | float):
        return _is_close(value, expected)
    if isinstance(value, int) and isinstance(expected, float):
        return _is_close(value, expected)
    return bool(value == expected)


def _same_words(words: list[str], wanted: list[str]) -> bool:
    return len(words) == len(wanted) and all(a == b or _same_number(a, b) for a, b in zip(words, wanted, strict=True))


def _same_number(word: str, wanted: str) -> bool:
    if not (_NUMBER.fullmatch(word) and _NUMBER.fullmatch(wanted)) or (_is_whole(word) and _is_whole(wanted)):
        return False
    return _is_close(float(word), float(wanted))


def _is_whole(word: str) -> bool:
    return word.lstrip("+-").isdecimal()


def _is_close(value: float, expected: float) -> bool:
    try:
        return math.isclose(value, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except OverflowError:  # an int beyond every float
        return False


def _is_returned(answer: str, expected: Any) -> bool:
    """Data sets write the value either bare or as the only entry of a list."""
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return same_value(value, expected) or (
        isinstance(expected, list) and len(expected) == 1 and same_value(value, expected[0])
    )


def _call_test(given: Any, output: Any) -> tuple[list[Any], Any]:
    """Arguments and value of one call; as text they are JSON, one argument a line."""
    if isinstance(given, list):
        return given, output
    if not isinstance(given, str):
        raise _unreadable(f"the arguments of a call are a list or a line of JSON for each, not {given!r:.80}")
    arguments = [_from_json(line, "an argument") for line in given.splitlines() if line.strip()]
    return arguments, _from_json(output, "an output") if isinstance(output, str) else output


def _from_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"{what} is not JSON ({error}): {text!r:.80}") from error


def _text(value: Any) -> str:
    """Some data sets keep a text as the list of its lines."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _unreadable(what: str) -> DataError:
    return DataError(what, where="reward 'code'", how='write {"inputs": ["1\\n"], "outputs": ["2\\n"]}')
