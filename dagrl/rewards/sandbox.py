"""Runs a program that a model wrote: no network, no file of the user, limits on everything, nothing left behind."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from dagrl.errors import DagrlError
from dagrl.rewards.fork_server import ForkServer
from dagrl.rewards.seccomp import filter_program

ALLOW_WEAK = "DAGRL_ALLOW_WEAK_SANDBOX"
"""Set to 1, this variable lets programs run where the kernel does not give all walls."""

_COMMAND = [
    *(sys.executable, "-s", "-S", "-P", "-c"),
    "import sys; sys.path.append(sys.argv.pop()); import forking, sandbox_worker as worker; sys.path.pop(); "
    "forking.serve(worker.play_job)",
    str(Path(__file__).parent),
]
"""Imported and not run as a file: so its compiled form is kept."""
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "PYTHONINTMAXSTRDIGITS": "0",
    "MALLOC_ARENA_MAX": "1",  # an arena of each thread would take 64 MiB of the address space
}
_START_S = 60.0
"""Longest start of the sandbox's own process on an overloaded machine."""
_TRIES = 2
"""Of a start: where the first process was killed from outside, another one begins."""
_BUSY_SHARE = 0.5
"""A program that the clock stopped after so much of its CPU limit was too slow; with less, the machine was."""


class Ending(StrEnum):
    """How a program ended."""

    FINISHED = "finished"
    """By itself with exit code 0."""
    CRASHED = "crashed"
    """By an exception, a signal or another exit code; memory that it was refused counts here."""
    CPU_LIMIT = "cpu_limit"
    OUTPUT_LIMIT = "output_limit"
    CLOCK = "clock"
    """Stopped by the clock with little CPU used: it waited, or the machine was busy. Says nothing of the program."""
    LOST = "lost"
    """A process of the sandbox's own, or the program from outside, was killed. Says nothing of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use on one input."""

    cpu_s: int = 6
    """Seconds of CPU time, of all its threads together."""
    wall_s: float = 60.0
    """Seconds by the clock; far above `cpu_s`, since it only ends what waits."""
    memory_bytes: int = 1 << 30
    """Address space."""
    output_bytes: int = 1 << 24
    """Of stdout, of stderr and of the returned value, each."""
    threads: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a program did with one input."""

    ending: Ending
    stdout: str
    stderr: str
    """Its last part, with the traceback of a crash."""
    answer: str
    """JSON of what the called function returned; "" where it returned nothing that JSON can say, or was not called."""
    cpu_s: float
    wall_s: float


_LOST = Outcome(ending=Ending.LOST, stdout="", stderr="", answer="", cpu_s=0.0, wall_s=0.0)


def run_program(
    program: str,
    cases: Sequence[Any],
    *,
    fn_name: str | None = None,
    limits: Limits | None = None,
    allow_weak: bool | None = None,
) -> Generator[Outcome, None, None]:
    """Plays the Python source `program` on each of `cases`, each in a fresh process; yields the outcomes in order.

    A case is the text on stdin, or, with `fn_name`, the list of arguments of that function (or method of the class
    `Solution`). Closing the iterator stops what still runs. Programs see the standard library only and can neither
    write files nor start processes; at most as many as there are cores run at once, the others wait their turn. Raises
    DagrlError where the kernel lacks a wall and `allow_weak` (None: the variable DAGRL_ALLOW_WEAK_SANDBOX) is not set.
    """
    limits = Limits() if limits is None else limits
    job: dict[str, Any] = {
        "program": program,
        "fn_name": fn_name,
        "cases": list(cases),
        "limits": {name: getattr(limits, name) for name in Limits.__dataclass_fields__},
        "seccomp": _filter(),
        "allow_weak": os.environ.get(ALLOW_WEAK) == "1" if allow_weak is None else allow_weak,
    }
    with _slots(), _started(job) as (hello, lines):
        _check_walls(hello, job["allow_weak"])
        for _ in cases:
            line = lines.next(limits.wall_s + _START_S)
            yield _LOST if line is None else _outcome(json.loads(line), limits)


def missing_walls() -> dict[str, str]:
    """What this machine's kernel refuses to a sandbox, with its reason; empty where it stands on its first choice."""
    with _started({"cases": [], "seccomp": _filter(), "allow_weak": True}) as (hello, _):
        return dict(hello["missing"])


