"""trace.json from outside: read while it is being written, and what each step's spans come to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dagrl.errors import DagrlError, StorageError
from dagrl.report.critical_path import LearnWork
from dagrl.trace_events import EXTRA_PLAY, IN_STEP, PLAY, PLAY_KINDS, TRACE_FILE, Kind, Span, span_of

REWARD_KIND = "REWARD"
"""Kind of the learn nodes that score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Where the time of a step went, in seconds; the first seven make up the step."""

    engine: float
    """The engine computed responses, or, where it does not tell of its passes, had requests to answer."""
    environments: float
    """It did not, while environments were at work."""
    hooks: float
    """It did not, while hooks were at work and no environment."""
    handling: float
    """Played, but none of these: starting, batching, putting turns together."""
    rewards: float
    learning: float
    """The other learn nodes."""
    writing: float
    """And what lies between nodes and phases."""
    env_busy: float
    """Some environment was at work, whatever else went on."""
    env_waits: float
    """None was, while the engine computed."""

    @property
    def total(self) -> float:
        parts = (self.engine, self.environments, self.hooks, self.handling, self.rewards, self.learning, self.writing)
        return sum(parts)


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """All spans of one step."""

    number: int
    spans: tuple[Span, ...]

    def of(self, kind: Kind) -> list[Span]:
        """Inside the step, in order of their start; evaluations come after it."""
        inside = [span for span in self.spans if span.kind is kind and self._is_inside(span)]
        return sorted(inside, key=lambda span: (span.start_us, span.end_us))

    @cached_property
    def whole(self) -> Span:
        return next(span for span in self.spans if span.kind is Kind.STEP)

    @property
    def seconds(self) -> float:
        return self.whole.duration_us / 1e6

    def phase_seconds(self, name: str) -> float:
        return sum(span.duration_us for span in self.of(Kind.PHASE) if span.name == name) / 1e6

    @property
    def learn_work(self) -> list[LearnWork]:
        """The learn nodes in the order in which they ran."""
        return [
            LearnWork(
                name=span.name,
                agent=str(span.facts["agent"]),
                seconds=span.duration_us / 1e6,
                cpu_seconds=span.facts["cpu_us"] / 1e6,
                after=tuple(span.facts["after"]),
            )
            for span in self.of(Kind.NODE)
        ]

    def shares(self) -> Shares:
        states = _states(span for span in self.of(Kind.PHASE) if span.name in (PLAY, EXTRA_PLAY))
        computes = Kind.ENGINE if any(Kind.ENGINE in state for state in states) else Kind.SPEAK
        engine = sum(spent for state, spent in states.items() if computes in state)
        environments = _spent(states, Kind.ENV, but=(computes,))
        hooks = _spent(states, Kind.HOOK, but=(computes, Kind.ENV))
        rewards = sum(span.duration_us for span in self.of(Kind.NODE) if span.facts["kind"] == REWARD_KIND) / 1e6
        extra = self.phase_seconds(EXTRA_PLAY)
        learning = sum(span.duration_us for span in self.of(Kind.NODE)) / 1e6 - rewards - extra
        play = self.phase_seconds(PLAY) + extra
        return Shares(
            engine=engine,
            environments=environments,
            hooks=hooks,
            handling=max(0.0, play - engine - environments - hooks),
            rewards=rewards,
            learning=learning,
            writing=max(0.0, self.seconds - play - rewards - learning),
            env_busy=_spent(states, Kind.ENV),
            env_waits=_spent(states, computes, but=(Kind.ENV,)),
        )

    def _is_inside(self, span: Span) -> bool:
        return self.whole.start_us <= span.start_us and span.end_us <= self.whole.end_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What a trace.json holds."""

    path: Path
    steps: Mapping[int, StepTrace]
    """Those that are over and were traced, in order."""
    between: tuple[Span, ...]
    """Evaluations and checkpoints."""

    def step(self, number: int) -> StepTrace:
        """Raises DagrlError, naming the steps that there are, where it was not traced."""
        if number in self.steps:
            return self.steps[number]
        there = f"there are {len(self.steps)}, the last is {max(self.steps)}" if self.steps else "there are none yet"
        raise DagrlError(
            f"step {number} is not in the trace; of the run's steps {there}",
            where=str(self.path),
            how="config.trainer.trace_steps says how many are traced",
        )


def read_timeline(run: Path) -> Timeline:
    """Raises DagrlError where the run has no trace, StorageError where the file is broken."""
    path = run / TRACE_FILE
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise DagrlError(
            "there is no trace.json", where=str(run), how="config.trainer.trace_steps must be above 0"
        ) from None
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    spans = list(_spans(text, path))
    by_step: dict[int, list[Span]] = {}
    for span in spans:
        by_step.setdefault(span.step, []).append(span)
    steps = {
        number: StepTrace(number=number, spans=tuple(own))
        for number, own in sorted(by_step.items())
        if any(span.kind is Kind.STEP for span in own)
    }
    between = [span for span in spans if span.kind is Kind.PHASE and span.name not in IN_STEP]
    return Timeline(path=path, steps=steps, between=tuple(between))


def _spans(text: str, path: Path) -> Iterable[Span]:
    """Of all lines that are whole: what follows the last line break is still being written."""
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        content = line.removesuffix(",")
        if content in ("[", "]"):
            continue
        try:
            span = span_of(json.loads(content))
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"is not an event of a trace: {error!r}", where=f"{path}:{number}") from error
        if span is not None:
            yield span


def _states(phases: Iterable[Span]) -> dict[frozenset[str], float]:
    """Seconds by the kinds that went on at the same time."""
    states: dict[frozenset[str], float] = {}
    for span in phases:
        for key, spent in span.facts["together"].items():
            state = frozenset(key.split("+")) & set(PLAY_KINDS)
            states[state] = states.get(state, 0.0) + spent / 1e6
    return states


def _spent(states: Mapping[frozenset[str], float], kind: Kind, *, but: Sequence[Kind] = ()) -> float:
    return sum(spent for state, spent in states.items() if kind in state and not state & set(but))


def means(shares: Sequence[Shares]) -> Shares:
    """Of at least one step."""
    names = Shares.__dataclass_fields__
    return Shares(**{name: sum(getattr(one, name) for one in shares) / len(shares) for name in names})


def total_of(spans: Sequence[Span], name: str) -> tuple[int, float]:
    """How many phases of this name there are, and their seconds."""
    found = [span for span in spans if span.name == name]
    return len(found), sum(span.duration_us for span in found) / 1e6
