"""GymnasiumEnv: a world of the package gymnasium (`pip install dagrl[envs]`), unchanged, for one agent that acts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np


class GymnasiumEnv:
    """A world with discrete actions, by its id: the last agent's text names one, what it leads to is shown.

    `actions`: their names, from the first on; without them an action is its number. The last name in the text counts;
    where there is none the world is left as it is, and shown again with the names. `shows`: `obs`, the observation, or
    `ansi`, the world as the environment draws it. `options` go to `gymnasium.make`.

    env = GymnasiumEnv("FrozenLake-v1", actions=["left", "down", "right", "up"], options={"is_slippery": False})
    env.reset(seed=0)                       # "0"
    env.step(["I go right"], None)          # ("1", 0.0, False, False)
    """

    def __init__(
        self,
        world: str,
        actions: Sequence[str] = (),
        shows: str = "obs",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if shows not in ("obs", "ansi"):
            raise ValueError(f"shows is {shows!r}: use 'obs' or 'ansi'")
        self._env = gymnasium.make(world, render_mode="ansi" if shows == "ansi" else None, **dict(options or {}))
        space = self._env.action_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise ValueError(f"{world} has the action space {space}: only Discrete ones can be named in a text")
        names = list(actions) or [str(number) for number in range(int(space.start), int(space.start + space.n))]
        if len(set(names)) != space.n:
            raise ValueError(f"actions names {len(set(names))} actions, {world} has {space.n}")
        self._actions = {name: int(space.start) + place for place, name in enumerate(names)}
        longest_first = sorted(names, key=len, reverse=True)
        self._named = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in longest_first))
        self._shows = shows

    def reset(self, prompt: str | None = None, seed: int | None = None) -> str:
        observation, _ = self._env.reset(seed=seed)
        return self._show(observation)

    def step(self, actions: Sequence[str], ground_truth: object) -> tuple[str, float, bool, bool]:
        named = self._named.findall(actions[-1])
        if not named:
            return f"{self._shown}\nName one of: {', '.join(self._actions)}.", 0.0, False, False
        observation, reward, terminated, truncated, _ = self._env.step(self._actions[named[-1]])
        return self._show(observation), float(reward), bool(terminated), bool(truncated)

    def close(self) -> None:
        self._env.close()

    def _show(self, observation: Any) -> str:
        if self._shows == "ansi":
            self._shown = str(self._env.render())
        else:
            self._shown = observation if isinstance(observation, str) else _text(observation)
        return self._shown


def _text(observation: Any) -> str:
    """Numbers as they are read: `5`, `12, 3, 0` for several, rows of them for arrays."""
    array = np.asarray(observation)
    if array.ndim == 0:
        return str(array.item())
    return ", ".join(map(str, array.tolist())) if array.ndim == 1 else np.array2string(array, precision=3)
