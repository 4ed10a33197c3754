"""How much memory the models of a workflow will take, counted from the headers of their weight files."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.sections import ModelSpec

WIDTH = {"float32": 4, "bfloat16": 2}
"""Bytes of a number by `dtype`: of a weight, and of its gradient."""
_OPTIMIZER_BYTES = {"float32": 8, "bfloat16": 12}
"""AdamW's two moments in float32; with bfloat16 weights a float32 copy of them too."""

_HEADER_LIMIT = 100_000_000
"""Longest header of a safetensors file that is read, in bytes: the format's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Bytes of one agent; activations and the sampler's keys and values come on top."""

    policy: int
    training: int
    """Gradients and optimizer of the policy."""
    reference: int
    critic: int
    """Of a critic that it owns, training included."""

    @property
    def total(self) -> int:
        return self.policy + self.training + self.reference + self.critic


def estimate(group: AgentGroup, num_weights: int, num_critic_weights: int) -> Estimate:
    """What an agent's models take. An adapter's own weights are left out: they are few."""
    trains_all = group.is_trained and group.adapter is None
    has_copy = (group.needs_reference or group.speaks_as_initial) and group.adapter is None
    critic = 0
    if group.critic is not None and group.critic_model is not None:
        per_weight = _bytes(group.critic_model, is_trained=group.critic.kind == "model")
        critic = num_critic_weights * per_weight
    return Estimate(
        policy=num_weights * WIDTH[group.model.dtype],
        training=num_weights * (_bytes(group.model, is_trained=True) - WIDTH[group.model.dtype]) * trains_all,
        reference=num_weights * WIDTH[group.model.dtype] * has_copy,
        critic=critic,
    )


def _bytes(model: ModelSpec, *, is_trained: bool) -> int:
    training = WIDTH[model.dtype] + _OPTIMIZER_BYTES[model.dtype]
    return WIDTH[model.dtype] + training * is_trained


def count_weights(folder: Path) -> int | None:
    """Numbers in the safetensors files of a model's folder; None where it has none."""
    shapes = weight_shapes(folder)
    return sum(math.prod(shape) for shape in shapes.values()) if shapes else None


def weight_shapes(folder: Path) -> dict[str, Sequence[int]]:
    """Name → shape of every tensor in a folder's safetensors files; empty where it has none."""
    found: dict[str, Sequence[int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= _shapes(file)
    return found


def _shapes(file: Path) -> dict[str, Sequence[int]]:
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(min(length, _HEADER_LIMIT)))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def shown(num_bytes: int) -> str:
    """`1.5 GiB`, `12 MiB`."""
    gib, mib = num_bytes / 2**30, num_bytes / 2**20
    return f"{gib:.1f} GiB" if gib >= 1 else f"{mib:.1f} MiB"
