"""MyEnv keeps the contract of an environment, and plays by its own rules."""

from pathlib import Path

import pytest

from dagrl.environments.conformance import Trial, check_environment
from dagrl.workflow.plugins import load

MyEnv = load("envs/my_env.py:MyEnv", Path(__file__).resolve().parents[1])


@pytest.mark.parametrize("actions", [("7",), ("5",), ("9",), ("no number",), ("first agent", "7")])
def test_it_keeps_the_contract(actions):
    assert check_environment(MyEnv, Trial(actions=actions, ground_truth="7")) == []


def test_the_right_number_ends_it_with_a_reward():
    assert MyEnv().step(["7"], "7") == ("right", 1.0, True)


def test_hints_until_the_tries_are_used_up():
    env = MyEnv(num_tries=2)
    assert env.step(["5"], 7) == ("higher", 0.0, False)
    assert env.step(["9"], 7) == ("lower", 0.0, True)
