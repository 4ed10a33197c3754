"""Conversations come back from the log as they were played; only what is asked for is read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagrl.errors import DagrlError, StorageError
from dagrl.report.conversations import read_conversations, read_headlines
from dagrl.report.show import Choice, choose
from tests.run_builders import make_run, trajectory, write_trajectories


def _file(tmp_path: Path) -> Path:
    """Rewards 1, 0, 0, 1; the second of the two zeros has the lower advantage, the last one has no thinker."""
    played = [
        trajectory("t:0", 1.0, text="a"),
        trajectory("t:1", 0.0, text="b"),
        trajectory("t:2", 0.0, text="c"),
        trajectory("t:3", 1.0, text="d", speakers=(1,)),
    ]
    return write_trajectories(make_run(tmp_path / "runs"), 1, played, [0.5, -0.25, -1.0, 2.0])


def test_turns_stand_in_order_with_what_was_said_and_credited(tmp_path: Path) -> None:
    first, *_ = read_conversations(_file(tmp_path), columns=("advantages", "values"))
    assert (first.task_id, first.reward, first.ground_truth, first.data_source) == ("t:0", 1.0, "7", "sums")
    assert [(turn.agent, turn.response, turn.observation) for turn in first.turns] == [
        ("thinker", "a", "right"),
        ("writer", "a", "right"),
    ]
    assert first.turns[0].prompt == "to 0: [1, 2]"
    assert first.turns[1].reward_parts == {"format": 0.5}
    assert first.turns[0].tokens == {"advantages": [0.5, 0.5], "values": None}
    assert first.turns[0].mean("advantages") == 0.5
    assert first.turns[0].mean("values") is None


def test_only_the_trajectories_that_were_asked_for_are_read(tmp_path: Path) -> None:
    file = _file(tmp_path)
    assert [one.task_id for one in read_conversations(file, only={0, 2})] == ["t:0", "t:2"]
    assert read_conversations(file, only=set()) == []
    assert read_conversations(file, only={3})[0].turns[0].tokens == {}


def test_headlines_tell_who_spoke_and_the_reward(tmp_path: Path) -> None:
    found = [(one.index, one.task_id, one.reward, one.agents) for one in read_headlines(_file(tmp_path))]
    team = ("thinker", "writer")
    assert found == [(0, "t:0", 1.0, team), (1, "t:1", 0.0, team), (2, "t:2", 0.0, team), (3, "t:3", 1.0, ("writer",))]


@pytest.mark.parametrize(
    ("choice", "tasks"),
    [
        (Choice(worst=1), ["t:2"]),
        (Choice(worst=3), ["t:2", "t:1", "t:0"]),
        (Choice(best=1), ["t:3"]),
        (Choice(best=9), ["t:3", "t:0", "t:1", "t:2"]),
        (Choice(best=1, agent="thinker"), ["t:0"]),
        (Choice(task="t:1"), ["t:1"]),
        (Choice(), ["t:0", "t:1", "t:2"]),
    ],
)
def test_worst_and_best_go_by_reward_and_then_by_advantage(tmp_path: Path, choice: Choice, tasks: list[str]) -> None:
    chosen = choose(_file(tmp_path), choice)
    assert [one.task_id for one in chosen.conversations] == tasks
    assert (chosen.num_all, chosen.mean_reward) == (4, 0.5)


@pytest.mark.parametrize(
    ("choice", "told"),
    [(Choice(agent="writr"), "did you mean 'writer'"), (Choice(task="t:9"), "no task 't:9'")],
)
def test_an_unknown_agent_or_task_gets_the_nearest(tmp_path: Path, choice: Choice, told: str) -> None:
    with pytest.raises(DagrlError, match=told):
        choose(_file(tmp_path), choice)


def test_choices_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(DagrlError, match="exclude each other"):
        Choice(worst=1, best=1)
    with pytest.raises(DagrlError, match="from 1"):
        Choice(worst=0)


def test_a_step_without_trajectories_shows_nothing(tmp_path: Path) -> None:
    path = write_trajectories(make_run(tmp_path / "runs"), 1, [], [])
    for choice in (Choice(), Choice(worst=2), Choice(agent="thinker")):
        chosen = choose(path, choice)
        assert (chosen.conversations, chosen.num_all, chosen.mean_reward) == ((), 0, None)


def test_a_file_that_is_no_log_is_told(tmp_path: Path) -> None:
    broken, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    broken.write_bytes(b"PAR1 and no more")
    pq.write_table(pa.table({"trajectory": [1]}), other)
    faults = {broken: "not a readable parquet", other: "no column 'task_id'", tmp_path / "c": "not a readable parquet"}
    for path, told in faults.items():
        with pytest.raises(StorageError, match=told) as caught:
            read_conversations(path)
        assert caught.value.where == str(path)
