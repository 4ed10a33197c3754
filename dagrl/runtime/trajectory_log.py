"""Every turn of a step as a row of a parquet file. The door to pyarrow of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from dagrl.data.trajectory_files import clocks_of
from dagrl.experience import Experience, cumulative, ranges
from dagrl.images import shown
from dagrl.runtime.storage import make_folder, replacing
from dagrl.types import Image, Trajectory, Turn
from dagrl.workflow.kinds import Column

Decode = Callable[[int, Sequence[int]], str]
"""(agent group, token ids) -> text."""

_TEXT_COLUMNS = ("task_id", "node", "agent", "prompt", "response", "observation", "stop_reason", "finish_reason",
                 "ground_truth", "data_source", "observations")  # fmt: skip
"""Columns whose values repeat; the others are not worth a dictionary."""


_IMAGES = pa.list_(pa.struct([("sha256", pa.string()), ("data", pa.binary())]))


class TrajectoryLog:
    """Writes `step_000040.parquet` and `eval_000040.parquet` into `folder`.

    A row is one turn, in time order; lists hold a value per response token and are null where no node wrote that
    column for the turn (`rollout_logprobs`, `old_logprobs`, `ref_logprobs`, `values`, `rewards`, `advantages`,
    `returns`). `ground_truth` and `reward_parts` are JSON. `issued_in`: the step that asked for the sample, an earlier
    one where it was carried over. `observations` is all that the environments answered to a round, as JSON, at its last
    turn. `images`, which is there only if images were shown: those of the turn's prompt, by the hash that marks in
    `observations` name them by; the bytes stand once in a file. How long turns took stands in
    `step_000040.timings.parquet`.
    """

    def __init__(self, folder: Path, *, agent_names: Sequence[str], decode: Decode) -> None:
        """`agent_names` by agent group; `decode` is used for prompts."""
        self._folder = make_folder(folder)
        self._agent_names = tuple(agent_names)
        self._decode = decode

    def write_step(self, step: int, experience: Experience) -> Path:
        """The trajectories that step `step` trained on."""
        return self._write(f"step_{step:06d}.parquet", step, experience)

    def write_evaluation(self, step: int, experience: Experience, without: str | None = None, of: str = "") -> Path:
        """Held-out trajectories after `step` steps; `without` names the node whose text was left out, `of` the set
        where it is not the one that the run goes by: `eval_000040@aime_without_scout.parquet`."""
        suffix = (f"@{of}" if of else "") + ("" if without is None else f"_without_{without}")
        return self._write(f"eval_{step:06d}{suffix}.parquet", step, experience)

    def _write(self, name: str, step: int, experience: Experience) -> Path:
        path = self._folder / name
        table = _table(step, experience, self._agent_names, self._decode)
        for file, content in ((clocks_of(path), _clocks(experience)), (path, table)):
            with replacing(file) as temp:
                pq.write_table(content, temp, compression="zstd", use_dictionary=list(_TEXT_COLUMNS))
        return path


def _clocks(experience: Experience) -> pa.Table:
    owned = [(trajectory, turn) for trajectory in experience.trajectories for turn in trajectory.turns]
    return pa.table(
        {
            "seconds": pa.array([turn.seconds for _, turn in owned], pa.float64()),
            "trajectory_seconds": pa.array([trajectory.seconds for trajectory, _ in owned], pa.float64()),
        }
    )


def _table(step: int, experience: Experience, agent_names: Sequence[str], decode: Decode) -> pa.Table:
    turns = [turn for trajectory in experience.trajectories for turn in trajectory.turns]
    owners = [trajectory for trajectory in experience.trajectories for _ in trajectory.turns]
    sequences, table = experience.sequences, experience.turns
    responses = sequences.offsets[:-1] + sequences.prompt_lens
    columns: dict[str, pa.Array] = {
        "step": pa.array([step] * len(turns), pa.int64()),
        "trajectory": _ints(table.trajectory),
        **_of_trajectories(owners),
        "round": _ints(table.round),
        "position": _ints(table.position),
        "node": _texts(experience.node_ids),
        "agent_group": _ints(table.agent_group),
        "agent": _texts([agent_names[turn.agent_group] for turn in turns]),
        "branch": _ints(table.branch),
        "prompt_ids": _ids(sequences.input_ids, sequences.offsets[:-1], sequences.prompt_lens),
        "response_ids": _ids(sequences.input_ids, responses, sequences.response_lens),
        "prompt": _texts([decode(turn.agent_group, turn.prompt_ids) for turn in turns]),
        "response": _texts([turn.response_text for turn in turns]),
        "observation": _texts([_observation(owner, turn) for owner, turn in zip(owners, turns, strict=True)]),
        "observations": _texts([told for trajectory in experience.trajectories for told in _answers(trajectory)]),
        **{str(column): _column(experience, column) for column in Column},
        "reward": pa.array([turn.reward for turn in turns], pa.float32()),
        "reward_parts": _texts([json.dumps(turn.reward_parts) for turn in turns]),
        "finish_reason": _texts([turn.finish_reason for turn in turns]),
        "temperature": pa.array([turn.temperature for turn in turns], pa.float32()),
        "policy_version": _ints(table.policy_version),
        "is_trained": pa.array(table.is_trained.numpy()),
        "last_value": pa.array(table.last_value.numpy()),
    }
    if sequences.images is not None:
        columns["images"] = _images(sequences.images)
    return pa.table(columns)


def _of_trajectories(owners: Sequence[Trajectory]) -> dict[str, pa.Array]:
    """What is the same for all turns of a trajectory; `owners` has an entry per turn."""
    return {
        "task_id": _texts([owner.task.task_id for owner in owners]),
        "sample": pa.array([owner.sample for owner in owners], pa.int64()),
        "issued_in": pa.array([owner.step + 1 for owner in owners], pa.int64()),
        "data_source": _texts([owner.task.data_source for owner in owners]),
        "ground_truth": _texts([json.dumps(owner.task.ground_truth, default=str) for owner in owners]),
        "stop_reason": _texts([owner.stop_reason for owner in owners]),
        "num_rounds": pa.array([owner.num_rounds for owner in owners], pa.int64()),
        "trajectory_reward": pa.array([owner.reward for owner in owners], pa.float32()),
    }


def _observation(owner: Trajectory, turn: Turn) -> str | None:
    """What the environment told the turn's agent after its round; None where it said nothing."""
    said = [one.heard[turn.node_id] for one in owner.observations
            if one.round == turn.round and turn.node_id in one.heard]  # fmt: skip
    return shown("\n".join(said)) if said else None


