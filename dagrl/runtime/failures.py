"""Failed trajectories as files: one JSON each, with enough to play the same again."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

from dagrl.errors import FaultBudgetError
from dagrl.images import to_text
from dagrl.runtime.storage import make_folder, write_text
from dagrl.types import FailedTrajectory

_COMMONEST = 3
_MAX_NAME_CHARS = 150


def write_failure(folder: Path, failed: FailedTrajectory, run_seed: int) -> Path:
    """Writes `step<step>_<task>_<sample>.json`, of an evaluation `eval<step>…`, and gives its path; that of a varied
    rollout ends in a hash of how it was varied.

    The step is numbered as it is shown. What JSON cannot hold is written as its repr."""
    sample, variation = f"{_file_name(failed.task.task_id)}_{failed.sample}", failed.variation
    if failed.sampling == "train":
        varied = f"_{hashlib.sha256(variation.name.encode()).hexdigest()[:8]}" if variation.name else ""
        path = folder / f"step{failed.shown_step}_{sample}{varied}.json"
    else:
        without = "".join(f"_without_{node_id}" for node_id in variation.silent)
        of = f"@{failed.held_out}" if failed.held_out else ""
        path = folder / f"eval{failed.shown_step}{of}{without}_{sample}.json"
    content = {"run_seed": run_seed, **asdict(failed), "step": failed.shown_step}
    content["task"]["images"] = [to_text(image) for image in failed.task.images]
    for turn in content["turns"]:
        del turn["sampled"], turn["images"]  # the same ids once more; playing again shows the images again
    make_folder(folder)
    write_text(path, json.dumps(content, default=repr, indent=1) + "\n")
    return path


def _file_name(task_id: str) -> str:
    """A name of its own for every task: `train-12` for `train:12`; other signs are percent-encoded, as in a URL."""
    name = quote(task_id, safe=":", errors="surrogatepass").replace("-", "%2D").replace(":", "-")
    if len(name) <= _MAX_NAME_CHARS:
        return name
    return f"{name[:_MAX_NAME_CHARS]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def check_budget(failed: Sequence[FailedTrajectory], num_trajectories: int, max_fraction: float) -> None:
    """Raises `FaultBudgetError` with the commonest messages if more than `max_fraction` of a step failed."""
    if len(failed) <= max_fraction * num_trajectories:
        return
    kinds = Counter(one.kind for one in failed)
    shown = []
    for kind, count in kinds.most_common(_COMMONEST):
        message = next(one.message for one in failed if one.kind == kind)
        shown.append(f"  {count} x {kind}: {message}")
    raise FaultBudgetError(
        f"{len(failed)} of {num_trajectories} trajectories failed, more than config.rollout.max_failed_fraction "
        f"{max_fraction:g} allows; the commonest:\n" + "\n".join(shown),
        how="mend the fault that is shown, or raise max_failed_fraction",
    )
