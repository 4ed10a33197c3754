"""Traces made by hand: a clock that is moved, a step told to the recorder, a step written out span by span.

The step by hand, in seconds: play 0-10, learn 10-27, write 27-28.
Play: nothing 0-1, asked 1-3 (computed 1-2.5), environment 3-7 (a hook 5-6), asked and computed 7-9 (environment 8-9),
a hook 9-10. Learn: see NODES, one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from dagrl.runtime.trace import Trace
from dagrl.trace_events import LEARN, PLAY, TRACE_FILE, WRITE, Kind, Span, line_of
from dagrl.workflow.kinds import NodeKind
from tests.node_builders import node

TOGETHER = {"": 1, "speak": 0.5, "speak+engine": 2.5, "env": 3, "env+hook": 1, "speak+engine+env": 1, "hook": 1}
NODES = (
    ("reward", "all agents", 1, ()),
    ("old_0", "agent a", 2, ("reward",)),
    ("values_0", "agent a", 2, ("reward",)),
    ("old_1", "agent b", 3, ("reward",)),
    ("advantages", "all agents", 1, ("values_0",)),
    ("train_0", "agent a", 5, ("advantages", "old_0")),
    ("train_1", "agent b", 3, ("advantages", "old_1")),
)
"""Name, whose, seconds, after whom."""


class HandClock:
    """Time stands still but when it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def cpu_time(self) -> float:
        """Half of the time is spent computing."""
        return self.now / 2


def eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Returns as soon as the condition holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


def traced_step(trace: Trace, hand: HandClock, number: int) -> None:
    """Tells the recorder of a step with two overlapping calls, an environment and two learn nodes."""
    with trace.step(number):
        with trace.phase(PLAY, is_played=True):
            with trace.timed(Kind.SPEAK, "solver"), trace.timed(Kind.ENGINE, "agent solver"):
                hand.now += 2
                with trace.timed(Kind.SPEAK, "critic"):
                    hand.now += 1
            with trace.timed(Kind.ENV, "solver@env"), trace.timed(Kind.HOOK, "solver"):
                hand.now += 1
            trace.conversation_ended("train:0/0", [("solver", hand.now - 4, hand.now - 1)])
        with trace.phase(LEARN):
            for name in ("reward", "advantages"):
                with trace.node(node(NodeKind.REWARD), after=()):
                    hand.now += len(name)
        with trace.phase(WRITE):
            hand.now += 0.5


def write_by_hand(run: Path, *, number: int = 1, is_open: bool = False) -> None:
    """Writes the step by hand into the folder's trace.json."""
    spans = [_span(Kind.STEP, f"step {number}", 0, 28), _span(Kind.PHASE, WRITE, 27, 1)]
    spans.append(_span(Kind.PHASE, PLAY, 0, 10, together={key: int(1e6 * spent) for key, spent in TOGETHER.items()}))
    spans.append(_span(Kind.PHASE, LEARN, 10, 17))
    spans.append(_span(Kind.SPEAK, "solver", 1, 2, calls=4, busy_us=1_900_000))
    spans.append(_span(Kind.ENV, "solver@env", 3, 4, calls=2, busy_us=4_000_000))
    spans += [_span(Kind.LAST, *leg, conversation="train:3/1") for leg in (("solver", 1, 2), ("solver@env", 3, 4))]
    start = 10.0
    for name, agent, seconds, after in NODES:
        kind = "REWARD" if name == "reward" else "COMPUTE"
        facts = {"kind": kind, "agent": agent, "after": list(after), "cpu_us": seconds * 500_000}
        spans.append(_span(Kind.NODE, name, start, seconds, **facts))
        start += seconds
    spans.append(_span(Kind.PHASE, "evaluate", 29, 4, together={"speak+engine": 4_000_000}))
    spans.append(_span(Kind.ENGINE, "agent a", 29, 4, calls=1, busy_us=4_000_000, cpu_us=4_000_000))
    text = "[\n" + "".join(line_of(_of_step(span, number), process=1, track=1) for span in spans)
    (run / TRACE_FILE).write_text(text if is_open else text.rstrip(",\n") + "\n]\n")


def _span(kind: Kind, name: str, start: float, seconds: float, /, **facts: object) -> Span:
    first = 1_700_000_000_000_000 + int(1e6 * start)
    return Span(kind=kind, name=name, step=1, start_us=first, duration_us=int(1e6 * seconds), facts=facts)


def _of_step(span: Span, number: int) -> Span:
    return Span(kind=span.kind, name=span.name, step=number, start_us=span.start_us, duration_us=span.duration_us,
                facts=span.facts)  # fmt: skip
