"""my_reward gives 1 for the right answer, 0 for anything else, and never fails on what a model may write."""

from pathlib import Path

import pytest

from dagrl.workflow.plugins import load

compute_score = load("my_reward.py:compute_score", Path(__file__).resolve().parents[1])


@pytest.mark.parametrize("answer", ["7", "It is 7.", "5 no, 7"])
def test_the_right_answer_is_worth_one(answer):
    assert compute_score("toy", answer, 7, {})["score"] == 1.0


@pytest.mark.parametrize("answer", ["", "   ", "17", "7 or 8", "\\boxed{"])
def test_anything_else_is_worth_nothing(answer):
    assert compute_score("toy", answer, 7, {})["score"] == 0.0
