"""NaN and infinity in a step: who, where, in which samples; the offending part of the batch as a small file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dagrl.errors import NumericError
from dagrl.experience import Experience, NonFinite
from dagrl.runtime.storage import make_folder, write_text

_NAMED_SAMPLES = 5
_KEPT_TURNS = 16
_KEPT_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericFault:
    """One tensor of one node that was not finite in one step."""

    step: int
    """From 1, as steps are shown."""
    node_id: str
    """The node that made it; for what was sampled the first rollout node that spoke it."""
    agents: tuple[str, ...]
    tensor: str
    samples: tuple[str, ...]
    """`<task>/<sample>`."""
    num_samples: int
    """Of the step."""

    def __str__(self) -> str:
        named = ", ".join(self.samples[:_NAMED_SAMPLES]) + (", …" if len(self.samples) > _NAMED_SAMPLES else "")
        return (
            f"the {self.tensor} of {' and '.join(self.agents)} at node '{self.node_id}' is not finite in "
            f"{len(self.samples)} of {self.num_samples} samples ({named})"
        )

    def error(self, in_a_row: int, file: Path | None) -> NumericError:
        """What the run ends with when it has happened too often in a row."""
        return NumericError(
            f"{self}, for the {in_a_row}. step in a row; no update was made from it and the weights are as they were",
            where=f"step {self.step}",
            how="lower the learning rate, or look at the rewards and log-probs"
            + ("" if file is None else f"; the samples are in {file}"),
        )


def numeric_fault(
    found: NonFinite, experience: Experience, agent_names: Sequence[str], *, step: int, node_id: str | None
) -> NumericFault:
    """Names what was `found`; `node_id` None stands for the nodes that spoke."""
    table = experience.turns
    owners = [experience.trajectories[index] for index in torch.unique(table.trajectory[found.turns]).tolist()]
    groups = torch.unique(table.agent_group[found.turns]).tolist()
    return NumericFault(
        step=step,
        node_id=experience.node_ids[int(found.turns[0])] if node_id is None else node_id,
        agents=tuple(f"agent '{agent_names[group]}'" for group in groups),
        tensor=found.tensor,
        samples=tuple(f"{owner.task.task_id}/{owner.sample}" for owner in owners),
        num_samples=len(experience.trajectories),
    )


def write_fault(folder: Path, fault: NumericFault, found: NonFinite, experience: Experience) -> Path:
    """Writes `step<step>_<node>_nonfinite.json`: texts, ids and columns of the first turns that are not finite."""
    path = make_folder(folder) / f"step{fault.step}_{fault.node_id}_nonfinite.json"
    content = {
        "step": fault.step,
        "node": fault.node_id,
        "tensor": fault.tensor,
        "samples": fault.samples,
        "turns": [_turn(experience, turn) for turn in found.turns[:_KEPT_TURNS].tolist()],
        "num_turns": len(found.turns),
    }
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return path


def _turn(experience: Experience, turn: int) -> Mapping[str, Any]:
    table = experience.turns
    owner = experience.trajectories[int(table.trajectory[turn])]
    spoken = owner.turns[int(table.position[turn])]
    at = torch.tensor([turn])
    columns = {
        str(column): _numbers(experience.read(column, at))
        for column, written in experience.written.items()
        if bool(written[turn])
    }
    return {
        "task_id": owner.task.task_id,
        "sample": owner.sample,
        "node": spoken.node_id,
        "round": spoken.round,
        "response": spoken.response_text,
        "response_ids": spoken.response_ids[:_KEPT_TOKENS],
        "last_value": _numbers(table.last_value[at])[0],
        **columns,
    }


def _numbers(values: Tensor) -> list[float | str]:
    """JSON has no NaN: it and the infinities stand as text."""
    shown = values[:_KEPT_TOKENS]
    return [number if ok else str(number) for number, ok in zip(shown.tolist(), torch.isfinite(shown).tolist())]
