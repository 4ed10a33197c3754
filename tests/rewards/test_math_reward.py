"""The math reward: which box counts, what is the same number, what math-verify is asked and where it is stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrl.errors import DataError
from dagrl.rewards import REWARDS
from dagrl.rewards.equivalence import EquivalenceChecker
from dagrl.rewards.math import boxed_exact_match, compute_score, last_boxed

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right."),
        (r"\fbox{3}", "3"),
        (r"\boxed {4}", "4"),
        (r"$\boxed 5$ yes", "5"),
        (r"\(\boxed 6\)", "6"),
        (r"\boxed{}", ""),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{1} and then \boxed{2", None),
        (r"\boxed", None),
        (r"\boxedx{1}", None),
        ("35", None),
        ("", None),
    ],
)
def test_the_last_closed_box_counts(text: str, box: str | None) -> None:
    assert last_boxed(text) == box


@given(inner=st.recursive(st.text("ab 1", max_size=4), lambda part: part.map(lambda text: "{" + text + "}")))
def test_any_balanced_content_comes_out_of_its_box_whole(inner: str) -> None:
    assert last_boxed("x {\\boxed{" + inner + "} y") == inner


SAME = [("035", "35"), ("1,242", "1242.00"), ("0.5", "1/2"), (r"\frac{1}{2}", "0.5"), (r"-\dfrac{3}{4}", "-0.75"),
        ("$35$", 35), ("35.", "35"), ("35 / 7", "5"), ("1{,}000", 1000), ("−2", "-2"), (".5", 0.5),
        ("x + 1", "x+1"), (r"\left(1,\,2\right)", "(1, 2)"), ("New York", "New  York."), ("7", r"thus \boxed{7}"),
        (r"\frac12", "1/2"), ("+4", "4"), ("0", 0)]  # fmt: skip


@pytest.mark.parametrize(("answer", "gold"), SAME)
def test_the_same_number_or_text_scores_one(answer: str, gold: Any) -> None:
    assert boxed_exact_match(rf"so \boxed{{{answer}}}", gold) == 1.0


DIFFERENT = [("36", "35"), ("1 2", "12"), ("1,24", "124"), ("", "0"), ("1/0", "1"), ("0.333", "1/3"), ("-35", "35"),
             ("1e2", "100"), ("35 or 36", "35"), ("9" * 5000, "9"), ("٣", "3")]  # fmt: skip


@pytest.mark.parametrize(("answer", "gold"), DIFFERENT)
def test_another_number_or_text_scores_zero(answer: str, gold: str) -> None:
    assert boxed_exact_match(rf"so \boxed{{{answer}}}", gold) == 0.0


def test_the_right_number_outside_the_box_scores_zero() -> None:
    assert boxed_exact_match("35", "35") == 0.0
    assert compute_score("s", r"35 \boxed{1} 35", "35", {}) == 0.0


@given(st.fractions(max_denominator=1000))
def test_a_fraction_and_its_latex_are_the_same(value: Fraction) -> None:
    sign = "-" if value < 0 else ""
    latex = rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"
    assert boxed_exact_match(rf"\boxed{{{latex}}}", str(value)) == 1.0
    assert boxed_exact_match(rf"\boxed{{{latex}}}", str(value + 1)) == 0.0


@pytest.mark.parametrize("gold", [None, "", "  ", "$$"])
def test_a_missing_ground_truth_is_an_error_and_not_a_zero(gold: str | None) -> None:
    with pytest.raises(DataError, match="no ground truth"):
        compute_score("s", r"\boxed{1}", gold, {})


def test_plain_numbers_are_decided_without_importing_sympy() -> None:
    code = (
        "import sys, dagrl.rewards as r; f = r.REWARDS['math'];"
        r"assert [f('s', text, 35, {}) for text in (r'\boxed{35}', r'\boxed{36}', '35')] == [1, 0, 0];"
        "assert not {'sympy', 'math_verify', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def checker() -> Iterator[EquivalenceChecker]:
    checker = EquivalenceChecker(1, cpu_limit_s=2.0)
    yield checker
    checker.close()


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [(r"2\sqrt{2}", r"\sqrt{8}", True), ("(1,2)", "(2,1)", False), ("3", "2+1", True), ("5", r"\text{five}", False)],
)
def test_equivalence_is_decided_by_math_verify(
    checker: EquivalenceChecker, gold: str, answer: str, verdict: bool
) -> None:
    assert checker.check(gold=gold, answer=answer) is verdict


def test_an_endless_comparison_is_unknown_and_the_next_one_is_answered(checker: EquivalenceChecker) -> None:
    assert checker.check(gold="9", answer="9^{9^{9^{9}}}") is None
    assert checker.check(gold="x+1", answer="1+x") is True


def test_a_worker_that_is_silent_is_unknown_and_replaced() -> None:
    checker = EquivalenceChecker(1, wall_limit_s=0.0)
    try:
        assert checker.check(gold="x+1", answer="1+x") is None
    finally:
        checker.close()


def test_questions_from_a_thread_are_answered(checker: EquivalenceChecker) -> None:
    answers: list[bool | None] = []
    thread = threading.Thread(target=lambda: answers.append(checker.check(gold="2x", answer="x+x")))
    thread.start()
    thread.join()
    assert answers == [True]


def test_workers_end_with_their_parent() -> None:
    code = (
        "from dagrl.rewards.equivalence import EquivalenceChecker; c = EquivalenceChecker(1);"
        "c.check(gold='x', answer='y'); w = c._idle.get(); print(w._process.pid, flush=True);"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    _wait_until_gone(int(done.stdout))


def _wait_until_gone(pid: int) -> None:
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        os.sched_yield()
        threading.Event().wait(0.01)
    raise AssertionError(f"worker {pid} outlived its parent")


def test_the_table_names_the_math_reward() -> None:
    assert REWARDS["math"]("s", r"the sum is \boxed{1+x}", "x+1", {}) == 1.0
