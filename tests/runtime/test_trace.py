"""trace.json under a clock of its own: what is written, thinned, cut back; what `doing` says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagrl.report.timeline import read_timeline
from dagrl.runtime.live_status import LiveStatus
from dagrl.runtime.run_folder import RunFolder, read_status
from dagrl.runtime.trace import MAX_LEGS, Trace, critical_legs, cut_back, is_traced
from dagrl.trace_events import LEARN, PLAY, TRACE_FILE, Kind
from tests.trace_event_format import faults
from tests.traced_runs import HandClock, eventually, traced_step


def test_an_open_file_is_read_and_a_closed_one_is_strict_json(tmp_path: Path) -> None:
    hand = HandClock()
    trace = Trace(tmp_path / TRACE_FILE, num_full_steps=10, wall=hand, cpu=hand.cpu_time)
    traced_step(trace, hand, 1)
    text = (tmp_path / TRACE_FILE).read_text()
    assert text.startswith("[\n") and text.endswith("},\n")
    (tmp_path / TRACE_FILE).write_text(text + '{"name":"half a li')
    assert list(read_timeline(tmp_path).steps) == [1]
    (tmp_path / TRACE_FILE).write_text(text)
    trace.close()
    events = json.loads((tmp_path / TRACE_FILE).read_text())
    assert [event["name"] for event in events if event.get("cat") == "step"] == ["step 1"]
    assert list(read_timeline(tmp_path).steps) == [1]


def test_the_file_is_as_the_format_asks(tmp_path: Path) -> None:
    hand = HandClock()
    trace = Trace(tmp_path / TRACE_FILE, num_full_steps=10, wall=hand, cpu=hand.cpu_time)
    for number in (1, 2):
        traced_step(trace, hand, number)
    trace.close()
    text = (tmp_path / TRACE_FILE).read_text()
    assert len({(event["pid"], event["tid"]) for event in json.loads(text) if event["ph"] == "X"}) > 5
    assert faults(text) == []


def span(**changed: object) -> dict[str, object]:
    return {"name": "a", "ph": "X", "ts": 10, "dur": 10, "pid": 1, "tid": 2} | changed


NAMES = [
    {"name": "process_name", "ph": "M", "ts": 0, "pid": 1, "tid": 0, "args": {"name": "run"}},
    {"name": "thread_name", "ph": "M", "ts": 0, "pid": 1, "tid": 2, "args": {"name": "steps"}},
]


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([span(), span(name="b", ts=15)], "'b' goes on after 'a'"),
        ([span(), span(name="b", ts=15, dur=2), span(name="c", ts=16, dur=2)], "'c' goes on after 'b'"),
        ([span(dur=-1)], "has no 'dur'"),
        ([span(ts=None)], "has no 'ts'"),
        ([span(tid=2**40)], "has no 32-bit 'tid'"),
        ([span(ph="?")], "unknown phase"),
        ([span(tid=3)], "thread 3 of process 1 has no name"),
        ([span(pid=4)], "process 4 has no name"),
        ([span(), NAMES[1] | {"args": {"name": "other"}}], "has the names"),
        ([span(ph="s", id=1)], "flow 1 begins and never ends"),
        ([span(ph="B")], "begins without an end"),
        ([span(ph="i", s="x")], "unknown scope"),
    ],
)
def test_what_the_format_forbids_is_found(events: list[dict[str, object]], fault: str) -> None:
    assert faults(json.dumps([*NAMES, span(ts=0, dur=5), span(ts=5, dur=5), span(ts=12, dur=8), span()])) == []
    assert any(fault in found for found in faults(json.dumps([*NAMES, *events])))


def test_a_run_that_is_cut_back_goes_on_without_steps_written_twice(tmp_path: Path) -> None:
    hand, path = HandClock(), tmp_path / TRACE_FILE
    killed = Trace(path, num_full_steps=10, wall=hand, cpu=hand.cpu_time)
    traced_step(killed, hand, 1)
    size = killed.sizes()[TRACE_FILE]
    traced_step(killed, hand, 2)
    killed.close()
    cut_back(path, size)
    resumed = Trace(path, num_full_steps=10, wall=hand, cpu=hand.cpu_time)
    traced_step(resumed, hand, 2)
    resumed.close()
    events = json.loads(path.read_text())
    assert [event["name"] for event in events if event.get("cat") == "step"] == ["step 1", "step 2"]
    named: dict[int, set[str]] = {}
    for event in events:
        if event["name"] == "thread_name":
            named.setdefault(event["tid"], set()).add(event["args"]["name"])
    assert all(len(names) == 1 for names in named.values())


@pytest.mark.parametrize(("size", "left"), [(None, None), (5, "[\n"), (10**9, '[\n{"a":1},\n')])
def test_cutting_back_keeps_whole_lines(tmp_path: Path, size: int | None, left: str | None) -> None:
    path = tmp_path / TRACE_FILE
    path.write_text('[\n{"a":1},\n{"torn')
    cut_back(path, size)
    assert (path.read_text() if path.exists() else None) == left


def test_no_file_where_no_step_is_to_be_traced(tmp_path: Path) -> None:
    hand = HandClock()
    trace = Trace(tmp_path / TRACE_FILE, num_full_steps=0, wall=hand, cpu=hand.cpu_time)
    traced_step(trace, hand, 1)
    assert trace.sizes() == {}
    trace.close()
    assert list(tmp_path.iterdir()) == []


def test_long_runs_are_traced_ever_more_thinly() -> None:
    traced = [step for step in range(1, 100_001) if is_traced(step, 100)]
    assert traced[:100] == list(range(1, 101))
    assert traced[100:153] == [*range(102, 201, 2), 204, 208, 212]
    assert len(traced) == 100 + 50 * 9 + (100_000 - 51_200) // 1024
    assert is_traced(0, 1)


def test_the_legs_that_made_a_conversation_end_when_it_did() -> None:
    """Two agents at once, the slower one counts; the first leg waited for a place."""
    legs = [("reset", 2.0, 3.0), ("fast", 3.0, 4.0), ("slow", 3.0, 7.0), ("judge", 7.0, 9.0)]
    assert [name for name, _, _ in critical_legs(legs, 0.0, 9.5)] == ["waits for a place", "reset", "slow", "judge"]
    assert critical_legs([], 0.0, 1.0) == []
    many = [("turn", float(at), at + 1.0) for at in range(1000)]
    chain = critical_legs(many, 0.0, 1000.0)
    assert (len(chain), chain[-1]) == (MAX_LEGS, (f"{1000 - MAX_LEGS + 1} more", MAX_LEGS - 1.0, 1000.0))


def test_doing_names_the_phase_and_the_nodes_at_work() -> None:
    hand = HandClock()
    trace = Trace(wall=hand, cpu=hand.cpu_time)
    assert trace.doing() is None
    with trace.step(1), trace.phase(PLAY, is_played=True):
        hand.now += 1
        with trace.timed(Kind.SPEAK, "solver"), trace.timed(Kind.HOOK, "solver"):
            hand.now += 1
            doing = trace.doing()
            assert doing is not None
            assert (doing.phase, list(doing.nodes)) == (PLAY, ["solver"])
            assert doing.nodes["solver"] - doing.since == pytest.approx(1.0, abs=1e-5)
            assert doing.changed == pytest.approx(doing.nodes["solver"], abs=1e-5)
    assert trace.doing() is None


def test_the_status_says_what_goes_on_while_it_does(tmp_path: Path) -> None:
    folder, hand = RunFolder(tmp_path), HandClock()
    trace = Trace(wall=hand, cpu=hand.cpu_time)
    folder.write_status("running", 3)
    with LiveStatus(folder, trace, interval_s=0.01):
        with trace.step(4), trace.phase(LEARN):
            eventually(lambda: "doing" in read_status(tmp_path))
            assert read_status(tmp_path)["doing"] == {
                "phase": "learn", "since": read_status(tmp_path)["doing"]["since"], "nodes": {}
            }  # fmt: skip
        folder.write_status("running", 4)
        assert read_status(tmp_path)["step"] == 4
    folder.write_status("done", 4)
    assert "doing" not in read_status(tmp_path)
