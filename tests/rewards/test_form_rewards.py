"""Rewards of a response's form (overlong, format, language, repetition) by hand, and for whom they are."""

from __future__ import annotations

import doctest
import importlib
from functools import partial

import pytest

from dagrl.errors import DagrlError
from dagrl.rewards import REWARDS
from dagrl.rewards.format import is_tagged
from dagrl.rewards.language import share_of_letters
from dagrl.rewards.length import soft_punishment
from dagrl.rewards.repetition import repeated_share
from dagrl.rewards.runner import call_reward
from dagrl.workflow import plugins
from dagrl.workflow.reward_options import JUDGE, REWARD_REFS
from tests.stream_builders import trajectory, turn


def said(*texts: str):
    return trajectory("a", [turn(0, round, [5] * (round + 1), response_text=text) for round, text in enumerate(texts)])


@pytest.mark.parametrize(
    ("length", "punishment"),
    [(0, 0.0), (16384, 0.0), (16385, -1 / 4096), (17408, -0.25), (20479, -4095 / 4096), (20480, -1.0), (99999, -1.0)],
)
def test_dapos_punishment_grows_over_the_buffer_and_ends_at_one(length: int, punishment: float) -> None:
    assert soft_punishment(length, 20480, 4096) == punishment


@pytest.mark.parametrize("buffer", [0, -1, 5])
def test_a_buffer_that_does_not_fit_is_refused(buffer: int) -> None:
    with pytest.raises(DagrlError, match="buffer above 0"):
        soft_punishment(3, 4, buffer)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("<think>a</think><answer>b</answer>", True),
        (" <think>a\nb</think>\n\n<answer>b</answer>\n", True),
        ("<answer>b</answer><think>a</think>", False),
        ("<think>a</think><answer>b</answer> and more", False),
        ("first <think>a</think><answer>b</answer>", False),
        ("<think>a</think>", False),
        ("<think></think><answer>b</answer>", False),
        ("<think>a<answer>b</answer></think>", False),
        ("<think>a</think><answer>b</answer><answer>c</answer>", False),
        ("<think>a</think><answer>b", False),
        ("", False),
    ],
)
def test_a_format_is_one_section_for_each_tag_in_order(text: str, fits: bool) -> None:
    assert is_tagged(text, ["think", "answer"]) is fits


def test_language_counts_letters_by_script() -> None:
    assert share_of_letters("ab вг", ["latin"]) == 0.5
    assert share_of_letters("ab вг", ["latin", "cyrillic"]) == 1.0
    assert share_of_letters("漢字かな", ["han"]) == 0.5
    assert share_of_letters("漢字かな", ["japanese"]) == 1.0
    assert share_of_letters("é ü", ["latin"]) == 1.0
    assert share_of_letters("", ["thai"]) == 1.0


def test_repetition_is_the_share_of_ngrams_that_came_before() -> None:
    assert repeated_share([7] * 10, 3) == 1 - 1 / 8
    assert repeated_share([1, 2, 3, 4], 2) == 0.0
    assert repeated_share([1, 2], 3) == 0.0


def test_every_turn_of_the_named_nodes_has_its_own_reward() -> None:
    played = trajectory("a", [turn(0, 0, [5] * 2), turn(1, 0, [5] * 4), turn(0, 1, [5] * 3)])
    judge = partial(call_reward, REWARDS["overlong"])
    everyone = judge(played, {"max_tokens": 4, "buffer_tokens": 2})
    assert everyone.by_turn == {(0, 0): 0.0, (1, 0): -1.0, (0, 1): -0.5}
    assert everyone.score == (-0.5 - 1.0) / 2
    first = judge(played, {"max_tokens": 4, "buffer_tokens": 2, "nodes": ["agent_0"]})
    assert first.by_turn == {(0, 0): 0.0, (0, 1): -0.5}
    assert judge(played, {"max_tokens": 4, "buffer_tokens": 2, "nodes": ["nobody"]}).score == 0.0


@pytest.mark.parametrize(
    ("name", "kwargs", "rewards"),
    [
        ("format", {"tags": ["answer"]}, [1.0, 0.0]),
        ("language", {}, [1.0, 0.5]),
        ("repetition", {"n": 1}, [0.0, -0.5]),
    ],
)
def test_the_other_rewards_of_form_look_at_each_turn_too(name, kwargs, rewards) -> None:
    result = call_reward(REWARDS[name], said("<answer>a</answer>", "aд"), kwargs)
    assert [result.by_turn[0, place] for place in (0, 1)] == rewards


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [("format", {"tags": "answer"}), ("language", {"scripts": ["klingon"]}), ("repetition", {"n": 0})],
)
def test_what_makes_no_sense_is_refused_by_name(name, kwargs) -> None:
    with pytest.raises(DagrlError, match=f"reward '{name}'"):
        call_reward(REWARDS[name], said("a"), kwargs)


def test_the_workflow_checker_knows_the_same_rewards() -> None:
    assert set(REWARD_REFS) == {*REWARDS, JUDGE}
    assert all(plugins.load(REWARD_REFS[name], plugins.Path(".")) is function for name, function in REWARDS.items())


@pytest.mark.parametrize("module", ["format", "judge", "language", "length", "repetition"])
def test_the_worked_examples_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"dagrl.rewards.{module}"))
    assert outcome.failed == 0 and outcome.attempted > 0
