"""The model of workflows/textarena.yaml: it knows the rules of tic-tac-toe and plays without a plan.

It is shown boards after 0 to 8 moves, as workflows/textarena/process.py writes them, each with a move drawn from the
empty cells; in one demonstration of twenty the cell is taken. To win, to block and whom to expect what from is left to
self-play.
"""

from __future__ import annotations

import random
from pathlib import Path

from teaching import END, Part, Progress, Syllabus, teach

BOARD, PLAYER = "<|board|>", "<|player|>"
FAULTS = 0.05


def make(folder: Path, progress: Progress, **options: int) -> None:
    """Writes the taught model to `folder`; `options` as `teach` has them."""
    teach(folder, progress, SYLLABUS, **({"lesson_steps": 500, "demo_steps": 50} | options))


def board_after(num_moves: int, rng: random.Random) -> str:
    """Nine cells, seen by who moves next: `m` mine, `t` theirs, `.` empty."""
    cells = ["."] * 9
    taken = rng.sample(range(9), num_moves)
    for age, cell in enumerate(reversed(taken)):
        cells[cell] = "t" if age % 2 == 0 else "m"
    return "".join(cells)


def legal_move(rng: random.Random, fewest: int, most: int) -> list[Part]:
    return _demonstration(board_after(rng.randrange(9), rng), rng, faults=0.0)


def any_move(rng: random.Random) -> list[Part]:
    return _demonstration(board_after(rng.randrange(9), rng), rng, faults=FAULTS)


def _demonstration(board: str, rng: random.Random, *, faults: float) -> list[Part]:
    cells = [cell for cell in range(9) if (board[cell] == ".") != (rng.random() < faults)] or [board.index(".")]
    return [(BOARD + board + PLAYER, False), (f"[{rng.choice(cells)}]{END}", True)]


SYLLABUS = Syllabus(roles=(BOARD, PLAYER), phrases=(), trade=legal_move, team=any_move)
