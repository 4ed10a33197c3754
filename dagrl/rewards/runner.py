"""Calling a reward function and checking what it gives back."""

from __future__ import annotations

import copy
import inspect
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dagrl.errors import DagrlError, TimeUp, UserCodeError, boundary, show
from dagrl.limits import contained, time_limit
from dagrl.rewards import verdicts
from dagrl.types import LARGEST_REWARD, Trajectory

SCORE = "score"
"""The entry of a returned dict that is the reward; the other numbers are metrics."""


class Undecided(DagrlError):
    """A reward function could not tell, within its limits, whether an answer is right. The sample gets no reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """What a reward function said of one trajectory.

    >>> RewardResult(by_group={0: 1.0, 1: 0.0}).score
    0.5
    """

    team: float | None = None
    """The team's reward; None where the function rewards agents or turns."""
    by_group: Mapping[int, float] = field(default_factory=dict)
    """Agent group to its reward; a group not named gets 0."""
    by_turn: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """(agent group, which of its turns, from 0) to reward; a turn not named gets 0."""
    outcome: float | None = None
    """What the trajectory counts as, for metrics and held-out accuracy; given to nobody. Where it is None, the rewards
    say it."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further numbers for the metrics."""

    @property
    def score(self) -> float:
        """One number for the trajectory: the team's reward, or the outcome, or the mean over agents of the sum of their
        rewards."""
        if self.team is not None:
            return self.team
        if self.outcome is not None:
            return self.outcome
        sums: dict[int, float] = dict(self.by_group)
        for (group, _), reward in self.by_turn.items():
            sums[group] = sums.get(group, 0.0) + reward
        return sum(sums.values()) / len(sums)


def takes_trajectory(function: Callable[..., Any]) -> bool:
    """True for `fn(trajectory, **kwargs)`, false for `compute_score(data_source, solution_str, …)`."""
    return "trajectory" in inspect.signature(function).parameters


def call_reward(
    function: Callable[..., Any], trajectory: Trajectory, kwargs: Mapping[str, Any] | None = None
) -> RewardResult | None:
    """Scores `trajectory`; None where the function raised `Undecided`.

    `compute_score` is given the text of the trajectory's last turn. Raises UserCodeError, of kind `raised` or
    `bad_return`, naming the function and what it gave.
    """
    name = _name(function)
    given = {} if kwargs is None else kwargs
    try:
        with boundary(name):
            if takes_trajectory(function):
                answer = function(trajectory, **given)
            else:
                task = trajectory.task
                response = trajectory.turns[-1].response_text if trajectory.turns else ""
                answer = function(task.data_source, response, task.ground_truth, task.extra_info, **given)
            return _Check(name, _place(function)).result(answer, trajectory)
    except Undecided:
        return None


def call_own_reward(
    function: Callable[..., Any], trajectory: Trajectory, kwargs: Mapping[str, Any], *, timeout_s: float
) -> RewardResult | None:
    """`call_reward` for a function of the user's: on a copy of `trajectory`, with a time limit, what it changes in the
    process put back. Raises UserCodeError of kind `timeout` too."""
    try:
        with contained(), time_limit(timeout_s):
            return call_reward(function, _copy(trajectory), kwargs)
    except TimeUp:
        raise UserCodeError(
            f"{_name(function)} did not return within {timeout_s:g} s",
            where=_place(function),
            how="make it faster or raise config.rollout.reward_timeout_s",
            kind="timeout",
        ) from None


def _copy(trajectory: Trajectory) -> Trajectory:
    """What a function may change without changing the batch; ids are tuples and need no copy."""
    turns = [replace(turn, reward_parts=dict(turn.reward_parts)) for turn in trajectory.turns]
    observations = list(trajectory.observations)
    return replace(trajectory, task=copy.deepcopy(trajectory.task), turns=turns, observations=observations)


def _name(function: Callable[..., Any]) -> str:
    return f"reward function {getattr(function, '__qualname__', repr(function))}"


