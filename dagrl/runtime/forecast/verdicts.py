"""What a forecast warns of: budgets that end the run early, memory and disk that do not suffice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch

from dagrl.runtime.forecast.whole import Forecast
from dagrl.runtime.memory_estimate import shown
from dagrl.workflow.budgets import Budget


def verdicts(found: Forecast, folder: Path) -> list[str]:
    """A line for each; `folder` is where the run would write."""
    return [*_budgets(found), *_memory(found), *_disk(found, folder)]


def expected_use(found: Forecast) -> dict[str, float]:
    """By budget: what the whole run would use, at most for calls."""
    uses = {name: float(count) for name, count in found.at_most.items()}
    if found.nodes:
        uses["tokens"] = found.total_tokens
    if found.seconds is not None:
        uses["seconds"] = found.seconds
    return uses


def _budgets(found: Forecast) -> list[str]:
    lines = []
    uses = expected_use(found)
    for name, limit in found.limits.items():
        budget = Budget(name=name, used=uses.get(name, 0.0), limit=limit)
        if not budget.is_spent:
            continue
        step = int(found.steps * limit / budget.used)
        if step < 1:
            lines.append(f"stop_when.{name} cannot fit: {budget}; one step is more than the whole budget")
        else:
            lines.append(
                f"stop_when.{name} ends the run about step {step} of {found.steps}: the whole would be {budget}"
            )
    return lines


def _memory(found: Forecast) -> list[str]:
    needed = sum(own.total for own in found.memory.values())
    there = _device_memory(found.device)
    if not there or needed <= there:
        return []
    return [
        f"memory: about {shown(needed)} on {found.device}, which has {shown(there)}; lower micro_batch_tokens, "
        "logprob_chunk_tokens, rollout.max_batch_size or rollout.prefix_cache_tokens, use bfloat16 or an adapter"
    ]


def _device_memory(device: str) -> int:
    if device.startswith("cuda"):
        return int(torch.cuda.get_device_properties(torch.device(device)).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if device == "cpu" else 0


def _disk(found: Forecast, folder: Path) -> list[str]:
    free = shutil.disk_usage(next(one for one in (folder.resolve(), *folder.resolve().parents) if one.exists())).free
    if found.disk_bytes is None or found.disk_bytes <= free:
        return []
    return [
        f"disk: about {shown(found.disk_bytes)}, and {shown(free)} are free; set trainer.keep_last or raise save_freq"
    ]
