"""What an environment is, and how the many shapes that `reset` and `step` may give are read into one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dagrl.errors import UserCodeError, show
from dagrl.images import are_parts, content_text, is_image
from dagrl.types import LARGEST_REWARD, Image

_STEP_SHAPES = "(obs, reward, done) or (obs, reward, terminated, truncated[, info])"


class Environment(Protocol):
    """What `env_path` names. One object per trajectory; every method may be `async def`; `close` is optional.

    class GuessEnv:
        def reset(self, prompt=None):
            return "I think of a number."

        def step(self, actions, ground_truth):
            is_right = actions[-1].strip() == str(ground_truth)
            return ("right" if is_right else "wrong", float(is_right), is_right)
    """

    def reset(self, prompt: str | None = None) -> Any:
        """Called once, before the first round; may take nothing, or name `seed`, `ground_truth`, `extra_info` too."""
        ...

    def step(self, actions: Sequence[str], ground_truth: Any) -> Any:
        """Called once a round: (observation, reward, done)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Seats:
    """Who acts on an environment and who else hears it."""

    actors: tuple[int, ...]
    """The agent group of each action, in the order of `actions`; a group that acts twice stands twice."""
    listeners: tuple[int, ...] = ()
    """Groups that get the observation without acting."""

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(sorted({*self.actors, *self.listeners}))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvAnswer:
    """What one call gave, in plain Python numbers and texts."""

    texts: Mapping[int, str]
    """By agent group; empty where it said nothing. Where a group acts more than once: its last entry."""
    seat_texts: tuple[str | None, ...] = ()
    """What is meant for each action's agent, None where it said nothing to it; empty where it said nothing at all."""
    rewards: tuple[float, ...] = ()
    """One per action; a team's reward stands under each. Empty for `reset`."""
    is_team_reward: bool = True
    terminated: bool = False
    truncated: bool = False
    images: tuple[Image, ...] = ()
    """That the texts show."""

    @property
    def last_text(self) -> str | None:
        """What is meant for the last actor."""
        return self.seat_texts[-1] if self.seat_texts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvRequest:
    """What `step` is given."""

    actions: tuple[str, ...]
    ground_truth: Any
    seats: Seats = field(default_factory=lambda: Seats(actors=(0,)))


def read_reset(raw: Any, seats: Seats) -> EnvAnswer:
    """The observation that `reset` gave, alone or as Gymnasium's (obs, info)."""
    if isinstance(raw, tuple) and len(raw) == 2 and isinstance(raw[1], Mapping):
        raw = raw[0]
    album: dict[str, Image] = {}
    texts, own = _read_texts(raw, seats, _Reader("reset", album))
    return EnvAnswer(texts=texts, seat_texts=own, images=tuple(album.values()))


def read_step(raw: Any, seats: Seats) -> EnvAnswer:
    """What `step` gave: (obs, reward, done), (obs, reward, terminated, truncated) or either with an info mapping."""
    obs, reward, terminated, truncated = _split_step(raw)
    album: dict[str, Image] = {}
    texts, own = _read_texts(obs, seats, _Reader("step", album))
    rewards, is_team = _read_rewards(reward, seats)
    return EnvAnswer(
        texts=texts,
        seat_texts=own,
        rewards=rewards,
        is_team_reward=is_team,
        terminated=terminated,
        truncated=truncated,
        images=tuple(album.values()),
    )


def _split_step(raw: Any) -> tuple[Any, Any, bool, bool]:
    if not isinstance(raw, tuple | list) or not 3 <= len(raw) <= 5:
        size = f" of {len(raw)}" if isinstance(raw, tuple | list) else ""
        raise _bad(f"step gave a {type(raw).__name__}{size}", f"return {_STEP_SHAPES}")
    if len(raw) == 4 and isinstance(raw[3], Mapping):
        raw = raw[:3]
    if len(raw) == 3:
        obs, reward, done = raw
        ends = done if isinstance(done, tuple | list) else (done, False)
        if len(ends) != 2:
            raise _bad(f"step gave done={show(done)}", "done is a bool or (terminated, truncated)")
        return obs, reward, _read_flag(ends[0], "done"), _read_flag(ends[1], "truncated")
    return raw[0], raw[1], _read_flag(raw[2], "terminated"), _read_flag(raw[3], "truncated")


