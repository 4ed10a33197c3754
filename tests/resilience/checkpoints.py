"""Small checkpoints whose every byte is known."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from dagrl.runtime.checkpoint import CheckpointParts

NUM_WEIGHTS = 600
"""Of float32: some sectors of a disk."""


def parts(step: int) -> CheckpointParts:
    """Two agents, a critic and a state, all of which tell the step."""

    def write(folder: Path) -> None:
        save_file({"w": torch.arange(NUM_WEIGHTS) + 1000.0 * step}, folder / "model.safetensors")
        (folder / "config.json").write_text(f'{{"step": {step}}}')

    state = {"step": step, "models": {"agent_one": {"moment": torch.full((NUM_WEIGHTS,), float(step))}}}
    return CheckpointParts(agents={"one": write, "two": write}, critics={"one": write}, state=state)


def tree_of(folder: Path) -> dict[str, bytes | None]:
    """Path to content of all below `folder`; None for a folder, which stands before what is in it."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }
