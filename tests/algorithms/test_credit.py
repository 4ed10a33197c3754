"""Credit between agents: golden numbers, what the axioms promise, and slower obvious ways to the same numbers."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from dagrl.algorithms.credit import (
    against_mean,
    coalitions,
    coalitions_of_orders,
    difference,
    draw_orders,
    sampled_shapley,
    shapley,
)
from dagrl.errors import DagrlError

GOLDEN = {"": 0.0, "1": 0.2, "2": 0.3, "3": 0.1, "12": 0.6, "13": 0.4, "23": 0.5, "123": 1.0}
"""G6 of the reference: a game of three players."""


def game(values):
    return {frozenset(names): value for names, value in values.items()}


def any_game(players, seed):
    source = random.Random(seed)
    return {coalition: source.uniform(-1, 1) for coalition in coalitions(players)}


def test_shapley_gives_the_golden_numbers():
    assert shapley("123", game(GOLDEN)) == pytest.approx({"1": 1 / 3, "2": 0.433333333, "3": 0.233333333}, abs=1e-8)


def test_difference_gives_the_golden_numbers():
    values = game(GOLDEN)
    whole = frozenset("123")
    assert [difference(values[whole], values[whole - {p}]) for p in "123"] == pytest.approx([0.5, 0.6, 0.4])


def test_siblings_give_the_golden_numbers_of_leave_one_out():
    """G4: each of four returns beside the mean of the other three."""
    returns = [0.75, 0.25, 0.5, 0.5]
    found = [against_mean(own, returns[:at] + returns[at + 1 :]) for at, own in enumerate(returns)]
    assert found == pytest.approx([1 / 3, -1 / 3, 0, 0])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_shapley_is_the_mean_over_all_orders_of_joining(size):
    players = "abcde"[:size]
    values = any_game(players, seed=size)
    assert shapley(players, values) == pytest.approx(sampled_shapley(list(permutations(players)), values))


@pytest.mark.parametrize("find", [shapley, lambda p, v: sampled_shapley(draw_orders(p, 3, seed=5), v)])
def test_credits_sum_to_what_the_team_brings(find):
    values = any_game("abcd", seed=3)
    assert sum(find("abcd", values).values()) == pytest.approx(values[frozenset("abcd")] - values[frozenset()])


def test_players_that_do_the_same_get_the_same():
    values = {coalition: float(len(coalition) ** 2) for coalition in coalitions("abc")}
    credits = shapley("abc", values)
    assert credits["a"] == credits["b"] == credits["c"] == pytest.approx(3.0)


@pytest.mark.parametrize("find", [shapley, lambda p, v: sampled_shapley(draw_orders(p, 3, seed=5), v)])
def test_a_player_that_changes_nothing_gets_exactly_0(find):
    of_others = any_game("abd", seed=9)
    values = {coalition: of_others[coalition - {"c"}] for coalition in coalitions("abcd")}
    assert find("abcd", values)["c"] == 0.0


def test_sampled_shapley_comes_near_the_exact_one_with_many_orders():
    values = any_game("abcdef", seed=4)
    exact = shapley("abcdef", values)
    assert sampled_shapley(draw_orders("abcdef", 20_000, seed=1), values) == pytest.approx(exact, abs=0.02)


def test_orders_ask_for_each_coalition_once_and_for_no_other():
    asked = coalitions_of_orders([("a", "b", "c"), ("a", "c", "b")])
    assert asked == [frozenset(names) for names in ("", "a", "ab", "abc", "ac")]


def test_orders_are_the_same_for_a_seed_and_others_for_another():
    assert draw_orders("abcdef", 5, seed=1) == draw_orders("abcdef", 5, seed=1)
    assert draw_orders("abcdef", 5, seed=1) != draw_orders("abcdef", 5, seed=2)


def test_nothing_to_compare_with_is_refused():
    with pytest.raises(DagrlError, match="nothing to compare"):
        against_mean(1.0, [])
