"""Trace: the one object that is told what begins and ends; it writes trace.json and knows what is going on now.

trace.json holds Chrome's trace format as an array that stays open while the run goes on, which Perfetto accepts. It is
made of clocks, so no part of what a resumed run repeats byte for byte.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagrl.runtime.play_clock import PlayClock
from dagrl.runtime.storage import storage
from dagrl.trace_events import IN_STEP, TRACE_FILE, Kind, Span, Timed, line_of
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import Node

MAX_LEGS = 256
"""Of the conversation that ended last."""
RUN, ENGINES, ENVIRONMENTS, TEAM, FIRST_AGENT = 1, 2, 3, 4, 10
"""Numbers of the trace's processes: groups of tracks."""
_PROCESSES = {RUN: "run", ENGINES: "engine", ENVIRONMENTS: "environments", TEAM: "all agents"}

Place = tuple[int, str]
"""Process and name of a track."""
_STEPS: Place = (RUN, "steps")
_LAST: Place = (RUN, "last conversation")

Leg = tuple[str, float, float]
"""What a conversation did from when to when."""


@dataclass(slots=True)
class Lap:
    """How long something took; filled when it is over."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What the run is doing."""

    phase: str
    since: float
    """Seconds since 1970, as all times here."""
    nodes: Mapping[str, float]
    """Nodes at work, and environments as `node@env`, with the time since when."""
    changed: float
    """The last time that anything began or ended."""


