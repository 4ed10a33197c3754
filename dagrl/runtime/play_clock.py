"""PlayClock: who speaks, what computes, which environment is at work, and what of it at the same time.

A batch may have 100,000 turns; what is kept is a bounded number of spans per track and a sum per combination.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from dagrl.trace_events import PLAY_KINDS, Kind, together

MAX_SPANS = 64
"""Of one track in one phase; where there are more, the shortest pauses between them are drawn over."""
MIN_GAP_S = 1e-3
"""Shorter pauses are drawn over everywhere."""
_BITS = {kind: 1 << place for place, kind in enumerate(PLAY_KINDS)}


@dataclass(slots=True)
class Stretch:
    """Time in which a track was never idle but for the pauses that were drawn over."""

    start: float
    end: float
    busy: float
    calls: int


@dataclass(slots=True, eq=False)
class Track:
    """One rollout node, environment, lane of the engine or node's hooks."""

    kind: Kind
    name: str
    num_open: int = 0
    since: float = 0.0
    calls: int = 0
    """Begun since `since`."""
    cpu: float = 0.0
    """Seconds; of the engine alone, the others run beside each other."""
    stretches: list[Stretch] = field(default_factory=list)
    gap: float = MIN_GAP_S
    """Pauses up to this are drawn over."""

    def add(self, end: float) -> None:
        """It has been busy from `since` to `end`."""
        last = self.stretches[-1] if self.stretches else None
        if last is not None and self.since - last.end <= self.gap:
            last.end, last.busy, last.calls = end, last.busy + end - self.since, last.calls + self.calls
        else:
            self.stretches.append(Stretch(self.since, end, end - self.since, self.calls))
        self.calls = 0
        if len(self.stretches) > 2 * MAX_SPANS:
            self.coarsen()

    def coarsen(self) -> None:
        """Draws over ever longer pauses until at most `MAX_SPANS` stretches are left."""
        while len(self.stretches) > MAX_SPANS:
            self.gap *= 2
            joined = self.stretches[:1]
            for one in self.stretches[1:]:
                last = joined[-1]
                if one.start - last.end <= self.gap:
                    last.end, last.busy, last.calls = one.end, last.busy + one.busy, last.calls + one.calls
                else:
                    joined.append(one)
            self.stretches = joined


class _Entry:
    """Opens and closes a track; holds nothing, so that one serves all who are in it at once."""

    __slots__ = ("_clock", "_track")

    def __init__(self, clock: PlayClock, track: Track) -> None:
        self._clock = clock
        self._track = track

    def __enter__(self) -> None:
        self._clock.open(self._track)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._clock.close(self._track)


class PlayClock:
    """Told of every beginning and end; costs about a microsecond each."""

    def __init__(
        self, wall: Callable[[], float] = time.perf_counter, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._wall = wall
        self._cpu = cpu
        self._tracks: dict[tuple[Kind, str], Track] = {}
        self._entries: dict[tuple[Kind, str], _Entry] = {}
        self._num_open = dict.fromkeys(PLAY_KINDS, 0)
        self._state = 0
        self._seconds = [0.0] * (1 << len(PLAY_KINDS))
        """By what goes on at the same time, one bit a kind."""
        self._cpu_at = 0.0
        self.changed = wall()
        """The last beginning or end of anything."""

    def timed(self, kind: Kind, name: str) -> Any:
        """Entered while that goes on."""
        key = (kind, name)
        if key not in self._entries:
            self._tracks[key] = Track(kind, name)
            self._entries[key] = _Entry(self, self._tracks[key])
        return self._entries[key]

    def begin(self) -> None:
        """A phase begins: everything is counted anew."""
        self._seconds = [0.0] * len(self._seconds)
        self.changed = self._wall()
        for track in self._tracks.values():
            track.stretches, track.gap, track.calls, track.cpu = [], MIN_GAP_S, track.num_open, 0.0
            track.since = self.changed

    def end(self) -> tuple[list[Track], dict[str, float]]:
        """The tracks that something went on in since `begin`, and seconds by what went on at the same time."""
        self._account()
        for track in self._tracks.values():
            if track.num_open:
                track.add(self.changed)
                track.since = self.changed
            track.coarsen()
        seconds = {_key(state): spent for state, spent in enumerate(self._seconds) if spent > 0}
        return [track for track in self._tracks.values() if track.stretches], seconds

    def running(self) -> dict[str, float]:
        """What is open, with the time since when. May be asked from another thread."""
        shown = [track for track in list(self._tracks.values()) if track.kind in (Kind.SPEAK, Kind.ENV)]
        return {track.name: track.since for track in shown if track.num_open}

    def open(self, track: Track) -> None:
        self._account()
        if track.num_open == 0:
            track.since = self.changed
            if track.kind is Kind.ENGINE:
                self._cpu_at = self._cpu()
        track.num_open += 1
        track.calls += 1
        self._num_open[track.kind] += 1
        self._state |= _BITS[track.kind]

    def close(self, track: Track) -> None:
        self._account()
        track.num_open -= 1
        self._num_open[track.kind] -= 1
        if self._num_open[track.kind] == 0:
            self._state &= ~_BITS[track.kind]
        if track.num_open == 0:
            if track.kind is Kind.ENGINE:
                track.cpu += self._cpu() - self._cpu_at
            track.add(self.changed)

    def _account(self) -> None:
        now = self._wall()
        self._seconds[self._state] += now - self.changed
        self.changed = now


def _key(state: int) -> str:
    return together(frozenset(kind for kind, bit in _BITS.items() if state & bit))