def _read_flag(raw: Any, name: str) -> bool:
    value = _plain(raw)
    if not isinstance(value, bool):
        raise _bad(f"step gave {name}={show(raw)}", f"{name} must be True or False")
    return value


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads single observations of one call."""

    method: str
    album: dict[str, Image]
    """By their hash, filled as they are found."""

    def text(self, raw: Any) -> str:
        """With marks for images."""
        if not (isinstance(raw, str) or is_image(raw) or are_parts(raw)):
            raise _bad(f"{self.method} gave an observation of type {type(raw).__name__}: {show(raw)}", _OBS_SHAPES)
        try:
            return content_text(raw, self.album)
        except ValueError as error:
            raise _bad(f"{self.method} gave an observation that cannot be shown: {error}", _OBS_SHAPES) from error


def _read_texts(raw: Any, seats: Seats, reader: _Reader) -> tuple[dict[int, str], tuple[str | None, ...]]:
    """By group and by action."""
    if raw is None:
        return {}, ()
    if isinstance(raw, str) or is_image(raw) or are_parts(raw):
        text = reader.text(raw)
        return dict.fromkeys(seats.groups, text), (text,) * len(seats.actors)
    method = reader.method
    if isinstance(raw, Mapping):
        texts = {_group(key, seats, f"{method}'s observation"): reader.text(value) for key, value in raw.items()}
        return texts, tuple(texts.get(group) for group in seats.actors)
    entries = _entries(raw)
    if entries is None:
        raise _bad(f"{method} gave an observation of type {type(raw).__name__}: {show(raw)}", _OBS_SHAPES)
    if len(entries) != len(seats.actors):
        raise _bad(f"{method} gave {len(entries)} observations for {len(seats.actors)} actions", _OBS_SHAPES)
    own = tuple(None if entry is None else reader.text(entry) for entry in entries)
    return {group: text for group, text in zip(seats.actors, own) if text is not None}, own


_OBS_SHAPES = (
    "an observation is None, one string for all, a list with one per action, or {agent_group: string}; for a string "
    "there may be an image or a list of chat parts"
)


def _read_rewards(raw: Any, seats: Seats) -> tuple[tuple[float, ...], bool]:
    if isinstance(raw, Mapping):
        by_group = {_group(key, seats, "step's reward"): _number(value) for key, value in raw.items()}
        missing = [group for group in seats.actors if group not in by_group]
        if missing:
            raise _bad(f"step gave no reward for agent group {missing[0]}: {show(raw)}", _REWARD_SHAPES)
        return _split_by_group(by_group, seats), False
    entries = _entries(raw)
    if entries is None:
        return (_number(raw),) * len(seats.actors), True
    if len(entries) != len(seats.actors):
        raise _bad(f"step gave {len(entries)} rewards for {len(seats.actors)} actions", _REWARD_SHAPES)
    return tuple(_number(entry) for entry in entries), False


_REWARD_SHAPES = "a reward is one finite number for the team, a list with one per action, or {agent_group: number}"


def _split_by_group(by_group: Mapping[int, float], seats: Seats) -> tuple[float, ...]:
    """A group's reward stands on its last action, so that it counts once."""
    last = {group: position for position, group in enumerate(seats.actors)}
    return tuple(by_group[group] if last[group] == at else 0.0 for at, group in enumerate(seats.actors))


def _number(raw: Any) -> float:
    value = _plain(raw)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(f"step gave a reward of type {type(raw).__name__}: {show(raw)}", _REWARD_SHAPES)
    if isinstance(value, float) and not math.isfinite(value):
        raise _bad(f"step gave the reward {value}", _REWARD_SHAPES)
    if abs(value) > LARGEST_REWARD:
        raise _bad(f"step gave the reward {show(value)}, which float32 cannot hold", _REWARD_SHAPES)
    return float(value)


def _group(key: Any, seats: Seats, what: str) -> int:
    value = _plain(key)
    if isinstance(value, bool) or not isinstance(value, int) or value not in seats.groups:
        known = ", ".join(map(str, seats.groups))
        raise _bad(f"{what} has the key {show(key)}", f"keys are the agent groups on this environment: {known}")
    return value


def _entries(raw: Any) -> list[Any] | None:
    """The entries of a list, tuple or one-dimensional array; None for anything else."""
    if isinstance(raw, list | tuple):
        return list(raw)
    return list(raw) if getattr(raw, "ndim", None) == 1 else None


def _plain(raw: Any) -> Any:
    """A numpy (or other array library's) scalar as Python's own number; anything else as it is."""
    return raw.item() if getattr(raw, "ndim", None) == 0 and hasattr(raw, "item") else raw


def _bad(what: str, how: str) -> UserCodeError:
    return UserCodeError(what, how=how, kind="bad_return")
