"""Images of a trajectory through a checkpoint, the trajectory log and back; what drops or swaps them is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dagrl.errors import BreachError
from dagrl.experience import collate
from dagrl.images import read_image
from dagrl.runtime.logged_step import read_step
from dagrl.runtime.state_file import load_state, save_state
from dagrl.runtime.token_check import TokenCheck
from dagrl.runtime.trajectory_log import TrajectoryLog
from dagrl.runtime.trajectory_state import trajectory_of_state, trajectory_state
from dagrl.types import FinishReason, Sampled, Task, Trajectory, Turn

ONE, OTHER = (read_image(np.full((4, 4, 3), shade, dtype=np.uint8)) for shade in (1, 2))
TASK = Task(task_id="train:0", prompt="p")


def turn(*images, round=0):
    sampled = Sampled(agent_group=0, prompt_ids=(1, 2), response_ids=(3,), logprobs=(-0.5,), images=images)
    return Turn(
        node_id="viewer", agent_group=0, round=round, prompt_ids=(1, 2), images=images, response_ids=(3,),
        rollout_logprobs=(-0.5,), temperature=1.0, finish_reason=FinishReason.STOP, policy_version=0,
        response_text="r", sampled=sampled,
    )  # fmt: skip


@pytest.fixture
def trajectory():
    turns = [turn(ONE), turn(ONE, OTHER, round=1), turn(round=2)]
    return Trajectory(
        task=TASK, sample=0, step=0, turns=turns, images={image.handle: image for image in (ONE, OTHER)}, num_rounds=3
    )


def test_a_checkpoint_gives_back_the_images(trajectory, tmp_path: Path):
    save_state(tmp_path, {"waiting": [trajectory_state(trajectory)]})
    (state,) = load_state(tmp_path)["waiting"]
    found = trajectory_of_state(state, {"train:0": TASK})
    assert found == trajectory
    assert [one.sampled for one in found.turns] == [one.sampled for one in trajectory.turns]
    assert found.turns[1].images[1].data == OTHER.data


def test_the_log_keeps_each_image_once_and_gives_it_back(trajectory, tmp_path: Path):
    log = TrajectoryLog(tmp_path, agent_names=["viewer"], decode=lambda group, ids: "")
    path = log.write_step(1, collate([trajectory, replace(trajectory, sample=1)]))
    rows = pq.read_table(path)["images"].to_pylist()
    assert [image["data"] for row in rows for image in row] == [ONE.data, None, OTHER.data, None, None, None]
    found = read_step(path, 0, [TASK]).trajectories
    assert [one.images for own in found for one in own.turns] == [(ONE,), (ONE, OTHER), ()] * 2
    assert found[1].turns[0].images[0].data == ONE.data


def test_a_step_without_images_has_no_such_column(tmp_path: Path):
    log = TrajectoryLog(tmp_path, agent_names=["viewer"], decode=lambda group, ids: "")
    plain = Trajectory(task=TASK, sample=0, step=0, turns=[turn()], num_rounds=1)
    assert "images" not in pq.read_schema(log.write_step(1, collate([plain]))).names


@pytest.mark.parametrize("images", [(OTHER,), (), (ONE, ONE)])
def test_other_images_than_those_shown_are_never_trained_on(trajectory, images):
    trajectory.turns[0].images = images
    check = TokenCheck(["viewer"], ["float32"], lambda group, ids: "", stops=True)
    with pytest.raises(BreachError, match="the images that would be trained on are not those shown"):
        check.begin(collate([trajectory]), 0)
