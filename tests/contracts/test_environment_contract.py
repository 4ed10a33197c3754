"""The environment contract: what `check_environment` finds, and that the environments that ship keep it."""

from pathlib import Path

import pytest

from dagrl.environments.conformance import Trial, check_environment
from dagrl.workflow import plugins

ENVS = Path(__file__).resolve().parents[2] / "envs"


class Good:
    def __init__(self, start=0):
        self.count = start

    def reset(self, prompt=None, seed=None):
        return prompt

    async def step(self, actions, ground_truth):
        self.count += 1
        return [f"{self.count} {action}" for action in actions], 0.5, self.count == 2


class Minimal:
    def step(self, actions):
        return None, 0, True


@pytest.mark.parametrize("env_class", [Good, Minimal])
def test_a_good_environment_has_no_faults(env_class):
    assert check_environment(env_class, Trial()) == []


def test_the_environment_that_ships_is_good():
    env_class = plugins.load(str(ENVS / "math_env.py:MathEnv"), ENVS)
    assert check_environment(env_class, Trial(actions=("3", "\\boxed{3}"), ground_truth="3")) == []


class Shared(Good):
    log: list[str] = []

    def step(self, actions, ground_truth):
        self.log.append(actions[0])
        return None, 0.0, len(self.log) % 3 == 0


class Random:
    draws = iter(range(100))

    def step(self, actions):
        return None, next(self.draws), False


class Mutating(Minimal):
    def step(self, actions):
        actions.clear()
        return None, 0, True


class Raising(Minimal):
    def step(self, actions):
        raise ValueError("broken step")


class Shapeless(Minimal):
    def step(self, actions):
        return "only an observation"


class WrongCount(Minimal):
    def step(self, actions):
        return ["one"], 0, True


class NoStep:
    pass


class WantsMore(Minimal):
    def __init__(self, size):
        pass


@pytest.mark.parametrize(
    ("env_class", "message"),
    [
        (Shared, "disturb each other"),
        (Random, "same actions differ"),
        (Mutating, "changes the list of actions"),
        (Raising, "step raised ValueError: broken step"),
        (Shapeless, "step gave a str"),
        (WrongCount, "1 observations for 2 actions"),
        (NoStep, "no method step"),
        (WantsMore, "'size'"),
        (7, "not a class"),
    ],
)
def test_every_fault_is_named(env_class, message):
    faults = check_environment(env_class, Trial())
    assert any(message in fault for fault in faults), faults
