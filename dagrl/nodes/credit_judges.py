"""Judges as the rule of a CREDIT node: a function of the user's, or a model behind a server asked about each agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dagrl.errors import DagrlError, FaultBudgetError, UserCodeError
from dagrl.nodes.credit_rules import Credits, Known, Missing, at_last_turns
from dagrl.nodes.model_judge import ModelJudge
from dagrl.nodes.reward_parts import Withheld
from dagrl.nodes.usage import Usage
from dagrl.rewards.runner import RewardResult
from dagrl.types import ExtraRollout, Trajectory

Judge = Callable[[Trajectory], RewardResult | None]
"""What each agent's part of a trajectory is worth; None where that could not be told."""


class Judged:
    """A rule that is a function: it reads the trajectory and says what each agent, or each of its turns, is worth."""

    def __init__(self, judge: Judge, name: str, usage: Usage) -> None:
        self._judge = judge
        self._name = name
        self._usage = usage

    def wanted(self, samples: Sequence[Trajectory]) -> list[ExtraRollout]:
        return []

    def credits(self, samples: Sequence[Trajectory], rewards: Sequence[Known]) -> list[Credits | Missing]:
        found: list[Credits | Missing] = []
        for sample in samples:
            self._usage.judge_calls += 1
            try:
                found.append(self._ask(sample))
            except UserCodeError as error:
                found.append(str(error))
        return found

    def _ask(self, sample: Trajectory) -> Credits | Missing:
        result = self._judge(sample)
        if result is None:
            return f"the judge {self._name} could not tell"
        if result.team is not None:
            raise DagrlError(
                f"the judge {self._name} gave one number for the team",
                how="return {group: number} or {(group, turn): number}",
            )
        last = {turn.agent_group: turn for turn in sample.turns}
        told = [(last[group], credit) for group, credit in result.by_group.items()]
        return told + [(sample.of_group(group)[place], credit) for (group, place), credit in result.by_turn.items()]


class ModelJudged:
    """A rule that asks a model about the last turn of each player."""

    def __init__(self, judges: Mapping[str, ModelJudge], usage: Usage) -> None:
        """`judges` by player: each looks at that node's text."""
        self._judges = judges
        self._usage = usage

    def wanted(self, samples: Sequence[Trajectory]) -> list[ExtraRollout]:
        return []

    def credits(self, samples: Sequence[Trajectory], rewards: Sequence[Known]) -> list[Credits | Missing]:
        told: list[Credits] = [[] for _ in samples]
        missing: dict[int, Missing] = {}
        for player, judge in self._judges.items():
            spoken = [n for n, one in enumerate(samples) if any(turn.node_id == player for turn in one.turns)]
            try:
                verdicts = judge.judge_all([samples[n] for n in spoken], self._usage)
            except FaultBudgetError as error:
                missing |= dict.fromkeys(spoken, str(error))
                continue
            for n, verdict in zip(spoken, verdicts, strict=True):
                if isinstance(verdict, Withheld):
                    missing[n] = f"the judge of '{player}': {verdict.why or verdict.kind}"
                else:
                    told[n] += at_last_turns(samples[n], {player: verdict.score})
        return [missing.get(n, own) for n, own in enumerate(told)]
