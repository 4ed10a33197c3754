"""Which checkpoints stay: the newest, the best, and always one that is whole to fall back on."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from dagrl.runtime import chosen_checkpoint
from dagrl.runtime.checkpoint import CheckpointParts, save, verify
from dagrl.runtime.retention import Retention


def _parts() -> CheckpointParts:
    return CheckpointParts(agents={"a": lambda folder: save_file({"w": torch.ones(3)}, folder / "model.safetensors")})


def _kept(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step_")) for path in folder.iterdir())


def test_the_best_are_kept_besides_the_newest_of_equals_the_latest() -> None:
    retention = Retention(keep_last=2, keep_best=2, accuracies={1: 0.5, 2: 0.9, 3: 0.5, 4: 0.1, 99: 1.0})
    assert retention.kept([1, 2, 3, 4, 5, 6]) == {2, 3, 5, 6}


def test_without_a_number_all_are_kept_and_none_of_the_best_is_none() -> None:
    assert Retention(keep_best=1, accuracies={1: 1.0}).kept([1, 2, 3]) == {1, 2, 3}
    assert Retention(keep_last=1, accuracies={1: 1.0}).kept([1, 2, 3]) == {3}


def test_the_best_of_a_run_is_still_there_when_it_is_asked_for(tmp_path: Path) -> None:
    accuracies: dict[int, float] = {}
    for step, accuracy in enumerate((0.2, 0.8, 0.3, 0.4, 0.1), start=1):
        accuracies[step] = accuracy
        save(tmp_path / "checkpoints", step, _parts(), Retention(keep_last=1, keep_best=1, accuracies=accuracies))
    assert _kept(tmp_path / "checkpoints") == [2, 5]
    assert chosen_checkpoint.choose(tmp_path, "best", accuracies).step == 2


def test_an_older_one_that_is_whole_stays_while_the_one_between_is_damaged(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        path = save(tmp_path, step, _parts())
    weights = path / "agent_a" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")  # as long as it was: only the hash tells
    save(tmp_path, 4, _parts(), Retention(keep_last=2))
    assert _kept(tmp_path) == [2, 3, 4]
    assert verify(tmp_path / "step_000002") == ()
    save(tmp_path, 5, _parts(), Retention(keep_last=2))
    assert _kept(tmp_path) == [4, 5]


def test_what_a_cut_short_pruning_left_is_pruned_by_the_next_save_of_the_same_step(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path, step, _parts())
    save(tmp_path, 2, _parts(), Retention(keep_last=1))
    assert _kept(tmp_path) == [2]