class Trace:
    """Without a path nothing is written; times are taken all the same."""

    def __init__(
        self,
        path: Path | None = None,
        workflow: Workflow | None = None,
        *,
        num_full_steps: int = 0,
        wall: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        """`num_full_steps`: see `is_traced`. `workflow` gives the agents their tracks."""
        self._path = path if num_full_steps else None
        self._num_full_steps = num_full_steps
        self._wall = wall
        self._cpu = cpu
        self._epoch = time.time() - wall()
        self._play = PlayClock(wall, cpu)
        self._homes = {} if workflow is None else _homes(workflow)
        self._names = _PROCESSES | ({} if workflow is None else _agents(workflow))
        self._tracks: set[tuple[int, str]] = set()
        self._lines: list[str] = []
        self._step = 0
        self._phase: tuple[str, float] | None = None
        self._node: tuple[str, float] | None = None
        self._last: tuple[str, Sequence[Leg]] = ("", ())

    @property
    def timed(self) -> Timed:
        """For what goes on while trajectories are played."""
        return self._play.timed

    def conversation_ended(self, name: str, legs: Sequence[Leg]) -> None:
        """Of a phase the last one is kept: it is why the phase is not over sooner."""
        self._last = (name, legs)

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """The step after which `number` are done."""
        self._step = number
        start = self._wall()
        yield
        self._add(Kind.STEP, f"step {number}", (start, self._wall()), _STEPS, {})
        self._flush()

    @contextmanager
    def phase(self, name: str, *, is_played: bool = False) -> Iterator[Lap]:
        """A part of a step, also inside of another, or what is done between two; `is_played` where trajectories are."""
        lap, start = Lap(), self._wall()
        around = self._phase, self._node
        self._phase, self._node = (name, start), None
        self._last = ("", ())
        if is_played:
            self._play.begin()
        try:
            yield lap
        finally:
            self._phase, self._node = around
        end = self._wall()
        lap.seconds = end - start
        facts = self._add_play(start, end) if is_played else {}
        self._add(Kind.PHASE, name, (start, end), _STEPS, facts)

    @contextmanager
    def after_step(self, number: int, name: str, *, is_played: bool = False) -> Iterator[Lap]:
        """A phase between two steps, in no step's time; `number` steps are done."""
        self._step = number
        with self.phase(name, is_played=is_played) as lap:
            yield lap
        self._flush()

    @contextmanager
    def node(self, node: Node, after: Sequence[str]) -> Iterator[Lap]:
        """A learn node, which had to wait for `after`."""
        lap, start, cpu = Lap(), self._wall(), self._cpu()
        self._node = (node.node_id, start)
        try:
            yield lap
        finally:
            self._node = None
        end = self._wall()
        lap.seconds, lap.cpu_seconds = end - start, self._cpu() - cpu
        home = self._homes.get(node.node_id, TEAM)
        facts = {
            "kind": str(node.kind),
            "agent": self._names.get(home, ""),
            "after": list(after),
            "cpu_us": _us(lap.cpu_seconds),
        }
        self._add(Kind.NODE, node.node_id, (start, end), (home, node.node_id), facts)

    def doing(self) -> Doing | None:
        """What goes on now; None between phases. May be asked from another thread."""
        phase, node = self._phase, self._node
        if phase is None:
            return None
        running = self._play.running() if node is None else {node[0]: node[1]}
        changed = max(phase[1], *running.values(), self._play.changed) if running else phase[1]
        return Doing(
            phase=phase[0],
            since=self._epoch + phase[1],
            nodes={name: self._epoch + since for name, since in running.items()},
            changed=self._epoch + changed,
        )

    def sizes(self) -> dict[str, int]:
        """Bytes written so far, for `cut_back`."""
        return {} if self._path is None or not self._path.exists() else {TRACE_FILE: self._path.stat().st_size}

    def close(self) -> None:
        """Makes the array whole. What a run that failed was doing is told too."""
        if self._path is None:
            return
        self._flush()
        end = {"name": "end", "ph": "i", "s": "g", "ts": _us(self._epoch + self._wall()), "pid": RUN, "tid": 0}
        self._append([json.dumps(end, separators=(",", ":")) + "\n]\n"])
        self._path = None

    def _add_play(self, start: float, end: float) -> dict[str, Any]:
        """The spans of a phase that trajectories were played in; what went on at the same time."""
        tracks, seconds = self._play.end()
        for track in tracks:
            place = self._place_of(track.kind, track.name)
            calls = max(1, sum(one.calls for one in track.stretches))
            for one in track.stretches:
                cpu = {"cpu_us": _us(track.cpu * one.calls / calls)} if track.kind is Kind.ENGINE else {}
                facts = {"calls": one.calls, "busy_us": _us(one.busy), **cpu}
                self._add(track.kind, track.name, (one.start, one.end), place, facts)
        conversation, legs = self._last
        for leg, *when in critical_legs(legs, start, end):
            self._add(Kind.LAST, leg, (when[0], when[1]), _LAST, {"conversation": conversation})
        return {"together": {key: _us(spent) for key, spent in seconds.items()}}

    def _place_of(self, kind: Kind, name: str) -> Place:
        if kind is Kind.ENGINE:
            return ENGINES, name
        if kind is Kind.ENV:
            return ENVIRONMENTS, name
        return self._homes.get(name, TEAM), name if kind is Kind.SPEAK else f"{name}: hooks"

    def _add(self, kind: Kind, name: str, when: tuple[float, float], place: Place, facts: Mapping[str, Any]) -> None:
        is_coarse = kind is Kind.PHASE and name not in IN_STEP
        if self._path is None or not (is_coarse or is_traced(self._step, self._num_full_steps)):
            return
        self._name_track(*place)
        first, last = (_us(self._epoch + at) for at in when)
        span = Span(kind=kind, name=name, step=self._step, start_us=first, duration_us=last - first, facts=facts)
        self._lines.append(line_of(span, process=place[0], track=_number(*place)))

    def _name_track(self, process: int, track: str) -> None:
        if (process, track) in self._tracks:
            return
        if not any(known == process for known, _ in self._tracks):
            self._lines.append(_naming("process_name", process, 0, self._names.get(process, str(process))))
        self._tracks.add((process, track))
        self._lines.append(_naming("thread_name", process, _number(process, track), track))

    def _flush(self) -> None:
        if self._path is not None and self._lines:
            self._append(self._lines)
        self._lines = []

    def _append(self, lines: Sequence[str]) -> None:
        assert self._path is not None
        with storage(self._path), self._path.open("a", encoding="utf-8") as file:
            if file.tell() == 0:
                file.write("[\n")
            file.write("".join(lines))


def is_traced(step: int, num_full_steps: int) -> bool:
    """Whether a step is written: the first `num_full_steps` all, then as many steps again every second one, then twice
    as many every fourth one, and so on: of a run of any length some more than the first, spread over all of it."""
    assert num_full_steps > 0, "no step is traced"
    stride = 1
    while step > num_full_steps * stride:
        stride *= 2
    return step % stride == 0


def critical_legs(legs: Sequence[Leg], start: float, end: float) -> list[Leg]:
    """The legs that one after the other made a conversation end when it did, from its end backwards: of those that
    were over when a leg began, the one that was over last; what lies before the first is a wait for a place."""
    chain: list[Leg] = []
    limit = end
    for leg in sorted(legs, key=lambda one: one[2], reverse=True):
        if leg[2] <= limit and leg[2] > leg[1]:
            chain.append(leg)
            limit = leg[1]
    chain.reverse()
    if chain and chain[0][1] > start:
        chain.insert(0, ("waits for a place", start, chain[0][1]))
    if len(chain) > MAX_LEGS:
        rest = chain[MAX_LEGS - 1 :]
        chain[MAX_LEGS - 1 :] = [(f"{len(rest)} more", rest[0][1], rest[-1][2])]
    return chain


def cut_back(path: Path, size: int | None) -> None:
    """Makes trace.json as long as `Trace.sizes` said; None: it was not there.

    A file that is shorter, because the machine lost power or someone shortened it, keeps its whole lines: it holds
    clocks alone, and the run can go on without.
    """
    with storage(path):
        if size is None:
            path.unlink(missing_ok=True)
        elif path.exists():
            content = path.read_bytes()[:size]
            os.truncate(path, content.rfind(b"\n") + 1)


def _homes(workflow: Workflow) -> dict[str, int]:
    return {
        node.node_id: FIRST_AGENT + node.agent_group if len(node.groups) == 1 or node.kind.is_play else TEAM
        for node in workflow.nodes
    }


def _agents(workflow: Workflow) -> dict[int, str]:
    return {FIRST_AGENT + group.index: f"agent {group.name}" for group in workflow.groups}


def _naming(what: str, process: int, track: int, name: str) -> str:
    event = {"name": what, "ph": "M", "ts": 0, "pid": process, "tid": track, "args": {"name": name}}
    return json.dumps(event, separators=(",", ":")) + ",\n"


def _number(process: int, track: str) -> int:
    """A track's number comes from its name, so that a resumed run goes on in the same tracks."""
    return zlib.crc32(f"{process}/{track}".encode(errors="replace")) & 0x7FFFFFFF


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
