"""A disk that can lose its power: what a process did to it is recorded, and every state it may be in is made anew.

The model is the harshest that POSIX allows. What was written to a file is sure to be there after an fsync of the file;
until then it may be missing, cut off or have holes. What was done to the names in a folder (made, renamed, removed) is
sure after an fsync of the folder; until then any part of it may have happened, in any order that makes sense.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECTOR_BYTES = 512

Inode = int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing done to the disk."""

    kind: str
    """write, link, rename, unlink, fsync_file, fsync_folder."""
    folder: Inode = 0
    """Whose names change, or are made sure."""
    name: str = ""
    new_name: str = ""
    inode: Inode = 0
    """What the name stands for, or the file that is written or made sure."""
    content: bytes | None = None
    """Of a write: the whole file; None for a folder that is made."""


@dataclass(slots=True)
class Disk:
    """Inodes: a file's bytes, a folder's names. 1 is the root."""

    files: dict[Inode, bytes] = field(default_factory=dict)
    folders: dict[Inode, dict[str, Inode]] = field(default_factory=lambda: {1: {}})

    def copy(self) -> Disk:
        return Disk(dict(self.files), {inode: dict(names) for inode, names in self.folders.items()})

    def tree(self, folder: Inode = 1, above: str = "") -> dict[str, bytes | None]:
        """Path to content; None for a folder."""
        found: dict[str, bytes | None] = {}
        for name, inode in self.folders[folder].items():
            if inode in self.folders:
                found[f"{above}{name}"] = None
                found |= self.tree(inode, f"{above}{name}/")
            else:
                found[f"{above}{name}"] = self.files.get(inode, b"")
        return found

    def apply(self, operation: Operation) -> None:
        """Does it; what no longer makes sense, because something before it was lost, does nothing."""
        names = self.folders.setdefault(operation.folder, {}) if operation.folder else {}
        if operation.kind == "write":
            self.files[operation.inode] = operation.content or b""
        elif operation.kind == "link":
            names[operation.name] = operation.inode
        elif operation.kind == "rename":
            names.pop(operation.name, None)
            names[operation.new_name] = operation.inode
        elif operation.kind == "unlink" and names.get(operation.name) == operation.inode:
            del names[operation.name]