@functools.cache
def _filter() -> str | None:
    program = filter_program()
    return None if program is None else program.hex()


@functools.cache
def _slots() -> threading.BoundedSemaphore:
    """One for this process: more programs than cores would only run into their clocks."""
    return threading.BoundedSemaphore(len(os.sched_getaffinity(0)))


@functools.cache
def _server() -> ForkServer:
    """One for this process; it knows nothing of it and has next to no environment."""
    return ForkServer(_COMMAND, _ENVIRONMENT)


@contextlib.contextmanager
def _started(job: dict[str, Any]) -> Iterator[tuple[dict[str, Any], _Lines]]:
    """What a fresh process that has the job says of its walls, and its further lines; in the end it is stopped."""
    if sys.platform != "linux":
        raise DagrlError("programs of a model run on Linux only", where="reward 'code'", how="use a Linux container")
    data = json.dumps(job).encode()
    for _ in range(_TRIES):
        with _server().connect(_START_S) as connection:
            try:
                lines = _Lines(connection)
                _send(connection, data)
                hello = lines.next(_START_S)
                if hello is not None:
                    yield json.loads(hello), lines
                    return
            finally:
                _hang_up(connection)
    _server().close()
    raise _no_start()


def _send(connection: socket.socket, data: bytes) -> None:
    connection.settimeout(_START_S)
    with contextlib.suppress(ConnectionError, TimeoutError):  # it died or hangs; the first read says so
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def _hang_up(connection: socket.socket) -> None:
    """The process stops what it plays. Closing alone would not do: a process forked meanwhile may hold a copy."""
    with contextlib.suppress(OSError):  # it went first
        connection.shutdown(socket.SHUT_RDWR)


class _Lines:
    """The lines that a process writes, each with its time limit."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = bytearray()

    def next(self, limit_s: float) -> bytes | None:
        """None where the process ends or `limit_s` passes before the line is whole."""
        deadline = time.monotonic() + limit_s
        ready = select.poll()
        ready.register(self._connection, select.POLLIN)
        searched = 0
        while (end := self._rest.find(b"\n", searched)) < 0:
            searched = len(self._rest)
            if not ready.poll(max(deadline - time.monotonic(), 0.0) * 1000):
                return None
            try:
                part = self._connection.recv(1 << 16)
            except ConnectionError:
                return None
            if not part:
                return None
            self._rest += part
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return line


def _check_walls(hello: dict[str, Any], allow_weak: bool) -> None:
    if hello["is_strong"] or allow_weak:
        return
    missing = "; ".join(f"{wall} ({reason})" for wall, reason in hello["missing"].items())
    raise DagrlError(
        f"programs of a model cannot be walled in on this machine; the kernel refuses: {missing}",
        where="reward 'code'",
        how="allow user namespaces or Landlock, and seccomp, in the container"
        f" (or set {ALLOW_WEAK}=1 to run model-written programs with the walls that are left)",
    )


def _no_start() -> DagrlError:
    return DagrlError(
        "the sandbox did not start: its process ended or was silent",
        where="reward 'code'",
        how=f"run `{shlex.join(_COMMAND)} < /dev/null` and see what it says",
    )


def _outcome(raw: dict[str, Any], limits: Limits) -> Outcome:
    if not raw["has_begun"]:
        if not raw["stderr"]:  # killed from outside before it could start
            return _LOST
        raise DagrlError(f"a wall of the sandbox could not be put up: {raw['stderr']}", where="reward 'code'")
    return Outcome(
        ending=_ending(raw, limits),
        stdout=raw["stdout"],
        stderr=raw["stderr"],
        answer=raw["answer"],
        cpu_s=raw["cpu_s"],
        wall_s=raw["wall_s"],
    )


def _ending(raw: dict[str, Any], limits: Limits) -> Ending:
    if raw["was_stopped"]:
        return Ending.CPU_LIMIT if raw["cpu_s"] >= _BUSY_SHARE * limits.cpu_s else Ending.CLOCK
    if raw["exit_code"] in (-signal.SIGKILL, -signal.SIGXCPU):
        return Ending.CPU_LIMIT if raw["cpu_s"] >= _BUSY_SHARE * limits.cpu_s else Ending.LOST
    if raw["is_full"]:
        return Ending.OUTPUT_LIMIT
    return Ending.FINISHED if raw["exit_code"] == 0 else Ending.CRASHED
