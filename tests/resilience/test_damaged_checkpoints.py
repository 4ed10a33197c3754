"""G3: every damaged, cut, missing or foreign file is found and the checkpoint before takes over. B4: odd folders.

`python -m pytest -m resilience tests/resilience/test_damaged_checkpoints.py -s` prints the figures of
docs/benchmarks.md.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dagrl.runtime import checkpoint
from tests.resilience.checkpoints import parts, tree_of

pytestmark = pytest.mark.resilience

NUM_DAMAGES = 1000


def flip(draw: random.Random, file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def overwrite(draw: random.Random, file: Path) -> None:
    """A stretch of other bytes, as long as what it replaces."""
    content = bytearray(file.read_bytes())
    start = draw.randrange(len(content))
    stretch = content[start : start + 1 + draw.randrange(64)]
    content[start : start + len(stretch)] = bytes(byte ^ (1 + draw.randrange(255)) for byte in stretch)
    file.write_bytes(content)


def truncate(draw: random.Random, file: Path) -> None:
    os.truncate(file, draw.randrange(file.stat().st_size))


def extend(draw: random.Random, file: Path) -> None:
    file.write_bytes(file.read_bytes() + draw.randbytes(1 + draw.randrange(8)))


def remove(draw: random.Random, file: Path) -> None:
    file.unlink()


def add(draw: random.Random, file: Path) -> None:
    file.with_name(f"{file.name}.{draw.randrange(1000)}").write_bytes(file.read_bytes())


DAMAGES: tuple[Callable[[random.Random, Path], None], ...] = (flip, overwrite, truncate, extend, remove, add)


def damage_and_look(folder: Path, number: int) -> tuple[Counter[str], Counter[str]]:
    """Damages the newest of two checkpoints `number` times in turn over all its files, each time mended again: what was
    done, by kind and file, and how often it was not found, or not by its name, or the one before did not take over."""
    before, last = (checkpoint.save(folder, step, parts(step)) for step in (1, 2))
    whole = {path: path.read_bytes() for path in sorted(last.rglob("*")) if path.is_file()}
    draw = random.Random(0)
    done: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for turn in range(number):
        file = list(whole)[turn % len(whole)]
        damage = draw.choice(DAMAGES)
        damage(draw, file)
        after = {path: path.read_bytes() for path in last.rglob("*") if path.is_file()}
        assert after != whole, "the witness: something was damaged"
        done.update((damage.__name__, file.relative_to(last).as_posix()))
        found = checkpoint.newest(folder)
        is_named = len(found.skipped) == 1 and (file.name in found.skipped[0])
        if found.path != before or not is_named:
            missed[damage.__name__] += 1
        for path in after.keys() - whole.keys():
            path.unlink()
        for path in [path for path, content in whole.items() if after.get(path) != content]:
            path.write_bytes(whole[path])
    assert checkpoint.newest(folder).path == last, "all was mended"
    return done, missed


def test_every_damage_is_found_by_its_file_and_the_one_before_takes_over(tmp_path: Path) -> None:
    done, missed = damage_and_look(tmp_path, NUM_DAMAGES)
    print(f"\n{NUM_DAMAGES} damages, {missed.total()} missed: {dict(done)}")
    assert not missed
    assert all(done[damage.__name__] > 100 for damage in DAMAGES)
    assert all(done[name] > 50 for name, content in tree_of(tmp_path / "step_000002").items() if content is not None)


def test_without_hashes_flipped_bits_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative twin: sizes alone do not tell."""
    monkeypatch.setattr(checkpoint, "entry_of", lambda path: {"size": path.stat().st_size})
    _, missed = damage_and_look(tmp_path, 60)
    assert missed["flip"] > 0
    assert missed["truncate"] == missed["remove"] == 0


def as_file(place: Path, whole: Path) -> None:
    place.write_bytes(b"not a folder")


