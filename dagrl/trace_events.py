"""The events of trace.json, which a run writes and `dagrl trace` reads: Chrome's trace format, one event a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

TRACE_FILE = "trace.json"


class Kind(StrEnum):
    """What a span of time is."""

    STEP = "step"
    """One step, from its first task to its last line in the logs."""
    PHASE = "phase"
    """Play, learn, write; extra play inside of learn; evaluate and checkpoint between steps."""
    NODE = "node"
    """A learn node at work."""
    SPEAK = "speak"
    """A rollout node waits for at least one response."""
    ENGINE = "engine"
    """The engine computes, as far as it tells of its passes."""
    ENV = "env"
    """At least one call of an environment is going on."""
    HOOK = "hook"
    """At least one hook or `when` is going on."""
    LAST = "last"
    """A stretch of the conversation that ended last: its phase lasts so long because of these."""


PLAY_KINDS = (Kind.SPEAK, Kind.ENGINE, Kind.ENV, Kind.HOOK)
"""What can go on at the same time while trajectories are played."""
PLAY, EXTRA_PLAY, LEARN, WRITE, EVALUATE, CHECKPOINT = "play", "extra play", "learn", "write", "evaluate", "checkpoint"
"""The phases."""
IN_STEP = (PLAY, EXTRA_PLAY, LEARN, WRITE)
"""Those of a step."""

Timed = Callable[[Kind, str], AbstractContextManager[None]]
"""(kind, name of a node or unit) -> entered while that goes on; what it gives may be entered many times at once."""


def untimed(kind: Kind, name: str) -> AbstractContextManager[None]:
    """Where nobody wants to know."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time in which one thing went on."""

    kind: Kind
    name: str
    step: int
    """Steps done when the step that it belongs to is over; 0 before the first."""
    start_us: int
    """Microseconds since 1970."""
    duration_us: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of a node: `kind`, `agent`, `after`, `cpu_us`; of what is played: `calls`, `busy_us` (less than the duration
    where short pauses were drawn over), `cpu_us` of the engine; of play and evaluate: `together`, microseconds by what
    went on at the same time, such as `speak+env`."""

    @property
    def end_us(self) -> int:
        return self.start_us + self.duration_us


def line_of(span: Span, *, process: int, track: int) -> str:
    """The span as a line of trace.json, with its line break."""
    event = {
        "name": span.name,
        "cat": str(span.kind),
        "ph": "X",
        "ts": span.start_us,
        "dur": span.duration_us,
        "pid": process,
        "tid": track,
        "args": {"step": span.step, **span.facts},
    }
    return json.dumps(event, separators=(",", ":")) + ",\n"


def span_of(event: Mapping[str, Any]) -> Span | None:
    """The span of an event; None for events that only name tracks. Raises KeyError and the like on foreign ones."""
    if event["ph"] != "X":
        return None
    facts = dict(event["args"])
    return Span(
        kind=Kind(event["cat"]),
        name=str(event["name"]),
        step=int(facts.pop("step")),
        start_us=int(event["ts"]),
        duration_us=int(event["dur"]),
        facts=facts,
    )


def together(kinds: frozenset[Kind]) -> str:
    """The key of what goes on at the same time; empty for nothing."""
    return "+".join(kind for kind in PLAY_KINDS if kind in kinds)
