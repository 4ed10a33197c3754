"""The code reward: both call styles, what counts as equal, forgeries, load, and siiRL's name for it."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dagrl import siirl_compat
from dagrl.errors import DataError
from dagrl.rewards import REWARDS, code
from dagrl.rewards.code import compute_score, judge, last_block, read_tests, same_output, same_value
from dagrl.rewards.runner import Undecided
from dagrl.rewards.sandbox import run_program

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = {"inputs": ["1\n", "21\n", "-3\n"], "outputs": ["2\n", "42\n", "-6\n"]}
PAIRS = {"fn_name": "double", "inputs": [[1], [21], [-3]], "outputs": [2, 42, -6]}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


def score(program: str, ground_truth: Any = DOUBLE, **kwargs: Any) -> float:
    return compute_score("toy", f"Here it is:\n```python\n{program}\n```\nDone.", ground_truth, {}, **kwargs)


@pytest.mark.parametrize("ground_truth", [DOUBLE, json.dumps(DOUBLE)])
def test_a_right_program_gets_one_and_a_wrong_one_nothing(ground_truth: Any) -> None:
    assert score("print(2 * int(input()))", ground_truth) == 1.0
    assert score("print(int(input()) + 1)", ground_truth) == 0.0


@pytest.mark.parametrize(
    "program",
    ["def double(x):\n    return 2 * x", "class Solution:\n    def double(self, x: int) -> int:\n        return 2 * x"],
)
@pytest.mark.parametrize(
    "ground_truth",
    [
        PAIRS,
        PAIRS | {"outputs": [[2], [42], [-6]]},
        PAIRS | {"inputs": ["1", "21", "-3"], "outputs": ["2", "42", "-6"]},
    ],
)
def test_a_function_is_called_with_every_published_form_of_arguments(program: str, ground_truth: Any) -> None:
    assert score(program, ground_truth) == 1.0
    assert score(program.replace("2 * x", "x + 1"), ground_truth) == 0.0


def test_partial_gives_the_share_of_tests_that_pass() -> None:
    assert score("x = int(input())\nprint(2 if x == 1 else 42)", partial=True) == pytest.approx(2 / 3)
    assert score("x = int(input())\nprint(2 if x == 1 else 42)") == 0.0


def test_judging_stops_at_the_first_failure() -> None:
    tests = read_tests({"inputs": ["1", "2"], "outputs": ["1", "2"]})
    assert judge("print(0)", tests).failure == "test 0: printed '0\\n'"
    assert judge("print(input())", tests).failure is None


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na\n```\n```python\nb\n```", "b\n"),
        ("```Python3\na\n```", "a\n"),
        ("```py\r\na\n``` then ```text\nb\n```", "a\n"),
        ("```python\nnever closed", "never closed"),
        ("```\nunmarked\n```", None),
        ("print(1)", None),
        ("", None),
    ],
)
def test_the_last_python_block_counts(text: str, program: str | None) -> None:
    assert last_block(text) == program


def test_a_response_without_a_program_gets_nothing() -> None:
    assert compute_score("toy", "I cannot.", DOUBLE, {}) == 0.0


@pytest.mark.parametrize(
    ("printed", "expected", "is_same"),
    [
        ("1 2\n", "1 2", True),
        ("1 2  \n3\n\n", "1 2\n3", True),
        ("1\n2", "1 2", False),
        ("0.3333333", "0.33333333", True),
        ("0.334", "0.333", False),
        ("2.0", "2", True),
        ("2", "3", False),
        ("100000001", "100000000", False),
        ("1e3", "1000", True),
        ("nan", "1", False),
        ("inf", "1e999", False),
        ("1_000", "1000", False),
        ("Yes", "YES", False),
        ("", "", True),
        ("", "0", False),
    ],
)
def test_outputs_are_compared_by_words_and_numbers_by_value(printed: str, expected: str, is_same: bool) -> None:
    assert same_output(printed, expected) is is_same


@pytest.mark.parametrize(
    ("value", "expected", "is_same"),
    [
        ([1, [2.0]], [1, [2]], True),
        ({"a": 0.1 + 0.2}, {"a": 0.3}, True),
        (1, 2, False),
        (10**400, 1.0, False),
        ("1", 1, False),
        ([1], [1, 2], False),
        (None, 0, False),
        ("x", "x", True),
        (10**17 + 1, 10**17, False),
    ],
)
def test_values_are_compared_as_plain_types(value: Any, expected: Any, is_same: bool) -> None:
    assert same_value(value, expected) is is_same


@pytest.mark.parametrize(
    "ground_truth",
    [None, "", "[", "7", {}, {"inputs": ["1"]}, {"inputs": [], "outputs": []}, {"inputs": ["1"], "outputs": []},
     {"fn_name": "f", "inputs": [3], "outputs": [3]}, {"fn_name": "f", "inputs": ["x"], "outputs": ["1"]},
     "[" * 100_000],
)  # fmt: skip
def test_a_row_without_tests_is_an_error_of_the_data(ground_truth: Any) -> None:
    with pytest.raises(DataError, match="reward 'code'"):
        score("print(1)", ground_truth)


def test_a_program_that_computes_too_long_is_wrong() -> None:
    assert judge("while True: pass", read_tests(DOUBLE), cpu_limit_s=1).failure == "test 0: cpu_limit"


@pytest.mark.slow
def test_a_program_that_only_waits_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_PATIENCE", 3.0)
    with pytest.raises(Undecided, match=r"stopped \(clock\)"):
        judge("import threading\nthreading.Event().wait(99)", read_tests(DOUBLE), cpu_limit_s=1)


# ruff: noqa: E501 (a forgery is a line)
# Forgeries: no program that does not compute the answer may pass

EARLY = "import sys, os, atexit, json, builtins\n"
FORGERIES = {
    "sys.exit": "sys.exit(0)",
    "os._exit": "os._exit(0)",
    "exit in a thread": "import threading\nthreading.Thread(target=lambda: os._exit(0)).start()",
    "SystemExit subclass": "class S(SystemExit): code = 0\nraise S",
    "marker": "print('ALL TESTS PASSED'); print('OK'); print('passed')",
    "json marker": 'print(json.dumps({"passed": 3, "tests": 3, "failure": None, "exit_code": 0}))',
    "worker's reply": 'print(json.dumps({"has_begun": True, "exit_code": 0, "stdout": "2", "answer": "2"}))',
    "reply on every descriptor": "for n in range(64):\n    try: os.write(n, b'{\"answer\": \"2\", \"stdout\": \"2\"}\\n')\n"
    "    except OSError: pass",
    "true on every descriptor": "for n in range(64):\n    try: os.write(n, b'true')\n    except OSError: pass",
    "equal to everything": "class Any2(int):\n    def __eq__(self, o): return True\n    def __hash__(self): return 0\n"
    "def double(x): return Any2(0)\nprint(Any2(0))",
    "text equal to everything": "class T(str):\n    def __eq__(self, o): return True\ndef double(x): return T('x')\nprint(T('x'))",
    "patched print": "builtins.print = lambda *a: sys.stdout.write('PASS')\nprint(1)",
    "patched json": "json.dumps = lambda *a, **k: 'true'\njson.loads = lambda *a: True\ndef double(x): return None",
    "patched int": "builtins.int = lambda *a: 0\nprint(int('3'))",
    "patched exit": "os._exit = lambda code: None\nsys.exit = lambda *a: None\nraise ValueError",
    "exception hook": "sys.excepthook = lambda *a: print('2')\nraise ValueError",
    "at exit": "atexit.register(lambda: print('PASSED'))",
    "frames of the harness": "f = sys._getframe()\nwhile f:\n    for k, v in list(f.f_locals.items()):\n"
    "        if isinstance(v, dict):\n            v['expected'] = v['outputs'] = v['stdout'] = '2'\n    f = f.f_back",
    "search for the answers": "import gc\nfound = [o for o in gc.get_objects() if isinstance(o, (list, tuple))"
    " and ('42\\n' in o or 42 in o and -6 in o)]\nprint(found[0][0] if found else 'none')\n"
    "def double(x): return found[0][0] if found else None",
    "fork to answer twice": "os.fork()\nprint(2)\nprint(42)",
    "all answers at once": "print(2); print(42); print(-6)",
    "not a number": "print('nan')\ndef double(x): return float('nan')",
    "infinite": "print('inf')\ndef double(x): return float('inf')",
    "no JSON": "def double(x): return object()",
    "deep JSON": "def double(x):\n    os.write(3, b'[' * 900000)\n    os._exit(0)",
    "many digits": "def double(x):\n    os.write(3, b'9' * 900000)\n    os._exit(0)",
    "answer first, then die": "os.write(3, b'true')\nos.abort()",
    "other tests by files": "open('/tmp/n', 'a').write('x')",
    "main module": "sys.modules['__main__'].__dict__['verdict'] = True",
    "trace": "sys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)",
    "nothing": "pass",
}  # fmt: skip


FAST = {"os._exit", "worker's reply", "true on every descriptor", "equal to everything", "patched json", "deep JSON"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in FORGERIES]
)
def test_a_forgery_gets_nothing(name: str) -> None:
    assert score(EARLY + FORGERIES[name], DOUBLE, cpu_limit_s=1) == 0.0
    assert score(EARLY + FORGERIES[name], PAIRS, cpu_limit_s=1) == 0.0


def test_the_expected_outputs_never_enter_the_sandbox() -> None:
    hunt = "import gc\nprint(sum('canary' in repr(o) for o in gc.get_objects() if isinstance(o, (str, list, dict))))"
    (outcome,) = run_program(hunt, [""])
    with_canary = judge(hunt, read_tests({"inputs": [""], "outputs": ["canary"]}))
    assert with_canary.failure == f"test 0: printed {outcome.stdout!r}"


# siiRL's name


def siirl_score() -> Any:
    siirl_compat.install()
    return sys.modules["siirl.utils.reward_score.prime_code"].compute_score  # type: ignore[attr-defined]


def test_code_is_in_the_table_and_behind_the_name_of_siirl() -> None:
    assert REWARDS["code"] is compute_score
    score_of = siirl_score()
    right, said = score_of("```python\nprint(2 * int(input()))\n```", DOUBLE)
    assert (right, said["passed"], said["failure"]) == (1.0, 3, None)
    assert score_of("print(2 * int(input()))", json.dumps(DOUBLE))[0] == 1.0
    assert score_of("not a program", DOUBLE)[0] == 0.0
    assert score_of("print(2)", DOUBLE, continuous=True)[0] == pytest.approx(1 / 3)


def test_it_may_be_called_from_many_threads_at_once() -> None:
    score_of = siirl_score()
    with ThreadPoolExecutor(8) as threads:
        scores = list(threads.map(lambda k: score_of(f"print({k} * int(input()))", DOUBLE)[0], [2, 3] * 8))
    assert scores == [1.0, 0.0] * 8


@pytest.mark.slow
def test_no_honest_program_of_two_hundred_fails_under_threefold_load() -> None:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * 2)]
    program = "n = int(input())\ns = 0\nfor i in range(300000): s += i\nprint(2 * n)"
    try:
        with ThreadPoolExecutor(4) as threads:
            scores = list(threads.map(lambda _: score(program, {"inputs": ["1"], "outputs": ["2"]}), range(200)))
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert scores == [1.0] * 200
