"""PettingZoo's tic-tac-toe, with its planes of zeros and ones drawn as the board that TextArena draws."""

from __future__ import annotations

from typing import Any

from pettingzoo_env import PettingZooEnv


class DrawnTicTacToe(PettingZooEnv):
    """Two players; cells are counted down the columns, which is the same game."""

    def describe(self, observation: Any, seat: int) -> str:
        planes = observation.reshape(9, 2)
        mine, theirs = "OX" if seat == 0 else "XO"
        cells = [mine if own else theirs if other else str(cell) for cell, (own, other) in enumerate(planes)]
        rows = "\n".join(f" {' | '.join(cells[start : start + 3])} " for start in (0, 3, 6))
        return f"you will be '{mine}'\n{rows}"
