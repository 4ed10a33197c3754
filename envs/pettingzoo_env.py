"""PettingZooEnv: an AEC game of the package pettingzoo (`pip install dagrl[envs]`); see turn_game.py for the seats."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from turn_game import TurnGame

_NUMBER = re.compile(r"-?\d+")


class PettingZooEnv(TurnGame):
    """An AEC game, by its module (`pettingzoo.classic.tictactoe_v3`); seats are its `possible_agents`, in their order.

    A move is the last whole number in the player's text, an action of the game's Discrete space. One that the game's
    mask does not allow, or none, ends the game: `illegal_reward` for the player, the others get what they had.
    Override `describe` for a game whose observation is better told in words. `options` go to the module's `env`.
    """

    illegal_reward = -1.0

    def __init__(
        self, game: str, bots: Mapping[Any, str] | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        # The game itself, under the wrappers that end it or raise where a move is illegal: that is decided here.
        self._env = importlib.import_module(game).env(**dict(options or {})).unwrapped
        super().__init__(len(self._env.possible_agents), bots)

    def describe(self, observation: Any, seat: int) -> str:
        """The observation as text: arrays as rows of numbers."""
        return np.array2string(np.asarray(observation).astype(float), precision=3)

    def start(self, seed: int) -> None:
        self._env.reset(seed=seed)
        self._is_over = False
        self._given = [0.0] * self.num_players
        self._skip_the_dead()

    def mover(self) -> int | None:
        return None if self._is_over else self._env.possible_agents.index(self._env.agent_selection)

    def observe(self, seat: int) -> str:
        observation = self._env.observe(self._env.possible_agents[seat])
        seen = observation["observation"] if isinstance(observation, Mapping) else observation
        return f"{self.describe(seen, seat)}\nActions: {', '.join(self.legal(seat))}"

    def legal(self, seat: int) -> list[str]:
        agent = self._env.possible_agents[seat]
        space, observation = self._env.action_space(agent), self._env.observe(agent)
        mask = observation.get("action_mask") if isinstance(observation, Mapping) else None
        allowed = range(space.n) if mask is None else np.flatnonzero(mask)
        return [str(int(space.start + action)) for action in allowed]

    def move(self, seat: int, text: str) -> None:
        numbers = _NUMBER.findall(text)
        if not numbers or str(int(numbers[-1])) not in self.legal(seat):
            self._given[seat] += self.illegal_reward
            self._is_over = True
            return
        self._env.step(int(numbers[-1]))
        for place, agent in enumerate(self._env.possible_agents):
            self._given[place] += float(self._env.rewards.get(agent, 0.0))
        self._skip_the_dead()

    def rewards(self) -> list[float]:
        given, self._given = self._given, [0.0] * self.num_players
        return given

    def _skip_the_dead(self) -> None:
        """Players who are out of an AEC game still have the word once, for an empty step."""
        env = self._env
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        self._is_over = self._is_over or not env.agents
