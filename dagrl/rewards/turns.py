"""Rewards of the form of single turns: who is judged, and the answer of the shape that a REWARD node takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dagrl.types import Trajectory, Turn

TurnRewards = dict[tuple[int, int], float]
"""(agent group, which of its turns, from 0) → reward."""


def each_turn(trajectory: Trajectory, nodes: Sequence[str], judge: Callable[[Turn], float]) -> TurnRewards | float:
    """`judge` of every turn of the rollout nodes `nodes`, of all where none is named; 0 where none of them spoke."""
    rewards: TurnRewards = {}
    spoken: dict[int, int] = {}
    for turn in trajectory.turns:
        place = spoken.get(turn.agent_group, 0)
        spoken[turn.agent_group] = place + 1
        if not nodes or turn.node_id in nodes:
            rewards[turn.agent_group, place] = judge(turn)
    return rewards or 0.0