def as_dangling_link(place: Path, whole: Path) -> None:
    place.symlink_to("nowhere")


def as_empty_folder(place: Path, whole: Path) -> None:
    place.mkdir()


def as_manifest_alone(place: Path, whole: Path) -> None:
    place.mkdir()
    shutil.copy(whole / "MANIFEST.json", place)


def without_manifest(place: Path, whole: Path) -> None:
    shutil.copytree(whole, place)
    (place / "MANIFEST.json").unlink()


def with_empty_manifest(place: Path, whole: Path) -> None:
    shutil.copytree(whole, place)
    (place / "MANIFEST.json").write_bytes(b"")


def with_manifest_of_zeros(place: Path, whole: Path) -> None:
    shutil.copytree(whole, place)
    (place / "MANIFEST.json").write_bytes(bytes(4096))


def with_folder_for_manifest(place: Path, whole: Path) -> None:
    shutil.copytree(whole, place)
    (place / "MANIFEST.json").unlink()
    (place / "MANIFEST.json").mkdir()


def with_pipe_for_manifest(place: Path, whole: Path) -> None:
    place.mkdir()
    os.mkfifo(place / "MANIFEST.json")


def with_json_that_is_no_manifest(place: Path, whole: Path) -> None:
    place.mkdir()
    (place / "MANIFEST.json").write_text("[1, 2]")


def with_folder_for_weights(place: Path, whole: Path) -> None:
    shutil.copytree(whole, place)
    (place / "agent_one" / "model.safetensors").unlink()
    (place / "agent_one" / "model.safetensors").mkdir()


def without_an_agent(place: Path, whole: Path) -> None:
    shutil.copytree(whole, place)
    shutil.rmtree(place / "agent_two")


BROKEN = (
    as_file,
    as_dangling_link,
    as_empty_folder,
    as_manifest_alone,
    without_manifest,
    with_empty_manifest,
    with_manifest_of_zeros,
    with_folder_for_manifest,
    with_pipe_for_manifest,
    with_json_that_is_no_manifest,
    with_folder_for_weights,
    without_an_agent,
)


@pytest.mark.parametrize("make", BROKEN, ids=lambda make: make.__name__)
def test_a_crafted_checkpoint_is_left_out_and_replaced_when_its_step_comes_again(
    tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    whole = checkpoint.save(tmp_path, 1, parts(1))
    place = tmp_path / "step_000002"
    make(place, whole)
    found = checkpoint.newest(tmp_path)
    assert found.path == whole
    assert [line.split()[0] for line in found.skipped] == ["step_000002"]
    path = checkpoint.save(tmp_path, 2, parts(2))
    assert path == place
    assert checkpoint.verify(path) == ()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["step_000001", "step_000002"]


NO_CHECKPOINTS = ("latest", "step_2", "step_0000002", "step_00002x", "Step_000002", "step_-00002", "notes", ".hidden")


@pytest.mark.parametrize("name", NO_CHECKPOINTS)
def test_what_is_not_named_like_a_checkpoint_is_neither_one_nor_touched(tmp_path: Path, name: str) -> None:
    whole = checkpoint.save(tmp_path, 1, parts(1))
    shutil.copytree(whole, tmp_path / name)
    found = checkpoint.newest(tmp_path)
    assert (found.path, found.skipped) == (whole, ())
    checkpoint.save(tmp_path, 2, parts(2))
    assert (tmp_path / name).is_dir()


@pytest.mark.parametrize("name", [".tmp-step_000009-1", ".tmp-old-step_000009", ".tmp-file"])
def test_what_was_not_finished_is_cleared_away_whatever_it_is(tmp_path: Path, name: str) -> None:
    whole = checkpoint.save(tmp_path, 1, parts(1))
    shutil.copytree(whole, tmp_path / name) if "step" in name else (tmp_path / name).write_bytes(b"half")
    assert checkpoint.newest(tmp_path).path == whole
    checkpoint.remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]
