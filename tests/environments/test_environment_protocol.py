"""What `reset` and `step` may give, and what is refused."""

import numpy as np
import pytest

from dagrl.environments.protocol import EnvAnswer, Seats, read_reset, read_step
from dagrl.errors import UserCodeError

SEATS = Seats(actors=(0, 1), listeners=(0, 1, 2))


@pytest.mark.parametrize(
    ("obs", "texts", "by_seat"),
    [
        (None, {}, ()),
        ("", {0: "", 1: "", 2: ""}, ("", "")),
        ("all", {0: "all", 1: "all", 2: "all"}, ("all", "all")),
        (["x", "y"], {0: "x", 1: "y"}, ("x", "y")),
        (("x", None), {0: "x"}, ("x", None)),
        (np.array(["x", "y"]), {0: "x", 1: "y"}, ("x", "y")),
        ({0: "x", 2: "z"}, {0: "x", 2: "z"}, ("x", None)),
        ({1: "y"}, {1: "y"}, (None, "y")),
    ],
)
def test_observations(obs, texts, by_seat):
    answer = read_step((obs, 0.0, False), SEATS)
    assert (dict(answer.texts), answer.seat_texts) == (texts, by_seat)
    assert answer.last_text == (by_seat[-1] if by_seat else None)
    assert read_reset(obs, SEATS) == EnvAnswer(texts=texts, seat_texts=by_seat)
    assert read_reset((obs, {"info": 1}), SEATS) == EnvAnswer(texts=texts, seat_texts=by_seat)


def test_one_agent_in_two_seats_is_told_by_seat():
    answer = read_reset(["yours", None], Seats(actors=(0, 0)))
    assert (dict(answer.texts), answer.seat_texts) == ({0: "yours"}, ("yours", None))


@pytest.mark.parametrize(
    ("reward", "rewards", "is_team"),
    [
        (1, (1.0, 1.0), True),
        (-0.5, (-0.5, -0.5), True),
        (np.float32(0.5), (0.5, 0.5), True),
        (np.int64(2), (2.0, 2.0), True),
        (np.array(2.0), (2.0, 2.0), True),
        ([1, 0.5], (1.0, 0.5), False),
        (np.array([1.0, 0.5]), (1.0, 0.5), False),
        ({0: 1.0, 1: 2.0}, (1.0, 2.0), False),
    ],
)
def test_rewards(reward, rewards, is_team):
    answer = read_step((None, reward, False), SEATS)
    assert (answer.rewards, answer.is_team_reward) == (rewards, is_team)
    assert all(type(one) is float for one in answer.rewards)


def test_a_groups_reward_counts_once_where_it_acts_twice():
    assert read_step((None, {0: 3.0}, False), Seats(actors=(0, 0))).rewards == (0.0, 3.0)


@pytest.mark.parametrize(
    ("step", "terminated", "truncated"),
    [
        ((None, 0, True), True, False),
        ([None, 0, False], False, False),
        ((None, 0, np.bool_(True)), True, False),
        ((None, 0, (False, True)), False, True),
        ((None, 0, True, False), True, False),
        ((None, 0, False, True, {}), False, True),
        ((None, 0, True, {"info": 1}), True, False),
    ],
)
def test_ends(step, terminated, truncated):
    answer = read_step(step, SEATS)
    assert (answer.terminated, answer.truncated) == (terminated, truncated)


class Unshowable:
    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    "step",
    [
        None,
        "text",
        7,
        (),
        ("obs", 1.0),
        ("obs", 1.0, True, False, {}, None),
        {"obs": "", "reward": 1.0, "done": True},
        (None, float("nan"), False),
        (None, float("inf"), False),
        (None, -float("inf"), False),
        (None, np.float32("nan"), False),
        (None, 1e308, False),
        (None, 10**400, False),
        (None, True, False),
        (None, np.bool_(True), False),
        (None, None, False),
        (None, "1.0", False),
        (None, 1j, False),
        (None, [1.0], False),
        (None, [1.0, 2.0, 3.0], False),
        (None, [1.0, None], False),
        (None, {0: 1.0}, False),
        (None, {0: 1.0, 1: 1.0, 9: 1.0}, False),
        (None, {"0": 1.0, "1": 1.0}, False),
        (None, np.zeros((2, 2)), False),
        (None, Unshowable(), False),
        (None, 0.0, None),
        (None, 0.0, 1),
        (None, 0.0, "done"),
        (None, 0.0, (True,)),
        (None, 0.0, (True, 0)),
        (None, 0.0, True, 1),
        (7, 0.0, False),
        (b"bytes", 0.0, False),
        ([1, 2], 0.0, False),
        (["one"], 0.0, False),
        (["a", "b", "c"], 0.0, False),
        ({"0": "a"}, 0.0, False),
        ({0: 5}, 0.0, False),
        ({5: "a"}, 0.0, False),
    ],
)
def test_what_a_step_must_not_give(step):
    with pytest.raises(UserCodeError) as caught:
        read_step(step, SEATS)
    assert caught.value.kind == "bad_return"
    assert caught.value.how is not None


@pytest.mark.parametrize("obs", [7, b"x", ["one"], {"0": "a"}, ("x", "y", "z"), object()])
def test_what_a_reset_must_not_give(obs):
    with pytest.raises(UserCodeError) as caught:
        read_reset(obs, SEATS)
    assert caught.value.kind == "bad_return"
