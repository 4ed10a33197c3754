"""The default reward: programs are run, everything else is compared."""

import json

import pytest

from dagrl.rewards import REWARDS
from dagrl.rewards.default import holds_tests

TESTS = {"inputs": ["1 2\n"], "outputs": ["3\n"]}
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"


@pytest.mark.parametrize("truth", [TESTS, json.dumps(TESTS)])
def test_a_ground_truth_with_tests_is_judged_by_running_the_program(truth):
    assert REWARDS["default"]("s", RIGHT, truth, {}) == 1.0
    assert REWARDS["default"]("s", RIGHT.replace("sum", "max"), truth, {}) == 0.0


def test_any_other_ground_truth_is_compared_with_the_box():
    assert REWARDS["default"]("s", r"\boxed{3}", "3", {}) == 1.0
    assert REWARDS["default"]("s", RIGHT, "3", {}) == 0.0


@pytest.mark.parametrize("truth", ["3", "{1, 2}", '{"inputs": 1}', None, 3, ["inputs", "outputs"]])
def test_what_holds_no_tests_is_told_from_what_does(truth):
    assert not holds_tests(truth)