class Recording:
    """The operations on a folder while `recorded` was active, and the disk before them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.start = Disk()
        self.operations: list[Operation] = []
        self._inodes: dict[str, Inode] = {"": 1}
        self._contents: dict[str, bytes] = {}
        self._count = 1
        for operation in self._news():
            self.start.apply(operation)

    def states(self, draw: random.Random, number: int, *, is_lying: bool = False) -> Iterator[tuple[int, Disk]]:
        """`number` times: how many operations had been done, and a disk that may be left when the power goes then.

        A lying disk forgets, after all was done, some of the contents that it said were sure: of what was written since
        the recording began.
        """
        for _ in range(number):
            all_done = len(self.operations)
            done = all_done if is_lying or draw.random() < 0.2 else draw.randrange(all_done + 1)
            yield done, self._crashed(draw, done, is_lying)

    def catch_up(self) -> None:
        """Records what was made or written since the last operation."""
        self.operations += self._news()

    def folder_changed(self, kind: str, path: Path, new: Path | None = None) -> None:
        name = self._name(path)
        above, _, last = name.rpartition("/")
        inode = self._inodes[name]
        target = "" if new is None else self._name(new)
        assert new is None or target.rpartition("/")[0] == above, "a rename from folder to folder is not modelled"
        self.operations.append(
            Operation(kind=kind, folder=self._inodes[above], name=last, new_name=target.rpartition("/")[2], inode=inode)
        )
        for known in [one for one in self._inodes if one == name or one.startswith(f"{name}/")]:
            moved, content = self._inodes.pop(known), self._contents.pop(known, None)
            if new is not None:
                self._inodes[target + known[len(name) :]] = moved
                if content is not None:
                    self._contents[target + known[len(name) :]] = content

    def made_sure(self, path: Path) -> None:
        inode = self._inodes[self._name(path)]
        if path.is_dir():
            self.operations.append(Operation(kind="fsync_folder", folder=inode))
        else:
            self.operations.append(Operation(kind="fsync_file", inode=inode))

    def _name(self, path: Path) -> str:
        name = path.relative_to(self.root).as_posix()
        return "" if name == "." else name

    def _news(self) -> list[Operation]:
        found = []
        for path in sorted(self.root.rglob("*")):
            name = self._name(path)
            is_folder = stat.S_ISDIR(path.lstat().st_mode)
            content = b"" if is_folder else path.read_bytes()
            if name not in self._inodes:
                self._count += 1
                self._inodes[name] = self._count
                above, _, last = name.rpartition("/")
                found.append(Operation(kind="link", folder=self._inodes[above], name=last, inode=self._count))
            if is_folder:
                self.start.folders.setdefault(self._inodes[name], {})
            elif self._contents.get(name) != content:
                self._contents[name] = content
                found.append(Operation(kind="write", inode=self._inodes[name], content=content))
        return found

    def _crashed(self, draw: random.Random, done: int, is_lying: bool) -> Disk:
        disk = self.start.copy()
        pending: list[Operation] = []
        for operation in self.operations[:done]:
            if operation.kind.startswith("fsync"):
                is_kept = operation.kind == "fsync_folder" or not is_lying
                still: list[Operation] = []
                for one in pending:
                    if is_kept and _is_covered(one, operation):
                        disk.apply(one)
                    else:
                        still.append(one)
                pending = still
            else:
                pending.append(operation)
        share, torn = draw.choice((0.9, 1.0) if is_lying else (0.0, 0.5, 0.9, 1.0)), draw.choice((0.1, 0.5))
        for operation in pending:
            if draw.random() < share:
                disk.apply(_torn(draw, operation) if draw.random() < torn else operation)
        return disk


def _is_covered(operation: Operation, fsync: Operation) -> bool:
    if fsync.kind == "fsync_file":
        return operation.kind == "write" and operation.inode == fsync.inode
    return operation.kind != "write" and operation.folder == fsync.folder


def _torn(draw: random.Random, operation: Operation) -> Operation:
    """A write of which only a part arrived."""
    if operation.content is None:
        return operation
    content = bytearray(operation.content)
    if draw.random() < 0.5:
        del content[draw.randrange(len(content) + 1) :]
    else:
        for start in range(0, len(content), SECTOR_BYTES):
            if draw.random() < 0.5:
                content[start : start + SECTOR_BYTES] = bytes(len(content[start : start + SECTOR_BYTES]))
    return Operation(kind="write", inode=operation.inode, content=bytes(content))


def write_out(tree: dict[str, bytes | None], folder: Path) -> None:
    """Makes `tree` below `folder`, which is empty."""
    for name, content in tree.items():  # a folder stands before what is in it
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)


@contextmanager
def recorded(root: Path) -> Iterator[Recording]:
    """Records all that is done to `root` meanwhile: names by the calls themselves, contents by what is in the files.

    What Rust or C writes is seen too, since the folder is looked through before every call that orders things.
    """
    recording = Recording(root)
    genuine: dict[str, Callable[..., Any]] = {
        name: getattr(os, name) for name in ("fsync", "rename", "replace", "unlink", "remove", "rmdir")
    }

    def place(path: Any, folder: int | None = None) -> Path:
        above = Path.cwd() if folder is None else Path(os.readlink(f"/proc/self/fd/{folder}"))
        return above / os.fspath(path)

    def is_inside(path: Path) -> bool:
        return path.is_relative_to(root) and path != root

    def fsync(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        genuine["fsync"](handle)
        if path == root or is_inside(path):
            recording.catch_up()
            recording.made_sure(path)

    def renaming(name: str) -> Callable[..., None]:
        def call(old: Any, new: Any) -> None:
            recording.catch_up()
            genuine[name](old, new)
            if is_inside(place(old)):
                recording.folder_changed("rename", place(old), place(new))

        return call

    def removing(name: str) -> Callable[..., None]:
        def call(path: Any, *, dir_fd: int | None = None) -> None:
            recording.catch_up()
            where = place(path, dir_fd)
            genuine[name](path, dir_fd=dir_fd)
            if is_inside(where):
                recording.folder_changed("unlink", where)

        return call

    own = {"fsync": fsync} | {name: renaming(name) for name in ("rename", "replace")}
    own |= {name: removing(name) for name in ("unlink", "remove", "rmdir")}
    for name, call in own.items():
        setattr(os, name, call)
    try:
        yield recording
        recording.catch_up()
    finally:
        for name, call in genuine.items():
            setattr(os, name, call)
