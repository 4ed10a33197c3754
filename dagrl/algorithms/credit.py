"""Credit between agents: what each of a team brought to the team's reward, from rewards of rollouts without it.

A player is one agent of the team; a coalition is a set of players that are there, the others being replaced; its value
is the team's reward then.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from dagrl.errors import DagrlError

MOST_EXACT = 4
"""Players up to which every coalition is played; beyond, permutations are drawn."""

Coalition = frozenset[str]


def difference(whole: float, without: float) -> float:
    """`D_i = v(all) - v(all, i replaced)`: difference rewards, Wolpert & Tumer 2002 (Advances in Complex Systems 4).

    An agent that changes nothing gets exactly 0.

    >>> difference(1.0, 0.25)
    0.75
    """
    return whole - without


def against_mean(whole: float, others: Sequence[float]) -> float:
    """`R - mean(others)`, at least one of them.

    Of the team's reward and those of the same prompt without the agent: the joint minus solo term of CCPO (arXiv
    2603.21563). Of a subtree's return and its siblings': `A_l = q_l - mean_{u != l} q_u`, C3 (arXiv 2603.06859).
    """
    if not others:
        raise DagrlError("there is nothing to compare a reward with")
    return whole - math.fsum(others) / len(others)


def shapley(players: Sequence[str], values: Mapping[Coalition, float]) -> dict[str, float]:
    """`phi_i = sum over S without i of s!(N-1-s)!/N! (v(S + i) - v(S))`: Shapley 1953, as in SHARP (arXiv 2602.08335).

    `values` has every coalition, the empty one included. The credits sum to v(all) - v(none); players that do the same
    get the same; one that changes no coalition's value gets 0.

    >>> none, one, two, both = frozenset(), frozenset("a"), frozenset("b"), frozenset("ab")
    >>> shapley("ab", {none: 0.0, one: 0.5, two: 0.0, both: 1.0})
    {'a': 0.75, 'b': 0.25}
    """
    size = len(players)
    credits = {}
    for player in players:
        terms = []
        for coalition in coalitions([other for other in players if other != player]):
            weight = math.factorial(len(coalition)) * math.factorial(size - 1 - len(coalition)) / math.factorial(size)
            terms.append(weight * (values[coalition | {player}] - values[coalition]))
        credits[player] = math.fsum(terms)
    return credits


def sampled_shapley(orders: Sequence[Sequence[str]], values: Mapping[Coalition, float]) -> dict[str, float]:
    """The mean, over `orders` of all players, of what each adds when they join in that order: Castro, Gomez & Tejada
    2009 (Computers & Operations Research 36).

    Unbiased where orders are drawn evenly; for any orders the credits sum to v(all) - v(none).
    """
    marginals: dict[str, list[float]] = {player: [] for player in orders[0]}
    for order in orders:
        for place, player in enumerate(order):
            before = frozenset(order[:place])
            marginals[player].append(values[before | {player}] - values[before])
    return {player: math.fsum(own) / len(orders) for player, own in marginals.items()}


def coalitions(players: Sequence[str]) -> list[Coalition]:
    """All subsets, smaller ones first."""
    return [frozenset(chosen) for size in range(len(players) + 1) for chosen in combinations(players, size)]


def coalitions_of_orders(orders: Iterable[Sequence[str]]) -> list[Coalition]:
    """All that `sampled_shapley` asks the value of, each once."""
    return list(dict.fromkeys(frozenset(order[:place]) for order in orders for place in range(len(order) + 1)))


def draw_orders(players: Sequence[str], count: int, seed: int) -> list[tuple[str, ...]]:
    """`count` orders, drawn evenly and independently."""
    source = random.Random(seed)
    return [tuple(source.sample(list(players), len(players))) for _ in range(count)]
