"""G4: the Nth file operation of a save fails, for N = 1, 2, … until the save passes; what was there stays as it was.

B5: after any sequence of saves, failures, damages and prunings there is a whole checkpoint to go on from, and the best.
`python -m pytest -m resilience tests/resilience/test_failing_disk.py -s` prints the figures of docs/benchmarks.md.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagrl.errors import StorageError
from dagrl.runtime import checkpoint
from dagrl.runtime.retention import Retention
from tests.resilience.checkpoints import parts, tree_of

pytestmark = pytest.mark.resilience

_OPERATIONS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir")
"""Of the interpreter's audit events (PEP 578): whoever in this process does one of these, the disk hears of it."""


class FaultyDisk:
    """Counts operations below `root` and refuses some; sleeps unless `failing` is active."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._number = 0
        self._first = 0
        self._last = 0
        self._errno = 0
        self.refused: list[str] = []
        sys.addaudithook(self._heard)  # for as long as the process lives
        self._fsync = os.fsync

    @contextmanager
    def failing(self, root: Path, code: int, *, first: int, last: int) -> Iterator[None]:
        """Refuses operations number `first` to `last`, from 1."""
        self._root, self._number, self._first, self._last, self._errno = root, 0, first, last, code
        self.refused = []
        os.fsync = self._faulty_fsync  # not among the audit events
        try:
            yield
        finally:
            self._root = None
            os.fsync = self._fsync

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._root is None or event not in _OPERATIONS:
            return
        path = arguments[0]
        folder = next((handle for handle in arguments[1:] if event in ("os.remove", "os.rmdir") and handle != -1), None)
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        elif folder is not None:
            path = f"{os.readlink(f'/proc/self/fd/{folder}')}/{os.fspath(path)}"
        self._count(event, str(os.fspath(path)))

    def _faulty_fsync(self, handle: int) -> None:
        self._count("fsync", os.readlink(f"/proc/self/fd/{handle}"))
        self._fsync(handle)

    def _count(self, event: str, path: str) -> None:
        if self._root is None or not path.startswith(f"{self._root}"):
            return
        self._number += 1
        if self._first <= self._number <= self._last:
            self.refused.append(event)
            raise OSError(self._errno, os.strerror(self._errno))


@pytest.fixture(scope="module")
def disk() -> FaultyDisk:
    return FaultyDisk()


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """The operating system itself refuses to let a file grow beyond `limit` bytes (EFBIG), whoever writes it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def two_saved(folder: Path) -> dict[int, dict[str, bytes | None]]:
    for step in (1, 2):
        checkpoint.save(folder, step, parts(step))
    return {step: tree_of(folder / f"step_{step:06d}") for step in (1, 2)}


KEPT = Retention(keep_last=2)


