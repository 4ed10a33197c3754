"""How a CREDIT node finds what each player brought: which rollouts it needs, and what it makes of their rewards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from dagrl.algorithms.credit import (
    MOST_EXACT,
    Coalition,
    against_mean,
    coalitions,
    coalitions_of_orders,
    difference,
    draw_orders,
    sampled_shapley,
    shapley,
)
from dagrl.seeds import derive_seed
from dagrl.types import ExtraRollout, Trajectory, Turn, Variation
from dagrl.workflow.extra_play_section import CreditSpec

Credits = list[tuple[Turn, float]]
"""What turns of a sample are worth; turns that are not named are worth nothing."""
Missing = str
"""Why the credits of a sample could not be found."""
LOST = "a rollout that they go by failed or has no reward"
Known = float | None
"""The team's reward of a rollout; None where it has none."""
Replace = Callable[[Iterable[str]], Variation]
"""The variation in which other text stands for that of some players."""


class Rule(Protocol):
    """Looks at the samples of one prompt at a time; all of them have a reward."""

    def wanted(self, samples: Sequence[Trajectory]) -> list[ExtraRollout]:
        """The rollouts that it needs."""
        ...

    def credits(self, samples: Sequence[Trajectory], rewards: Sequence[Known]) -> list[Credits | Missing]:
        """Of each sample, from the `rewards` of what was `wanted`; why not, where too little is known."""
        ...


class Shared:
    """Everyone gets the team's reward."""

    def __init__(self, players: Sequence[str]) -> None:
        self._players = players

    def wanted(self, samples: Sequence[Trajectory]) -> list[ExtraRollout]:
        return []

    def credits(self, samples: Sequence[Trajectory], rewards: Sequence[Known]) -> list[Credits | Missing]:
        return [at_last_turns(one, dict.fromkeys(self._players, one.reward)) for one in samples]


class Difference:
    """The sample with one player's text replaced; what comes before it stays, what comes after is given anew."""

    def __init__(self, players: Sequence[str], replace: Replace) -> None:
        self._players = players
        self._replace = replace

    def wanted(self, samples: Sequence[Trajectory]) -> list[ExtraRollout]:
        return [
            ExtraRollout(sample=one, variation=self._replace([player])) for one in samples for player in self._of(one)
        ]

    def credits(self, samples: Sequence[Trajectory], rewards: Sequence[Known]) -> list[Credits | Missing]:
        found: list[Credits | Missing] = []
        left = iter(rewards)
        for one in samples:
            without = {player: next(left) for player in self._of(one)}
            told = {player: difference(one.reward, other) for player, other in without.items() if other is not None}
            found.append(at_last_turns(one, told) if len(told) == len(without) else LOST)
        return found

    def _of(self, sample: Trajectory) -> list[str]:
        """Players that spoke: the others changed nothing."""
        return [player for player in self._players if any(turn.node_id == player for turn in sample.turns)]


class LeaveOneOut:
    """Every sample beside the same rollouts without the player: a baseline for each prompt and player."""

    def __init__(self, players: Sequence[str], replace: Replace, count: int) -> None:
        self._players = players
        self._replace = replace
        self._count = count

    def wanted(self, samples: Sequence[Trajectory]) -> list[ExtraRollout]:
        return [
            ExtraRollout(sample=one, variation=self._replace([player]))
            for player in self._players
            for one in samples[: self._count]
        ]

    def credits(self, samples: Sequence[Trajectory], rewards: Sequence[Known]) -> list[Credits | Missing]:
        size = min(self._count, len(samples))
        without = {
            player: [reward for reward in rewards[place * size : (place + 1) * size] if reward is not None]
            for place, player in enumerate(self._players)
        }
        if not all(without.values()):
            return [LOST] * len(samples)
        return [
            at_last_turns(one, {player: against_mean(one.reward, own) for player, own in without.items()})
            for one in samples
        ]


class Siblings:
    """A player's turn drawn anew in the same transcript, and what follows from it."""

    def __init__(self, players: Sequence[str], count: int) -> None:
        self._players = players
        self._count = count

    def wanted(self, samples: Sequence[Trajectory]) -> list[ExtraRollout]:
        return [
            ExtraRollout(sample=one, variation=Variation(redrawn=(*place, number)))
            for one in samples
            for place in self._places(one)
            for number in range(1, self._count + 1)
        ]

    def credits(self, samples: Sequence[Trajectory], rewards: Sequence[Known]) -> list[Credits | Missing]:
        left = iter(rewards)
        return [self._of_sample(one, [next(left) for _ in range(self._num_of(one))]) for one in samples]

    def _of_sample(self, sample: Trajectory, rewards: Sequence[Known]) -> Credits | Missing:
        told: Credits = []
        for number, place in enumerate(self._places(sample)):
            own = rewards[number * self._count : (number + 1) * self._count]
            siblings = [reward for reward in own if reward is not None]
            if not siblings:
                return LOST
            credit = against_mean(sample.reward, siblings)
            told += [(turn, credit) for turn in sample.turns if (turn.node_id, turn.round) == place]
        return told

    def _places(self, sample: Trajectory) -> list[tuple[str, int]]:
        spoken = [(turn.node_id, turn.round) for turn in sample.turns if turn.node_id in self._players]
        return list(dict.fromkeys(spoken))

    def _num_of(self, sample: Trajectory) -> int:
        return len(self._places(sample)) * self._count


