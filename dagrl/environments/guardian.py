"""The process between the run and an environment worker: `python guardian.py <pid of the run> <command of the worker>`.

Processes that environments start are the worker's children, or nobody's once they turn into daemons. The kernel gives
those to the guardian (Linux), so that when the worker ends, the run ends or asks for it by SIGTERM, nothing is missed.
It imports nothing that takes time to start or room in memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENDINGS = (signal.SIGCHLD, signal.SIGTERM)


def main(arguments: list[str]) -> int:
    """The worker's exit code, 128 and more where a signal ended it, once nothing that it started is left."""
    run, command = int(arguments[0]), arguments[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    worker = os.posix_spawn(command[0], command, os.environ, setsid=True, setsigmask=())
    status = None
    # A run that died before the kernel was asked for a signal sends none.
    while status is None and os.getppid() == run and signal.sigwait(_ENDINGS) == signal.SIGCHLD:
        status = _bury(worker)
    code = os.waitstatus_to_exitcode(_end_all(worker, status))
    return code if code >= 0 else 128 - code


def _bury(worker: int) -> int | None:
    """Takes the exit status of every child that is dead; gives the worker's, if that is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):  # the worker was the last
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            found = ended[1] if ended[0] == worker else found
    return found


def _end_all(worker: int, status: int | None) -> int:
    """Kills until nothing is left (the children of what dies become the guardian's); gives the worker's status."""
    while True:
        for pid in _children(worker):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, ended = os.waitpid(-1, 0)
        except ChildProcessError:
            assert status is not None, "the worker stays a child until its status is taken"
            return status
        status = ended if pid == worker else status


def _children(worker: int) -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # not Linux: the worker's process group
        return [-worker]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