@pytest.mark.parametrize(
    ("code", "lasts"),
    [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EROFS, False), (errno.EACCES, False), (errno.EIO, False),
     (errno.EIO, True), (errno.EROFS, True)],
)  # fmt: skip
def test_whichever_operation_fails_what_was_there_stays_and_the_next_save_is_whole(
    tmp_path: Path, disk: FaultyDisk, code: int, lasts: bool
) -> None:
    old = two_saved(tmp_path / "old")
    refused: Counter[str] = Counter()
    number = 0
    while True:
        number += 1
        folder = tmp_path / "now"
        shutil.copytree(tmp_path / "old", folder)
        last = sys.maxsize if lasts else number
        try:
            with disk.failing(folder, code, first=number, last=last):
                checkpoint.save(folder, 3, parts(3), KEPT)
        except StorageError as error:
            assert os.strerror(code) in str(error)
            assert error.exit_code == 5
        refused.update(disk.refused[:1])
        has_passed = not disk.refused
        assert_intact(folder, old)
        if not lasts:
            assert not list(folder.glob(".tmp-step*")), "nothing half is left where it could be removed"
        path = checkpoint.save(folder, 4, parts(4), KEPT)
        assert checkpoint.verify(path) == ()
        assert not list(folder.glob(".tmp-*"))
        shutil.rmtree(folder)
        if has_passed:
            break
    print(f"\n{errno.errorcode[code]}, {lasts=}: {number - 1} operations failed, then the save passed: {dict(refused)}")
    assert number > 40
    assert refused.keys() >= {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fsync"}


def assert_intact(folder: Path, old: dict[int, dict[str, bytes | None]]) -> None:
    """No folder with a checkpoint's name is half; the newest is 2 or 3, and 1 goes only after 3 is there."""
    there = {int(path.name.removeprefix("step_")): path for path in folder.glob("step_*")}
    assert max(there) in (2, 3)
    assert 2 in there
    assert 1 in there or 3 in there
    for step, path in there.items():
        assert checkpoint.verify(path) == ()
        assert step == 3 or tree_of(path) == old[step]


def test_whichever_file_cannot_be_written_to_its_end_what_was_there_stays(tmp_path: Path) -> None:
    """Real refusals of real writes, of Python and of Rust alike."""
    old = two_saved(tmp_path)
    sizes = sorted({len(content) for content in old[2].values() if content is not None})
    told = set()
    for limit in [0, *(size - 1 for size in sizes)]:
        with small_files(limit), pytest.raises(StorageError) as caught:
            checkpoint.save(tmp_path, 3, parts(3), KEPT)
        told.add(str(caught.value))
        assert "File too large" in str(caught.value)
        assert_intact(tmp_path, old)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000001", "step_000002"]
    with small_files(sizes[-1]):
        assert checkpoint.verify(checkpoint.save(tmp_path, 3, parts(3), KEPT)) == ()
    print(f"\n{len(sizes) + 1} limits, all refused in one line: {told}")
    assert len(sizes) >= 4


def test_a_save_into_its_final_folder_would_leave_half_a_checkpoint(
    tmp_path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative twin: without the temporary folder the same failures do harm."""
    old = two_saved(tmp_path)
    genuine = checkpoint._write_parts
    monkeypatch.setattr(
        checkpoint, "_write_parts", lambda temp, step, own: genuine(temp.with_name(f"step_{step:06d}"), step, own)
    )
    with pytest.raises(StorageError), disk.failing(tmp_path, errno.ENOSPC, first=20, last=20):
        checkpoint.save(tmp_path, 3, parts(3), KEPT)
    with pytest.raises(AssertionError):
        assert_intact(tmp_path, old)


# B5

events = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.none() | st.sampled_from([0.1, 0.5, 0.9])),
        st.tuples(st.just("fail"), st.integers(1, 90)),
        st.tuples(st.just("damage"), st.integers(0, 3)),
    ),
    max_size=12,
)


def flip_in(path: Path) -> None:
    weights = path / "agent_one" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)


@settings(max_examples=40, deadline=None)
@given(events=events, keep_last=st.integers(1, 3), keep_best=st.integers(0, 2))
def test_after_any_saves_failures_and_damages_one_is_whole_and_the_best_is_there(
    disk: FaultyDisk, events: list[tuple[str, Any]], keep_last: int, keep_best: int
) -> None:
    accuracies: dict[int, float] = {}
    published: list[int] = []
    damaged: set[int] = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for step, (event, value) in enumerate(events, start=1):
            there = sorted(int(path.name.removeprefix("step_")) for path in folder.glob("step_*"))
            retention = Retention(keep_last=keep_last, keep_best=keep_best, accuracies=accuracies)
            if event == "damage" and value < len(there):
                flip_in(folder / f"step_{there[value]:06d}")
                damaged ^= {there[value]}  # the same bit twice mends it
            elif event == "save":
                if value is not None:
                    accuracies[step] = value
                checkpoint.save(folder, step, parts(step), retention)
                published.append(step)
                assert_kept(folder, there, step, damaged, retention)
            elif event == "fail":
                try:
                    with disk.failing(folder, errno.ENOSPC, first=value, last=value):
                        checkpoint.save(folder, step, parts(step), retention)
                except StorageError:
                    assert disk.refused
                if (folder / f"step_{step:06d}").exists():
                    published.append(step)
            whole = [one for one in published if one not in damaged]
            if whole and published[-1] not in damaged:
                assert checkpoint.newest(folder).path == folder / f"step_{published[-1]:06d}"


def assert_kept(folder: Path, before: list[int], step: int, damaged: set[int], retention: Retention) -> None:
    """After the save of `step`: the newest ones, the best ones, and one that is whole besides the newest."""
    now = {int(path.name.removeprefix("step_")) for path in folder.glob("step_*")}
    assert retention.keep_last is not None
    assert {*before, step} >= now >= set(sorted({*before, step})[-retention.keep_last :])
    judged = [one for one in before if one in retention.accuracies]
    best = max(judged, key=lambda one: (retention.accuracies[one], one), default=None)
    if best is not None and (step not in retention.accuracies or retention.keep_best > 1):
        assert retention.keep_best == 0 or best in now
    if retention.keep_last > 1 and any(one not in damaged for one in before):
        assert any(one not in damaged for one in now - {step}), "nothing whole besides the newest"


def test_pruning_without_a_look_would_leave_nothing_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative twin of the above: without the verification the one that is whole goes."""
    for step in (1, 2):
        checkpoint.save(tmp_path, step, parts(step))
    flip_in(tmp_path / "step_000002")
    monkeypatch.setattr(Retention, "spares_an_older", False)
    checkpoint.save(tmp_path, 3, parts(3), Retention(keep_last=2))
    with pytest.raises(AssertionError, match="nothing whole"):
        assert_kept(tmp_path, [1, 2], 3, {2}, Retention(keep_last=2))