class Shapley:
    """Coalitions of players that speak, the others' text being replaced."""

    def __init__(self, players: Sequence[str], replace: Replace, num_orders: int, seed: int) -> None:
        self._players = players
        self._replace = replace
        self._num_orders = num_orders
        self._seed = seed

    def wanted(self, samples: Sequence[Trajectory]) -> list[ExtraRollout]:
        return [
            ExtraRollout(sample=one, variation=self._replace(self._absent(coalition)))
            for one in samples
            for coalition in self._coalitions(one)
        ]

    def credits(self, samples: Sequence[Trajectory], rewards: Sequence[Known]) -> list[Credits | Missing]:
        left = iter(rewards)
        return [self._of_sample(one, {own: next(left) for own in self._coalitions(one)}) for one in samples]

    def _of_sample(self, sample: Trajectory, rewards: Mapping[Coalition, Known]) -> Credits | Missing:
        values = {coalition: reward for coalition, reward in rewards.items() if reward is not None}
        if len(values) < len(rewards):
            return LOST
        values[frozenset(self._players)] = sample.reward
        if self._is_exact:
            return at_last_turns(sample, shapley(self._players, values))
        return at_last_turns(sample, sampled_shapley(self._orders(sample), values))

    @property
    def _is_exact(self) -> bool:
        return len(self._players) <= MOST_EXACT

    def _coalitions(self, sample: Trajectory) -> list[Coalition]:
        """All that a value is needed of, but for the whole team, which was played."""
        needed = coalitions(self._players) if self._is_exact else coalitions_of_orders(self._orders(sample))
        return [coalition for coalition in needed if len(coalition) < len(self._players)]

    def _orders(self, sample: Trajectory) -> list[tuple[str, ...]]:
        seed = derive_seed(self._seed, "shapley", sample.step, sample.task.task_id, sample.sample)
        return draw_orders(self._players, self._num_orders, seed)

    def _absent(self, coalition: Coalition) -> list[str]:
        return [player for player in self._players if player not in coalition]


def num_rollouts(spec: CreditSpec, *, num_players: int, num_rounds: int, num_samples: int) -> int:
    """The rollouts that a rule needs for one prompt, at most: where every player speaks in every round."""
    orders = 2**num_players if num_players <= MOST_EXACT else spec.permutations * (num_players - 1) + 2
    per_prompt = {
        "difference": num_samples * num_players,
        "leave_one_out": min(spec.samples, num_samples) * num_players,
        "siblings": num_samples * num_players * num_rounds * spec.samples,
        "shapley": num_samples * (orders - 1),
    }
    return per_prompt.get(spec.rule, 0)


def replacing(spec: CreditSpec) -> Replace:
    """What `instead` says."""

    def replace(absent: Iterable[str]) -> Variation:
        names = tuple(absent)
        if spec.instead == "initial":
            return Variation(initial=names)
        return Variation(silent=names) if spec.text is None else Variation(said=dict.fromkeys(names, spec.text))

    return replace


def rule_of(spec: CreditSpec, players: Sequence[str], seed: int) -> Rule | None:
    """The rule of a CREDIT node; None for `judge`, which is a function's."""
    if spec.rule == "difference":
        return Difference(players, replacing(spec))
    if spec.rule == "leave_one_out":
        return LeaveOneOut(players, replacing(spec), spec.samples)
    if spec.rule == "siblings":
        return Siblings(players, spec.samples)
    if spec.rule == "shapley":
        return Shapley(players, replacing(spec), spec.permutations, seed)
    return Shared(players) if spec.rule == "shared" else None


def at_last_turns(sample: Trajectory, by_player: Mapping[str, float]) -> Credits:
    """A player's credit at its last turn; each of its branches gets it, for they are compared apart."""
    last = {(turn.node_id, turn.branch): turn for turn in sample.turns}
    return [(turn, by_player[node_id]) for (node_id, _), turn in last.items() if node_id in by_player]
