"""How much of what an agent says was said before in the same conversation, by itself or by another agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dagrl.types import Metrics, Trajectory, Turn
from dagrl.workflow.groups import AgentGroup

GRAM = 4
"""Tokens in a row that count as said again: single words and short phrases come back in any conversation."""

Gram = tuple[int, ...]


def repetition_metrics(groups: Sequence[AgentGroup], trajectories: Iterable[Trajectory]) -> Metrics:
    """`agent_<name>/repeats_self` and `agent_<name>/repeats_others`, from 0 to 1.

    The first is the share of an agent's runs of four tokens that it has said before in the conversation, in the same
    response or an earlier one; the second, over its turns that follow another agent's, the share that another has said.
    Tries of one node side by side do not hear each other and are not compared, nor are ids of different tokenizers.
    Absent where there is nothing to compare.
    """
    counts = {group.index: _Counts() for group in groups}
    models = {group.index: group.model for group in groups}
    kin = {one: [other for other in models if other != one and models[other] == models[one]] for one in models}
    for trajectory in trajectories:
        said: dict[int, set[Gram]] = {}
        for turns in _side_by_side(trajectory.turns):
            for turn in turns:
                speaker = turn.agent_group
                others = [said[other] for other in kin[speaker] if other in said]
                counts[speaker].add(_grams(turn.response_ids), said.get(speaker, set()), others)
            for turn in turns:
                said.setdefault(turn.agent_group, set()).update(_grams(turn.response_ids))
    metrics: Metrics = {}
    for group in groups:
        metrics |= {f"agent_{group.name}/{name}": share for name, share in counts[group.index].shares().items()}
    return metrics


class _Counts:
    """Of one agent: how many runs of tokens were looked at, and how many of them had been said."""

    def __init__(self) -> None:
        self._num_own = self._num_own_again = 0
        self._num_heard = self._num_heard_again = 0

    def add(self, grams: Sequence[Gram], own: set[Gram], others: Sequence[set[Gram]]) -> None:
        """One turn; `own` and `others`: what was said before it."""
        fresh = set(grams) - own
        self._num_own += len(grams)
        self._num_own_again += len(grams) - len(fresh)
        if others:
            self._num_heard += len(grams)
            self._num_heard_again += sum(any(gram in heard for heard in others) for gram in grams)

    def shares(self) -> Metrics:
        found: Metrics = {}
        if self._num_own:
            found["repeats_self"] = self._num_own_again / self._num_own
        if self._num_heard:
            found["repeats_others"] = self._num_heard_again / self._num_heard
        return found


def _grams(ids: Sequence[int]) -> list[Gram]:
    return list(zip(*(ids[start:] for start in range(GRAM)), strict=False))


def _side_by_side(turns: Sequence[Turn]) -> list[list[Turn]]:
    """The turns in time order, tries of one node in one round together."""
    found: list[list[Turn]] = []
    for turn in turns:
        place = (turn.round, turn.node_id)
        if found and (found[-1][0].round, found[-1][0].node_id) == place:
            found[-1].append(turn)
        else:
            found.append([turn])
    return found
