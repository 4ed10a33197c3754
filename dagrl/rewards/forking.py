"""What the process of a `ForkServer` does: forks one of its own for each connection that it is handed.

Part of a process that must know nothing of dagrl; imports the standard library only.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

CONNECTION = 0
"""The server's descriptor for what is handed to it, and in the processes that it forks their connection."""


def serve(answer: Callable[[], None]) -> None:
    """Calls `answer` in a session of its own for every connection, and says so, until the other side is gone."""
    control = socket.socket(fileno=CONNECTION)
    signal.signal(signal.SIGCHLD, _bury)
    gc.freeze()  # what is here now is left alone by the collector, or every process would copy all of it
    while received := socket.recv_fds(control, 1, 1)[1]:
        if os.fork() == 0:
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setsid()
                os.dup2(received[0], control.detach())
                os.close(received[0])
                answer()
            finally:
                os._exit(1)
        os.close(received[0])
        control.send(b"1")


def _bury(*_: Any) -> None:
    """Takes the exit status of every child that is dead."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:  # that was the last
        pass
