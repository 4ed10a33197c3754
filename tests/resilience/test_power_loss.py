"""G2: the power goes at any moment of a save; the disk is left in any state; nothing saved is lost or wrong.

`python -m pytest -m resilience tests/resilience/test_power_loss.py -s` prints the figures of docs/benchmarks.md.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dagrl.runtime import checkpoint
from dagrl.runtime.retention import Retention
from tests.resilience.checkpoints import parts, tree_of
from tests.resilience.power_loss import Recording, recorded, write_out

pytestmark = pytest.mark.resilience

NEW = 3
"""The step that is saved when the power goes."""
STATES_PER_SCENARIO = 700
STATES_PER_MUTANT = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is there before the save, and what is kept."""

    name: str
    keep_last: int | None
    num_pruned: int
    has_broken: bool = False
    """A checkpoint of the new step is there that is not whole."""
    is_lying: bool = False
    """The disk forgets contents that it said were sure: the step before must then do."""


SCENARIOS = (
    Scenario(name="all are kept", keep_last=None, num_pruned=0),
    Scenario(name="the old ones go", keep_last=1, num_pruned=2),
    Scenario(name="one of two old ones goes", keep_last=2, num_pruned=1),
    Scenario(name="a broken one is replaced", keep_last=2, num_pruned=1, has_broken=True),
    Scenario(name="the disk lies", keep_last=2, num_pruned=1, is_lying=True),
)


@dataclass(slots=True)
class Saved:
    """A save that was recorded, with what each checkpoint must be."""

    recording: Recording
    trees: dict[int, dict[str, bytes | None]]
    scenario: Scenario


def save_recorded(root: Path, scenario: Scenario) -> Saved:
    root.mkdir()
    for step in (1, 2):
        checkpoint.save(root, step, parts(step))
    if scenario.has_broken:
        broken = checkpoint.save(root, NEW, parts(NEW))
        (broken / "agent_one" / "model.safetensors").unlink()
    trees = {step: tree_of(root / f"step_{step:06d}") for step in (1, 2)}
    with recorded(root) as recording:
        checkpoint.save(root, NEW, parts(NEW), Retention(keep_last=scenario.keep_last))
    trees[NEW] = tree_of(root / f"step_{NEW:06d}")
    return Saved(recording=recording, trees=trees, scenario=scenario)


def fault(folder: Path, saved: Saved, *, has_returned: bool) -> str | None:
    """What is wrong with the checkpoints that the power loss left in `folder`."""
    found = checkpoint.newest(folder)
    if found.path is None:
        return "lost"
    step = checkpoint.step_of(found.path)
    if tree_of(found.path) != saved.trees[step]:
        return "corrupt"
    if saved.scenario.is_lying:
        return None
    if step < (NEW if has_returned else 2):
        return "lost"
    is_half = any(not line.startswith(f"step_{NEW:06d}") or not saved.scenario.has_broken for line in found.skipped)
    return "half" if is_half else None


def faults(saved: Saved, number: int, place: Path) -> Counter[str]:
    """Of `number` disk states: how many were made, different, with something lost of what was done, and at fault."""
    told: Counter[str] = Counter(states=number)
    seen: dict[tuple[Any, bool], str | None] = {}
    draw = random.Random(0)
    for done, disk in saved.recording.states(draw, number, is_lying=saved.scenario.is_lying):
        has_returned = done == len(saved.recording.operations)
        tree = disk.tree()
        key = (tuple(tree.items()), has_returned)
        if key not in seen:
            place.mkdir()
            write_out(tree, place)
            seen[key] = fault(place, saved, has_returned=has_returned)
            if seen[key] is None and len(seen) % 20 == 0:
                told["went on"] += goes_on(place)
            shutil.rmtree(place)
        told["at fault"] += seen[key] is not None
        told[str(seen[key])] += 1
        told["with a loss"] += tree != replayed(saved.recording, done)
    told["different"] = len(seen)
    return told


