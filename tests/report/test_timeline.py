"""A step's trace written by hand: critical path, idle share and gains as worked out on paper (see traced_runs)."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagrl.errors import DagrlError, StorageError
from dagrl.report.critical_path import LearnWork, critical_path, gain_of_agents_in_parallel
from dagrl.report.timeline import means, read_timeline
from dagrl.report.timeline_text import mean_work, run_lines, step_lines
from dagrl.trace_events import TRACE_FILE, Kind
from tests.traced_runs import write_by_hand


def test_the_shares_of_a_step_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    write_by_hand(tmp_path)
    shares = read_timeline(tmp_path).step(1).shares()
    assert (shares.engine, shares.environments, shares.hooks, shares.handling) == (3.5, 4.0, 1.0, 1.5)
    assert (shares.rewards, shares.learning, shares.writing) == (1.0, 16.0, 1.0)
    assert (shares.env_busy, shares.env_waits) == (5.0, 2.5)
    assert shares.total == 28.0 == read_timeline(tmp_path).step(1).seconds


def test_an_engine_that_tells_of_no_passes_is_busy_while_it_is_asked(tmp_path: Path) -> None:
    write_by_hand(tmp_path)
    file = tmp_path / TRACE_FILE
    file.write_text(file.read_text().replace("speak+engine", "speak"))
    shares = read_timeline(tmp_path).step(1).shares()
    # Both entries `speak` of the JSON object are one: the later, 2.5 s; and 1 s of `speak+env`.
    assert (shares.engine, shares.env_waits) == (3.5, 2.5)


def test_the_critical_path_and_the_gain_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    """reward 0-1; a: old_0 1-3, values_0 3-5, train_0 6-11; b: old_1 1-4, train_1 6-9; advantages 5-6."""
    write_by_hand(tmp_path)
    work = read_timeline(tmp_path).step(1).learn_work
    path = critical_path(work)
    assert [one.name for one in path] == ["reward", "values_0", "advantages", "train_0"]
    assert sum(one.seconds for one in path) == 9.0
    gain = gain_of_agents_in_parallel(work, num_cpus=2)
    assert (gain.sequential, gain.by_agent, gain.least, gain.seconds) == (17.0, 11.0, 4.25, 6.0)


def test_cores_that_are_all_in_use_leave_nothing_to_gain() -> None:
    def work(name: str, agent: str) -> LearnWork:
        return LearnWork(name=name, agent=agent, seconds=3.0, cpu_seconds=6.0, after=())

    gain = gain_of_agents_in_parallel([work("x", "a"), work("y", "b")], num_cpus=2)
    assert (gain.by_agent, gain.least, gain.seconds) == (3.0, 6.0, 0.0)
    assert critical_path([]) == []
    assert gain_of_agents_in_parallel([], 2).seconds == 0.0


def test_what_comes_after_the_step_is_not_in_it(tmp_path: Path) -> None:
    write_by_hand(tmp_path, is_open=True)
    timeline = read_timeline(tmp_path)
    assert timeline.step(1).of(Kind.ENGINE) == []
    assert [span.name for span in timeline.between] == ["evaluate"]


def test_nodes_that_rest_in_some_steps_are_put_in_order_and_counted_as_nothing_there(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    write_by_hand(one)
    write_by_hand(two, number=2)
    lines = (one / TRACE_FILE).read_text().splitlines()
    left_out = [line for line in lines if '"name":"advantages"' not in line and '"name":"values_0"' not in line]
    (one / TRACE_FILE).write_text("\n".join(left_out) + "\n")
    steps = [read_timeline(one).step(1), read_timeline(two).step(2)]
    work = {place.name: (number, place.seconds) for number, place in enumerate(mean_work(steps))}
    assert (work["values_0"][1], work["advantages"][1], work["train_0"][1]) == (1.0, 0.5, 5.0)
    assert work["values_0"][0] < work["advantages"][0] < work["train_0"][0]
    assert means([step.shares() for step in steps]).learning == 14.5


def test_the_text_of_a_step_and_of_a_run(tmp_path: Path) -> None:
    write_by_hand(tmp_path)
    timeline = read_timeline(tmp_path)
    step = "\n".join(text for text, _ in step_lines(timeline.step(1), 2))
    assert "step 1: 28.00 s (play 10.00 s, learn 17.00 s, write 1.00 s)" in step
    assert "conversation train:3/1 ended last: solver@env 4.00 s, solver 2.00 s" in step
    assert "9.00 s of 17.00 s: reward 1.00 s → values_0 2.00 s → advantages 1.00 s → train_0 5.00 s" in step
    assert "11.00 s of learning; a step at most 21.4% shorter" in step
    train = next(line for line in step.splitlines() if line.startswith("train_1"))
    bar = train[train.index("█") :]
    assert bar == "█" * 5  # 24-27 of 28 s in 40 cells: 34.3 to 38.6
    run = "\n".join(text for text, _ in run_lines(timeline, 2))
    assert "1 evaluations: 4.00 s in all" in run
    assert "the engine waits for environments longer than it computes" in run


@pytest.mark.parametrize("content", ["[\n{]\n", '[\n{"ph":"X"},\n', '[\n{"ph":"X","cat":"?","name":"","args":{}},\n'])
def test_a_broken_line_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / TRACE_FILE).write_text(content)
    with pytest.raises(StorageError, match=r"trace\.json:2"):
        read_timeline(tmp_path)


def test_steps_that_were_not_traced_are_named(tmp_path: Path) -> None:
    write_by_hand(tmp_path)
    with pytest.raises(DagrlError, match="step 9 is not in the trace; of the run's steps there are 1, the last is 1"):
        read_timeline(tmp_path).step(9)
