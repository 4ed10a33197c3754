"""Ablation: a run's team judged again with one agent at a time as it was before, or silent; who needs whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dagrl.errors import DagrlError
from dagrl.runtime.chosen_checkpoint import Chosen
from dagrl.runtime.console import Console
from dagrl.runtime.judge import Team, judge
from dagrl.runtime.judgement import Judgement
from dagrl.runtime.statistics import Interval, known_pairs, mean_interval, paired_difference
from dagrl.types import Task
from dagrl.workflow.kinds import NodeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One team, judged on the problems."""

    name: str
    solved: Interval
    """Share of problems solved: avg@k; maj@n of a single agent that has n samples for the team's tokens."""
    difference: tuple[float, float, float] | None
    """(mean, low, high) of this less the whole team, paired by problem; None for the whole team."""
    tokens: float
    """Tokens that agents said for one sample, or for the n of a single agent."""


def ablate(
    team: Team, tasks: Sequence[Task], *, k: int, others: Sequence[Chosen], single: Team | None, console: Console
) -> list[Row]:
    """The whole team first. `others`: checkpoints whose agents take their own later selves' places, one at a time."""
    whole = judge(team, tasks, k=k, without=None, console=console).judgement
    rows = [_row(team.name, whole, None)]
    for name, changed, without in variants(team, others):
        told = judge(changed, tasks, k=k, without=without, console=console).judgement
        rows.append(_row(name, told, whole))
    if single is not None:
        rows.append(_single_row(single, tasks, whole, console))
    return rows


def variants(team: Team, others: Sequence[Chosen]) -> Iterator[tuple[str, Team, str | None]]:
    """Name, team, and the rollout node that is left out."""
    trained = [group for group in team.workflow.groups if group.is_trained]
    for group in trained:
        yield f"{group.name} as it began", replace(team, elsewhere={group.index: None}), None
        for other in others:
            place = {group.index: other.path}
            yield f"{group.name} as after step {other.step}", replace(team, elsewhere=place), None
    if len(trained) > 1:
        yield "all as they began", replace(team, elsewhere={group.index: None for group in trained}), None
    speakers = [node.node_id for node in team.workflow.play if node.kind is NodeKind.ROLLOUT]
    for node_id in speakers if len(speakers) > 1 else ():
        yield f"without {node_id}", team, node_id


def _row(name: str, told: Judgement, whole: Judgement | None) -> Row:
    shares = [problem.share_solved for problem in told.problems]
    return Row(
        name=name,
        solved=told.scores[0].average,
        difference=None if whole is None else _less(shares, whole),
        tokens=_tokens(told),
    )


def _single_row(single: Team, tasks: Sequence[Task], whole: Judgement, console: Console) -> Row:
    """A single agent with as many samples of each problem as the team's tokens buy; its majority's answer counts."""
    if len(single.workflow.groups) > 1:
        number = len(single.workflow.groups)
        raise DagrlError(f"has {number} agents", where=single.name, how="give --single a run of one agent")
    tokens = _tokens(judge(single, tasks, k=1, without=None, console=console).judgement)
    count = max(1, round(_tokens(whole) / tokens)) if tokens else 1
    told = judge(single, tasks, k=count, without=None, console=console).judgement
    answers = [problem.majority() if count > 1 else problem.share_solved for problem in told.problems]
    return Row(
        name=f"{single.name}, the majority of {count}" if count > 1 else single.name,
        solved=mean_interval([answer for answer in answers if answer is not None]),
        difference=_less(answers, whole),
        tokens=count * _tokens(told),
    )


def _less(shares: Sequence[float | None], whole: Judgement) -> tuple[float, float, float]:
    before, after = known_pairs([problem.share_solved for problem in whole.problems], shares)
    return paired_difference(before, after)


def _tokens(told: Judgement) -> float:
    return sum(one.turns_per_sample * one.mean_tokens for one in told.agents.values())
