"""PlayClock under a clock of its own: what goes on together, joined spans, bounds."""

from __future__ import annotations

from dagrl.runtime.play_clock import MAX_SPANS, PlayClock
from dagrl.trace_events import Kind
from tests.traced_runs import HandClock


def made() -> tuple[HandClock, PlayClock]:
    hand = HandClock()
    clock = PlayClock(hand, hand.cpu_time)
    clock.begin()
    return hand, clock


def test_what_goes_on_at_the_same_time_is_summed_by_combination() -> None:
    hand, clock = made()
    hand.now += 1  # nothing for 1 s
    with clock.timed(Kind.SPEAK, "solver"):
        hand.now += 2  # asked, nothing computed
        with clock.timed(Kind.ENGINE, "agent solver"):
            hand.now += 4
        with clock.timed(Kind.ENV, "solver@env"):
            hand.now += 8
    with clock.timed(Kind.HOOK, "solver"):
        hand.now += 16
    tracks, seconds = clock.end()
    assert seconds == {"": 1.0, "speak": 2.0, "speak+engine": 4.0, "speak+env": 8.0, "hook": 16.0}
    assert {(track.kind, track.name): [one.busy for one in track.stretches] for track in tracks} == {
        (Kind.SPEAK, "solver"): [14.0],
        (Kind.ENGINE, "agent solver"): [4.0],
        (Kind.ENV, "solver@env"): [8.0],
        (Kind.HOOK, "solver"): [16.0],
    }
    assert [track.cpu for track in tracks if track.kind is Kind.ENGINE] == [2.0]  # half of the time


def test_calls_that_overlap_are_one_stretch_that_counts_them() -> None:
    hand, clock = made()
    one, two = clock.timed(Kind.SPEAK, "a"), clock.timed(Kind.SPEAK, "a")
    one.__enter__()
    hand.now += 1
    two.__enter__()
    hand.now += 1
    one.__exit__(None, None, None)
    assert clock.running() == {"a": 100.0}
    hand.now += 1
    two.__exit__(None, None, None)
    assert clock.running() == {}
    (track,), _ = clock.end()
    assert [(stretch.start, stretch.end, stretch.busy, stretch.calls) for stretch in track.stretches] == [
        (100.0, 103.0, 3.0, 2)
    ]


def test_100_000_turns_leave_a_bounded_number_of_spans_and_lose_no_time() -> None:
    hand, clock = made()
    timed = clock.timed(Kind.SPEAK, "a")
    for turn in range(100_000):
        with timed:
            hand.now += 0.25
        hand.now += 2.0 if turn % 1000 == 999 else 0.125
    (track,), seconds = clock.end()
    assert len(track.stretches) <= MAX_SPANS
    assert sum(one.busy for one in track.stretches) == 25_000.0 == seconds["speak"]
    assert sum(one.calls for one in track.stretches) == 100_000
    assert all(one.end < other.start for one, other in zip(track.stretches, track.stretches[1:]))


def test_a_new_phase_counts_anew_and_what_is_still_open_goes_on() -> None:
    hand, clock = made()
    timed = clock.timed(Kind.ENV, "e")
    timed.__enter__()
    hand.now += 1
    (before,), _ = clock.end()
    assert [one.busy for one in before.stretches] == [1.0]
    clock.begin()
    hand.now += 2
    timed.__exit__(None, None, None)
    (after,), seconds = clock.end()
    assert ([one.busy for one in after.stretches], seconds) == ([2.0], {"env": 2.0})
