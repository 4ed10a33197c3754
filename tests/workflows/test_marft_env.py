"""MathEnv: who is right, what the agents are told, and that only what was just said counts."""

import pytest

from envs.math_env import RIGHT, WRONG, MathEnv, last_boxed


def test_a_right_box_ends_the_problem_with_reward_one() -> None:
    assert MathEnv().step(["1 + 2 = 3", "so \\boxed{3}"], "3") == ([RIGHT, RIGHT], 1.0, True)


def test_a_wrong_box_tells_every_agent_and_goes_on() -> None:
    assert MathEnv().step(["about 4", "\\boxed{4}"], "3") == ([WRONG, WRONG], 0.0, False)


def test_only_the_last_action_is_scored() -> None:
    assert MathEnv().step(["\\boxed{3}", "I agree"], "3") == ([WRONG, WRONG], 0.0, False)


def test_one_agent_and_three_agents_get_a_verdict_each() -> None:
    assert MathEnv().step(["\\boxed{3}"], "3")[0] == [RIGHT]
    assert MathEnv().step(["a", "b", ""], "3")[0] == [WRONG] * 3


def test_ground_truth_may_be_a_number_and_spaces_at_the_ends_do_not_count() -> None:
    assert MathEnv().step(["\\boxed{ -3 }"], -3)[1] == 1.0


def test_nothing_but_exact_text_is_right() -> None:
    assert MathEnv().step(["\\boxed{3.0}"], "3")[1] == 0.0
    assert MathEnv().step(["\\boxed{}"], "3")[1] == 0.0


def test_reset_takes_the_prompt_or_nothing() -> None:
    env = MathEnv()
    assert env.reset() is None
    assert env.reset(prompt="1 + 2 =") is None


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("\\boxed{1} then \\boxed{2}", "2"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\boxed{7}}", "7"),
        ("no box", None),
        ("\\boxed{12", None),
        ("\\boxed{1} \\boxed{2", None),
        ("", None),
    ],
)
def test_last_boxed(text: str, inside: str | None) -> None:
    assert last_boxed(text) == inside
