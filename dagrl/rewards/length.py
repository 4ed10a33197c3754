"""Overlong responses: DAPO's soft punishment."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.errors import DagrlError
from dagrl.rewards.turns import TurnRewards, each_turn
from dagrl.types import Trajectory


def overlong(
    trajectory: Trajectory, *, max_tokens: int, buffer_tokens: int, nodes: Sequence[str] = ()
) -> TurnRewards | float:
    """For each turn of `nodes` (all, if not given): 0 up to `max_tokens - buffer_tokens`, from there linearly to -1 at
    `max_tokens`, -1 beyond. DAPO (arXiv 2503.14476), eq. 13."""
    return each_turn(trajectory, nodes, lambda turn: soft_punishment(len(turn.response_ids), max_tokens, buffer_tokens))


def soft_punishment(length: int, max_tokens: int, buffer_tokens: int) -> float:
    """Of one response, from 0 down to -1.

    >>> [soft_punishment(length, 20480, 4096) for length in (16384, 18432, 20480, 30000)]
    [0.0, -0.5, -1.0, -1.0]
    """
    if not 0 < buffer_tokens <= max_tokens:
        raise DagrlError(
            f"max_tokens is {max_tokens} and buffer_tokens {buffer_tokens}",
            where="reward 'overlong'",
            how="give a buffer above 0 and at most max_tokens; DAPO has 20480 and 4096",
        )
    beyond = length - (max_tokens - buffer_tokens)
    return -min(max(beyond / buffer_tokens, 0.0), 1.0) if beyond > 0 else 0.0
