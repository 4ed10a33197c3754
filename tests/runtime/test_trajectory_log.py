"""Every turn comes back from the parquet file as it was played and learnt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from dagrl.data.trajectory_files import read_trajectories
from dagrl.errors import StorageError
from dagrl.experience import Experience, collate
from dagrl.runtime.trajectory_log import TrajectoryLog
from dagrl.types import FinishReason, Observation, StopReason, Task, Trajectory, Turn
from dagrl.workflow.kinds import Column


def _turn(group: int, round: int, response: tuple[int, ...], text: str) -> Turn:
    return Turn(
        node_id=f"node_{group}",
        agent_group=group,
        round=round,
        prompt_ids=(1, 2, 3),
        response_ids=response,
        rollout_logprobs=tuple(-0.5 for _ in response),
        temperature=0.7,
        finish_reason=FinishReason.STOP,
        policy_version=4,
        response_text=text,
        reward=1.0 if group == 1 else 0.0,
        reward_parts={"length": 2.0},
        seconds=0.25,
    )


def _experience() -> Experience:
    task = Task(task_id="train:7", prompt="p", ground_truth={"x": 1}, data_source="sums")
    turns = [
        _turn(0, 0, (4, 5), "plan"),
        _turn(1, 0, (), ""),
        _turn(0, 1, (6,), "lone \ud800"),
        _turn(1, 1, (8, 9), "42"),
    ]
    seen = Observation(
        round=0, node_id="env", texts={0: "wrong"}, heard={"node_0": "wrong"}, rewards={}, is_team_reward=True,
        terminated=False, truncated=False,
    )
    trajectory = Trajectory(task=task, sample=2, step=40, turns=turns, observations=[seen], reward=1.0, num_rounds=2)
    trajectory.stop_reason = StopReason.TERMINATED
    experience = collate([trajectory])
    own = experience.turns_of([1])
    experience.write(Column.ADVANTAGES, own, torch.tensor([0.25, -0.75]))
    return experience


def _decode(group: int, ids: Sequence[int]) -> str:
    return f"{group}:{list(ids)}"


def _log(folder: Path) -> TrajectoryLog:
    return TrajectoryLog(folder, agent_names=("reasoner", "actor"), decode=_decode)


def test_a_row_per_turn_holds_what_was_played(tmp_path: Path) -> None:
    path = _log(tmp_path).write_step(40, _experience())
    assert path.name == "step_000040.parquet"
    rows = read_trajectories(path)
    assert [row["response_ids"] for row in rows] == [[4, 5], [], [6], [8, 9]]
    last = rows[3]
    expected = {"step": 40, "task_id": "train:7", "sample": 2, "round": 1, "position": 3, "node": "node_1",
                "agent_group": 1, "agent": "actor", "branch": 0, "prompt_ids": [1, 2, 3], "prompt": "1:[1, 2, 3]",
                "response": "42", "stop_reason": "terminated", "finish_reason": "stop", "ground_truth": '{"x": 1}',
                "data_source": "sums", "seconds": 0.25, "policy_version": 4, "reward": 1.0,
                "reward_parts": '{"length": 2.0}', "num_rounds": 2, "trajectory_reward": 1.0}  # fmt: skip
    assert {name: last[name] for name in expected} == expected
    assert last["rollout_logprobs"] == [-0.5, -0.5]
    assert [row["observation"] for row in rows] == ["wrong", None, None, None]
    assert rows[2]["response"] == "lone ?"


def test_a_column_is_null_for_the_turns_it_was_not_written_for(tmp_path: Path) -> None:
    rows = read_trajectories(_log(tmp_path).write_step(0, _experience()))
    assert [row["advantages"] for row in rows] == [None, None, None, [0.25, -0.75]]
    assert [row["ref_logprobs"] for row in rows] == [None] * 4
    assert [row["rollout_logprobs"] for row in rows] == [[-0.5, -0.5], [], [-0.5], [-0.5, -0.5]]


def test_evaluations_have_files_of_their_own(tmp_path: Path) -> None:
    log = _log(tmp_path)
    names = [log.write_evaluation(5, _experience()).name, log.write_evaluation(5, _experience(), "actor").name]
    assert names == ["eval_000005.parquet", "eval_000005_without_actor.parquet"]
    clocks = [name.replace(".parquet", ".timings.parquet") for name in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, *clocks])


def test_the_file_of_a_step_repeats_byte_for_byte_however_long_its_turns_took(tmp_path: Path) -> None:
    slow = _experience()
    for trajectory in slow.trajectories:
        trajectory.seconds += 1.0
        for turn in trajectory.turns:
            turn.seconds += 1.0
    paths = [_log(tmp_path / name).write_step(1, one) for name, one in (("a", _experience()), ("b", slow))]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    seconds = [read_trajectories(path)[0]["trajectory_seconds"] for path in paths]
    assert seconds[1] == seconds[0] + 1.0


def test_a_step_without_trajectories_is_an_empty_file(tmp_path: Path) -> None:
    assert read_trajectories(_log(tmp_path).write_step(0, collate([]))) == []


def test_a_broken_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "step_000000.parquet").write_bytes(b"PAR1")
    with pytest.raises(StorageError, match="not a readable parquet"):
        read_trajectories(tmp_path / "step_000000.parquet")
