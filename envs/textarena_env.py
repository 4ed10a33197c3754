"""TextArenaEnv: any game of the package textarena (`pip install dagrl[envs]`); see turn_game.py for the seats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import textarena
from turn_game import TurnGame

_MOVE = re.compile(r"'?(\[[^\[\]]+\])'?")
_OFFERED = "Available Moves:"


class TextArenaEnv(TurnGame):
    """A game of TextArena, by its id: moves are texts such as `[4]`, rewards the game's own, at its end.

    A bot draws from the moves that the last observation offers (`Available Moves: …`); games that offer none have no
    bots. `options` go to `textarena.make`.
    """

    def __init__(
        self,
        game: str,
        num_players: int = 2,
        bots: Mapping[Any, str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(num_players, bots)
        self._env = textarena.make(game, **dict(options or {}))

    def start(self, seed: int) -> None:
        self._env.reset(num_players=self.num_players, seed=seed)
        self._is_over = False
        self._look()

    def mover(self) -> int | None:
        return None if self._is_over else self._seat

    def observe(self, seat: int) -> str:
        return self._shown

    def legal(self, seat: int) -> list[str]:
        moves = _MOVE.findall(self._shown.rpartition(_OFFERED)[2]) if _OFFERED in self._shown else []
        if not moves:
            raise ValueError("the game offers no list of moves to draw from, so no seat of it can be a bot's")
        return moves

    def move(self, seat: int, text: str) -> None:
        self._is_over, _ = self._env.step(text)
        if not self._is_over:
            self._look()

    def rewards(self) -> list[float]:
        """All of a game's rewards come when it is over."""
        if not self._is_over:
            return [0.0] * self.num_players
        rewards, _ = self._env.close()
        return [float(rewards.get(seat, 0.0)) for seat in range(self.num_players)]

    def _look(self) -> None:
        self._seat, self._shown = self._env.get_observation()
