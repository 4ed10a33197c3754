"""Repetition in a response: the share of its n-grams of tokens that were there before."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.errors import DagrlError
from dagrl.rewards.turns import TurnRewards, each_turn
from dagrl.types import Trajectory


def repetition(trajectory: Trajectory, *, n: int = 20, nodes: Sequence[str] = ()) -> TurnRewards | float:
    """For each turn of `nodes` (all, if not given): minus the share of its `n`-grams of tokens that came before in it.

    From 0 to nearly -1; 0 below `n` tokens. After Yeo et al. 2025 (arXiv 2502.03373), who punish repeated n-grams.
    """
    if n < 1:
        raise DagrlError(f"n is {n}", where="reward 'repetition'", how="give a number from 1 up; 20 is usual")
    return each_turn(trajectory, nodes, lambda turn: -repeated_share(turn.response_ids, n))


def repeated_share(ids: Sequence[int], n: int) -> float:
    """Of the `n`-grams of `ids`, how many came before.

    >>> repeated_share([1, 2, 1, 2, 1], 2)
    0.5
    """
    grams = [tuple(ids[start : start + n]) for start in range(len(ids) - n + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0
