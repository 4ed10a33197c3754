"""Which phase a run is in, written down by the run itself so that it can be read after `kill -9`."""

from __future__ import annotations

import mmap
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

PHASES = ("start", "load", "play", "learn", "evaluate", "save", "end")
_RECORD_BYTES = 64


def marking(marks: Path) -> Callable[[], None]:
    """A `setup` for a child of the fork server that writes its phases to `marks`."""
    return partial(_install, marks)


def dying(phase: str, number: int) -> Callable[[], None]:
    """A `setup` that ends the run by `kill -9` where it enters `phase` for the `number`th time."""
    return partial(_install_death, phase, number)


def read(marks: Path) -> tuple[str, int]:
    """(phase, how often a phase of this name was entered so far) of a run that lives or has been killed."""
    content = marks.read_bytes().rstrip(b"\0").decode() if marks.exists() else ""
    name, _, number = content.partition(" ")
    return (name, int(number)) if number.endswith("\n") else ("start", 1)


class _Marks:
    """A page of a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_RECORD_BYTES))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _RECORD_BYTES)
        self._entered: Counter[str] = Counter()
        self._stack = ["start"]
        self._write("start")

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._entered[name] += 1
        self._stack.append(name)
        self._write(name)
        try:
            yield
        finally:
            self._stack.pop()
            self._write(self._stack[-1])

    def _write(self, name: str) -> None:
        self._page[:] = f"{name} {self._entered[name]}\n".encode().ljust(_RECORD_BYTES, b"\0")


class _Death:
    def __init__(self, phase: str, number: int) -> None:
        self._phase = phase
        self._left = number

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._left -= name == self._phase
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield


def _install(path: Path) -> None:
    _watch(_Marks(path))


def _install_death(phase: str, number: int) -> None:
    _watch(_Death(phase, number))


def _watch(marks: _Marks | _Death) -> None:
    from dagrl.runtime import checkpoint, session
    from dagrl.runtime.executor import Executor
    from dagrl.runtime.player import Player
    from dagrl.runtime.trainer import Trainer

    assert os.getpid() == os.getsid(0), "only a child of the fork server may be patched"
    _wrap(session, "_build", marks, "load")
    _wrap(Player, "play", marks, "play", is_async=True)
    _wrap(Executor, "learn", marks, "learn")
    _wrap(Trainer, "_evaluate", marks, "evaluate", is_async=True)
    _wrap(checkpoint, "save", marks, "save")


def _wrap(owner: Any, name: str, marks: _Marks | _Death, phase: str, *, is_async: bool = False) -> None:
    original = getattr(owner, name)

    @wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with marks.phase(phase):
            return original(*args, **kwargs)

    @wraps(original)
    async def wrapped_async(*args: Any, **kwargs: Any) -> Any:
        inner = "evaluate" if kwargs.get("sampling") == "val" else phase
        with marks.phase(inner):
            return await original(*args, **kwargs)

    setattr(owner, name, wrapped_async if is_async else wrapped)
