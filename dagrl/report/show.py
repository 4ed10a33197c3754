"""Conversations of one step as text: which ones, and how each turn was rewarded and credited."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagrl.errors import DagrlError
from dagrl.report.conversations import Conversation, Headline, SpokenTurn, read_conversations, read_headlines
from dagrl.report.screen import BAD, DIM, GOOD, HEAD, Line
from dagrl.workflow.nearest import did_you_mean

NUM_SHOWN = 3
"""Conversations, where nobody says how many."""
MAX_TEXT_CHARS = 2000
"""Of one message, unless all is asked for."""
_INDENT = "    "


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which conversations of a step; at most one of `worst`, `best`, `task` is given."""

    agent: str | None = None
    """Only conversations that it spoke in; only its turns are shown."""
    worst: int | None = None
    """By the team's reward; among equal ones by the mean advantage of the tokens (of `agent`)."""
    best: int | None = None
    task: str | None = None
    """All samples of this task."""

    def __post_init__(self) -> None:
        if sum(option is not None for option in (self.worst, self.best, self.task)) > 1:
            raise DagrlError("--worst, --best and --task exclude each other")
        if any(number is not None and number < 1 for number in (self.worst, self.best)):
            raise DagrlError("--worst and --best take a number from 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The conversations to show, in order."""

    conversations: tuple[Conversation, ...]
    num_all: int
    """Trajectories in the file."""
    num_unknown: int
    """Those among them that nobody could find a reward for."""
    mean_reward: float | None
    """Of the others; None where there are none."""


def choose(path: Path, choice: Choice) -> Chosen:
    """Raises DagrlError where no trajectory has the agent or the task, StorageError where the file is not readable."""
    headlines = read_headlines(path)
    rewards = [one.reward for one in headlines if not math.isnan(one.reward)]
    candidates = _matching(headlines, choice)
    return Chosen(
        conversations=tuple(_ranked(path, candidates, choice)),
        num_all=len(headlines),
        num_unknown=len(headlines) - len(rewards),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
    )


def conversation_lines(
    conversation: Conversation, *, agent: str | None = None, with_prompts: bool = False, max_chars: int | None = None
) -> list[Line]:
    """A conversation round by round. `with_prompts`: also all that each agent read; `max_chars` of one message."""
    lines = [_title(conversation)]
    turns = [turn for turn in conversation.turns if agent in (None, turn.agent)]
    if turns and not with_prompts:
        lines += _message("first prompt", turns[0].prompt, max_chars)
    for round in sorted({turn.round for turn in turns}):
        own = [turn for turn in turns if turn.round == round]
        for turn in own:
            if with_prompts:
                lines += _message(f"{turn.agent} reads", turn.prompt, max_chars)
            lines += _spoken(turn, conversation, max_chars)
        lines += _observations(own, max_chars)
    return lines


def summary_line(name: str, where: str, chosen: Chosen, choice: Choice) -> Line:
    shown = len(chosen.conversations)
    mean = "" if chosen.mean_reward is None else f", mean reward {chosen.mean_reward:.3f}"
    mean += f", {chosen.num_unknown} without a reward" if chosen.num_unknown else ""
    how = f" with the {'lowest' if choice.best is None else 'highest'} reward" if choice.worst or choice.best else ""
    more = "" if how or choice.task or shown == chosen.num_all else " (others: --worst K, --best K, --task ID)"
    return f"{name}, {where}: {chosen.num_all} trajectories{mean}; {shown} shown{how}{more}", HEAD


def _matching(headlines: Sequence[Headline], choice: Choice) -> list[Headline]:
    agents = {agent for one in headlines for agent in one.agents}
    if choice.agent is not None and headlines and choice.agent not in agents:
        raise DagrlError(f"no agent '{choice.agent}' spoke here", how=did_you_mean(choice.agent, agents))
    tasks = {one.task_id for one in headlines}
    if choice.task is not None and choice.task not in tasks:
        raise DagrlError(f"no task '{choice.task}' here", how=did_you_mean(choice.task, tasks))
    return [
        one
        for one in headlines
        if choice.agent in (None, *one.agents) and choice.task in (None, one.task_id)
    ]  # fmt: skip


def _ranked(path: Path, candidates: Sequence[Headline], choice: Choice) -> list[Conversation]:
    """Only what may be shown is read: at the edge all candidates with the same reward, to see who goes first. Those
    without a reward come after all others."""
    count = choice.worst or choice.best
    if count is None:
        kept = candidates if choice.task is not None else candidates[:NUM_SHOWN]
        return read_conversations(path, only={one.index for one in kept}, columns=("advantages",))
    sign = 1 if choice.worst is not None else -1

    def place(one: Headline | Conversation) -> float:
        return math.inf if math.isnan(one.reward) else sign * one.reward

    places = sorted(place(one) for one in candidates)[:count]
    only = {one.index for one in candidates if place(one) <= places[-1]}
    read = read_conversations(path, only=only, columns=("advantages",))
    return sorted(read, key=lambda one: (place(one), sign * _advantage(one, choice.agent), one.index))[:count]


def _advantage(conversation: Conversation, agent: str | None) -> float:
    """Mean over the tokens (of `agent`); 0 where there are none."""
    turns = [turn for turn in conversation.turns if agent in (None, turn.agent)]
    values = [value for turn in turns for value in turn.tokens["advantages"] or ()]
    return sum(values) / len(values) if values else 0.0


def _title(conversation: Conversation) -> Line:
    ended = "not ended" if conversation.stop_reason is None else conversation.stop_reason
    rounds = f"{conversation.num_rounds} round{'s' * (conversation.num_rounds != 1)}"
    truth = "" if conversation.ground_truth is None else f", ground truth {_one_line(conversation.ground_truth)}"
    text = (
        f"=== task {conversation.task_id}, sample {conversation.sample}: reward {_reward(conversation.reward)}, "
        f"{ended} after {rounds}{truth}"
    )
    return text, HEAD


def _reward(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:g}"


def _spoken(turn: SpokenTurn, conversation: Conversation, max_chars: int | None) -> list[Line]:
    branch = f" #{turn.branch + 1}" if turn.branch else ""
    advantage = turn.mean("advantages")
    reward = _reward(conversation.reward if math.isnan(conversation.reward) else turn.reward)
    facts = [f"reward {reward}", *(f"{name} {value:g}" for name, value in _numbers(turn.reward_parts))]
    facts.append("no advantage" if advantage is None else f"advantage {advantage:+.3f}")
    if turn.finish_reason == "length":
        facts.append("cut: out of tokens")
    head, *text = _message(f"{turn.agent}{branch}, round {turn.round + 1}", turn.response, max_chars)
    style = "" if advantage is None else GOOD if advantage > 0 else BAD
    return [(f"{head[0]}  [{', '.join(facts)}]", style), *text]


def _observations(turns: Sequence[SpokenTurn], max_chars: int | None) -> list[Line]:
    """What the environment answered; a text that several agents got stands once."""
    heard: dict[str, dict[str, None]] = {}
    for turn in turns:
        if turn.observation is not None:
            heard.setdefault(turn.observation, {})[turn.agent] = None
    agents = {turn.agent for turn in turns}
    lines: list[Line] = []
    for text, hearers in heard.items():
        whom = "" if set(hearers) == agents else f" to {', '.join(hearers)}"
        lines += _message(f"environment{whom}", text, max_chars)
    return lines


def _message(head: str, text: str, max_chars: int | None) -> list[Line]:
    cut = text if max_chars is None or len(text) <= max_chars else text[:max_chars]
    lines: list[Line] = [(f"{head}:", DIM), *((f"{_INDENT}{line}", "") for line in cut.split("\n"))]
    if len(cut) < len(text):
        lines.append((f"{_INDENT}... ({len(text)} characters; --full shows all)", DIM))
    return lines


def _numbers(parts: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(name, value) for name, value in sorted(parts.items()) if isinstance(value, (int, float))]


def _one_line(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]} ..."
