"""The hook of both players: the board alone, as nine cells, instead of all that TextArena has said so far."""

from __future__ import annotations

import re
from typing import Any

_MARK = re.compile(r"you will be '([XO])'")
_CELL = re.compile(r"^ ([0-8XO]) \| ([0-8XO]) \| ([0-8XO]) ?$", re.MULTILINE)


def pre_process(tokenizer: Any, prompt_id: list[int], obs: list[int] | None = None) -> list[int]:
    """`<|board|>.m..t....<|player|>`: `m` for who moves, `t` for the other, `.` for an empty cell."""
    return list(tokenizer.encode(f"<|board|>{board(tokenizer.decode(obs))}<|player|>", add_special_tokens=False))


def board(shown: str) -> str:
    """The last board that is drawn in what a player is shown."""
    mine = _MARK.findall(shown)[-1]
    cells = [cell for row in _CELL.findall(shown)[-3:] for cell in row]
    return "".join("m" if cell == mine else "t" if cell in "XO" else "." for cell in cells)
