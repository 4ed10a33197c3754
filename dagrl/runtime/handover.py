"""What goes from one unit of a round to the next, and from one round to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dagrl.environments.protocol import EnvAnswer
from dagrl.nodes.base import TrajectoryFault
from dagrl.nodes.transcript import PROMPT, Scribe, Transcript
from dagrl.runtime.plan import EnvUnit, PlayPlan
from dagrl.types import StopReason, Task, Turn


class Status(StrEnum):
    """How one unit ended in one round."""

    DONE = "done"
    LEFT_OUT = "left_out"
    SKIPPED = "skipped"
    """`when` said no, or nothing that it depends on spoke."""
    HALTED = "halted"
    """Did not start, because the trajectory ended before it or in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one unit brought in one round."""

    status: Status
    context: Transcript = PROMPT
    """What a rollout node spoke from, before its hook."""
    turns: tuple[Turn, ...] = ()
    """Of a rollout node: one for each branch."""
    answer: EnvAnswer | None = None
    """Of an environment."""
    seconds: float = 0.0
    stop: StopReason | None = None
    """Set where the unit ended the trajectory."""
    fault: TrajectoryFault | None = None


@dataclass(slots=True, kw_only=True)
class Round:
    """One pass through the play graph of one trajectory."""

    round: int
    start: Transcript
    """What agents without dependencies speak from."""
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """By unit, as they end."""


class Handover:
    """Puts transcripts together by the edges of the play graph."""

    def __init__(self, plan: PlayPlan, scribe: Scribe, task: Task) -> None:
        self._plan = plan
        self._scribe = scribe
        self._task = task

    def context(self, one: Round, name: str, *, takes_inputs: bool) -> Transcript:
        """What a rollout node speaks from. Where its hook puts several responses together by itself, none of them
        stands there: the bare start, or what the branches of its one feed spoke from."""
        feeds = [feed for feed in self._plan.feeds[name] if one.outcomes[feed].status is not Status.SKIPPED]
        if len(feeds) > 1 and takes_inputs:
            return one.start
        if feeds and takes_inputs and self._plan.rollouts[feeds[0]].options.num_parallel > 1:
            return one.outcomes[feeds[0]].context
        return self._hand_over(one, feeds, self._plan.rollouts[name].agent_group)

    def inputs(self, one: Round, name: str) -> dict[str, list[str]]:
        """The responses of the rollout nodes that a node depends on."""
        return {
            feed: [turn.response_text for turn in one.outcomes[feed].turns]
            for feed in self._plan.feeds[name]
            if one.outcomes[feed].status is Status.DONE
        }

    def action_texts(self, one: Round, env: EnvUnit, *, as_transcripts: bool) -> list[str]:
        """What an environment is given; an empty text for each agent that did not speak."""
        texts: list[str] = []
        for name in env.actors:
            outcome = one.outcomes[name]
            for turn in turns_of(outcome, self._plan.rollouts[name].options.num_parallel):
                if as_transcripts and outcome.status is not Status.SKIPPED:
                    texts.append(self._scribe.read(_outgoing(outcome, turn), self._task))
                else:
                    texts.append("" if turn is None else turn.response_text)
        return texts

    def next_start(self, one: Round, rewritten: Mapping[str, str]) -> Transcript:
        """What the last rollout nodes hand on, or the text that an environment (by unit) made of it."""
        names = self._last_live(one, self._plan.last)
        group = self._plan.rollouts[names[0]].agent_group if names else one.start.group
        start = self._hand_over(one, names, group)
        for unit, text in rewritten.items():
            outcome = one.outcomes[self._plan.envs[unit].actors[-1]]
            if outcome.status is not Status.SKIPPED:
                start = _outgoing(outcome, outcome.turns[-1] if outcome.turns else None)
            start = self._scribe.rewrite(self._scribe.translate(start, start.group, self._task), text)
        return start

    def _hand_over(self, one: Round, feeds: Sequence[str], group: int) -> Transcript:
        if not feeds:
            return one.start
        if len(feeds) > 1:
            turns = [turn for name in feeds for turn in one.outcomes[name].turns]
            return self._scribe.add_responses(one.start, turns, group, self._task)
        outcome = one.outcomes[feeds[0]]
        if len(outcome.turns) > 1:
            return self._scribe.add_responses(outcome.context, outcome.turns, group, self._task)
        return _outgoing(outcome, outcome.turns[0] if outcome.turns else None)

    def _last_live(self, one: Round, names: Sequence[str]) -> list[str]:
        """`names`, with each that was skipped replaced by what it would have spoken after."""
        found: set[str] = set()
        for name in names:
            is_skipped = one.outcomes[name].status is Status.SKIPPED
            found.update(self._last_live(one, self._plan.feeds[name]) if is_skipped else [name])
        return sorted(found, key=self._plan.places.__getitem__)


def turns_of(outcome: Outcome, num_branches: int) -> Sequence[Turn | None]:
    """One entry for each branch; None where it did not speak."""
    spoken = {turn.branch: turn for turn in outcome.turns}
    return [spoken.get(branch) for branch in range(num_branches)]


def _outgoing(outcome: Outcome, turn: Turn | None) -> Transcript:
    """The transcript that a node hands on: of one of its turns, or what it would have spoken from."""
    if turn is None:
        return outcome.context
    return replace(outcome.context, group=turn.agent_group, ids=turn.transcript_ids, is_prompt=False)