def goes_on(folder: Path) -> bool:
    """After the power is back the next save clears up and is whole."""
    path = checkpoint.save(folder, NEW + 1, parts(NEW + 1))
    return not checkpoint.verify(path) and not list(folder.glob(".tmp-*"))


def replayed(recording: Recording, done: int) -> dict[str, bytes | None]:
    """The disk if nothing is lost."""
    disk = recording.start.copy()
    for operation in recording.operations[:done]:
        if not operation.kind.startswith("fsync"):
            disk.apply(operation)
    return disk.tree()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_no_power_loss_loses_or_spoils_a_checkpoint(tmp_path: Path, scenario: Scenario) -> None:
    saved = save_recorded(tmp_path / "real", scenario)
    told = faults(saved, STATES_PER_SCENARIO, tmp_path / "after")
    print(f"\n{scenario.name}: {dict(told)}")
    assert told["at fault"] == 0
    assert told["went on"] > 0
    # The witness: the power losses lost something, in many ways.
    assert told["with a loss"] > STATES_PER_SCENARIO // 4
    assert told["different"] > 50


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_what_was_recorded_is_all_that_was_done(tmp_path: Path, scenario: Scenario) -> None:
    saved = save_recorded(tmp_path / "real", scenario)
    operations = saved.recording.operations
    assert dict(sorted(replayed(saved.recording, len(operations)).items())) == tree_of(tmp_path / "real")
    kinds = Counter(operation.kind for operation in operations)
    assert kinds["fsync_file"] >= 9
    assert kinds["fsync_folder"] >= 6
    assert kinds["rename"] == 1 + scenario.num_pruned + scenario.has_broken


# The negative twins: with one part of the protocol gone, the same states show it.


def without_fsync_of_files(patch: pytest.MonkeyPatch) -> None:
    genuine = checkpoint.fsync
    patch.setattr(checkpoint, "fsync", lambda path: genuine(path) if path.is_dir() else None)


def without_fsync_of_folders(patch: pytest.MonkeyPatch) -> None:
    genuine = checkpoint.fsync
    patch.setattr(checkpoint, "fsync", lambda path: None if path.is_dir() else genuine(path))


def without_hashes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoint, "entry_of", lambda path: {"size": path.stat().st_size})


def without_temporary_folder(patch: pytest.MonkeyPatch) -> None:
    genuine = checkpoint._write_parts

    def in_place(temp: Path, step: int, content: checkpoint.CheckpointParts) -> None:
        genuine(temp.with_name(f"step_{step:06d}"), step, content)

    patch.setattr(checkpoint, "_write_parts", in_place)
    patch.setattr(checkpoint, "_publish", lambda temp, target: checkpoint.fsync(target.parent))


def pruning_early(patch: pytest.MonkeyPatch) -> None:
    genuine = checkpoint._publish

    def publish(temp: Path, target: Path) -> None:
        for old in checkpoint._steps(target.parent):
            shutil.rmtree(old)
        genuine(temp, target)

    patch.setattr(checkpoint, "_publish", publish)


@pytest.mark.parametrize(
    ("mutate", "scenario", "kinds"),
    [
        (without_fsync_of_files, SCENARIOS[1], {"lost", "half"}),
        (without_fsync_of_folders, SCENARIOS[1], {"lost"}),
        (without_hashes, SCENARIOS[4], {"corrupt"}),
        (without_temporary_folder, SCENARIOS[0], {"half"}),
        (pruning_early, SCENARIOS[1], {"lost"}),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_without_a_part_of_the_protocol_power_losses_do_harm(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    scenario: Scenario,
    kinds: set[str],
) -> None:
    root = tmp_path / "real"
    with monkeypatch.context() as patch:
        mutate(patch)
        saved = save_recorded(root, scenario)
        told = faults(saved, STATES_PER_MUTANT, tmp_path / "after")
    print(f"\n{mutate.__name__}: {dict(told)}")
    assert told["at fault"] > 0
    assert all(told[kind] > 0 for kind in kinds)
    assert os.fsync.__module__ == "posix", "the recorder put back what it took"