def _answers(trajectory: Trajectory) -> list[str | None]:
    """For each turn all answers to its round where it is the round's last, so that a replay has them; else None."""
    told: dict[int, list[dict[str, Any]]] = {}
    for one in trajectory.observations:
        told.setdefault(one.round, []).append({**asdict(one), "seconds": 0.0})  # clocks stand in a file of their own
    last_of_round = {turn.round: at for at, turn in enumerate(trajectory.turns)}
    return [
        json.dumps(told[turn.round]) if turn.round in told and last_of_round[turn.round] == at else None
        for at, turn in enumerate(trajectory.turns)
    ]


def _images(of_turns: Sequence[Sequence[Image]]) -> pa.Array:
    """What each turn's prompt shows, in order; the bytes of an image stand where the file names it first."""
    told: set[str] = set()
    rows: list[list[dict[str, Any]]] = []
    for images in of_turns:
        rows.append([])
        for one in images:
            rows[-1].append({"sha256": one.digest, "data": None if one.digest in told else one.data})
            told.add(one.digest)
    return pa.array(rows, _IMAGES)


def _column(experience: Experience, column: Column) -> pa.Array:
    """list<float32> per turn; null for turns that `column` was not written for."""
    num_turns = len(experience.turns)
    if column not in experience.columns:
        return pa.nulls(num_turns, pa.list_(pa.float32()))
    is_null = pa.array((~experience.written[column]).numpy())
    values = pa.array(experience.columns[column].numpy())
    return pa.ListArray.from_arrays(_offsets(experience.sequences.response_lens), values, mask=is_null)


def _ids(input_ids: Tensor, starts: Tensor, lengths: Tensor) -> pa.Array:
    values = pa.array(input_ids[ranges(starts, lengths)].to(torch.int32).numpy())
    return pa.ListArray.from_arrays(_offsets(lengths), values)


def _offsets(lengths: Tensor) -> pa.Array:
    return pa.array(cumulative(lengths).to(torch.int32).numpy())


def _ints(values: Tensor) -> pa.Array:
    return pa.array(values.numpy())


def _texts(values: Sequence[str | None]) -> pa.Array:
    """UTF-8; lone surrogates, which an environment may give, become `?`."""
    return pa.array([None if text is None else text.encode(errors="replace").decode() for text in values], pa.string())
