"""TurnGame: what games share in which players move one after another; textarena_env.py and pettingzoo_env.py use it.

Each player is a rollout node of its own, in the order of agent group, then of the file; all of them may be one policy
(self-play). They do not depend on each other, and an ENV node depends on all of them. One player moves in a round: only
the mover has an observation, and `needs_obs: true` lets each player speak only when it has one.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any


class TurnGame(ABC):
    """One game. Seats that `bots` names (seat to "random") are played by the environment itself: it draws a legal move.

    `bots` stands in `env_kwargs`, or in a task's `extra_info`, which goes before: so held-out games can be played
    against a fixed opponent while training is self-play.
    """

    def __init__(self, num_players: int = 2, bots: Mapping[Any, str] | None = None) -> None:
        self.num_players = num_players
        self._bots = dict(bots or {})
        self._random = random.Random()

    def reset(
        self, prompt: str | None = None, seed: int = 0, extra_info: Mapping[str, Any] | None = None
    ) -> list[str | None]:
        """What the first player sees; None for the others."""
        bots = (extra_info or {}).get("bots") or self._bots
        self._seats_of_bots = {int(seat) for seat in bots}
        unknown = {name for name in bots.values() if name != "random"}
        if unknown or not self._seats_of_bots < set(range(self.num_players)):
            raise ValueError(f"bots is {dict(bots)}: name some seats of 0..{self.num_players - 1}, each with 'random'")
        self._random.seed(seed)
        self.start(seed)
        self._play_bots()
        return self._observations()

    def step(self, actions: Sequence[str], ground_truth: object) -> tuple[list[str | None], list[float], bool]:
        """The mover's text is its move. Rewards are what each seat got since the last step, 0 for those of bots."""
        if len(actions) != self.num_players:
            raise ValueError(f"{len(actions)} rollout nodes act on a game of {self.num_players} players")
        mover = self.mover()
        assert mover is not None, "a game that is over is not stepped"
        self.move(mover, actions[mover])
        self._play_bots()
        rewards = [0.0 if seat in self._seats_of_bots else reward for seat, reward in enumerate(self.rewards())]
        return self._observations(), rewards, self.mover() is None

    @abstractmethod
    def start(self, seed: int) -> None:
        """Begins a game."""

    @abstractmethod
    def mover(self) -> int | None:
        """The seat that moves next; None when the game is over."""

    @abstractmethod
    def observe(self, seat: int) -> str:
        """What the mover is shown."""

    @abstractmethod
    def legal(self, seat: int) -> list[str]:
        """Moves that a bot may draw from."""

    @abstractmethod
    def move(self, seat: int, text: str) -> None:
        """Plays what a player said; what is no legal move ends as the game's rules say."""

    @abstractmethod
    def rewards(self) -> list[float]:
        """By seat, since this was asked last."""

    def _play_bots(self) -> None:
        while (seat := self.mover()) in self._seats_of_bots:
            assert seat is not None
            self.move(seat, self._random.choice(self.legal(seat)))

    def _observations(self) -> list[str | None]:
        mover = self.mover()
        return [self.observe(seat) if seat == mover else None for seat in range(self.num_players)]