def _place(function: Callable[..., Any]) -> str | None:
    code = getattr(function, "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"


class _Check:
    """Turns what a reward function gave into a RewardResult, or says what is wrong with it."""

    def __init__(self, name: str, place: str | None) -> None:
        self._name = name
        self._place = place

    def result(self, answer: Any, trajectory: Trajectory) -> RewardResult:
        if not isinstance(answer, Mapping):
            return RewardResult(team=self._number(answer, "gave"))
        told = {key: value for key, value in answer.items() if isinstance(key, str)}
        shares = {key: value for key, value in answer.items() if not isinstance(key, str)}
        if told and not shares:
            return RewardResult(team=self._score(told), parts=self._parts(told))
        outcome = self._score(told) if told else None
        if shares and all(_is_int(key) for key in shares):
            by_group = {self._group(key, trajectory): self._named(shares, key) for key in shares}
            return RewardResult(by_group=by_group, outcome=outcome, parts=self._parts(told))
        if shares and all(isinstance(key, tuple) for key in shares):
            by_turn = {self._turn(key, trajectory): self._named(shares, key) for key in shares}
            return RewardResult(by_turn=by_turn, outcome=outcome, parts=self._parts(told))
        raise self._error(f"gave {show(answer)}, whose keys are neither all texts, groups, nor (group, turn) pairs")

    def _score(self, told: Mapping[Any, Any]) -> float:
        if SCORE not in told:
            raise self._error(f"gave a dict without '{SCORE}': it has {', '.join(told)}")
        return self._named(told, SCORE)

    def _parts(self, told: Mapping[Any, Any]) -> dict[str, float]:
        """Texts beside the score (what was extracted, and the like) are not metrics and are left out."""
        rest = {name: part for name, part in told.items() if name != SCORE and isinstance(part, numbers.Real)}
        for name, part in rest.items():
            self._number(float(part), f"gave '{name}':")
        try:
            judged = verdicts.as_parts(told.get(verdicts.KEY, {}))
        except ValueError as error:
            raise self._error(f"gave a '{verdicts.KEY}' that {error}") from None
        return {name: float(part) for name, part in rest.items()} | judged

    def _group(self, key: Any, trajectory: Trajectory) -> int:
        groups = sorted({turn.agent_group for turn in trajectory.turns})
        if int(key) not in groups:
            raise self._error(f"gave a reward to agent group {key}; groups that spoke: {groups}")
        return int(key)

    def _turn(self, key: tuple[Any, ...], trajectory: Trajectory) -> tuple[int, int]:
        if len(key) != 2 or not all(_is_int(part) for part in key):
            raise self._error(f"gave a reward to {key!r}, which is not a pair (group, turn)")
        group, turn = self._group(key[0], trajectory), int(key[1])
        num_turns = len(trajectory.of_group(group))
        if not 0 <= turn < num_turns:
            raise self._error(f"gave a reward to turn {turn} of group {group}, which has turns 0 to {num_turns - 1}")
        return group, turn

    def _named(self, answer: Mapping[Any, Any], key: Any) -> float:
        return self._number(answer[key], f"gave {show(key)}:")

    def _number(self, value: Any, said: str) -> float:
        if inspect.iscoroutine(value):
            value.close()
            raise self._error("is `async`; a reward function must be an ordinary one")
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise self._error(f"{said} {show(value)} ({type(value).__name__}), not a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not abs(number) <= LARGEST_REWARD:
            raise self._error(f"{said} {show(value)}, which is not finite in float32")
        return number

    def _error(self, what: str) -> UserCodeError:
        return UserCodeError(
            f"{self._name} {what}",
            where=self._place,
            how=f"return a finite number, a dict with '{SCORE}', {{group: number}} or {{(group, turn): number}}",
            kind="bad_return",
        )


def _is_int(key: Any) -> bool:
    return isinstance(key, numbers.Integral) and not isinstance(key, bool)
