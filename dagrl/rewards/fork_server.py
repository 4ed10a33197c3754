"""A process that has made its imports and forks one of its own for every job, so that a job starts at once."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence


class ForkServer:
    """Started when it is first needed, again when it died, and gone with this process. For several threads.

    Its only way in is a Unix socket on its descriptor 0, and what goes in are descriptors, never data: each job talks
    with the process that was forked for it over a connection of its own. What comes out is a byte for each fork. When
    this process ends, however it ends, the kernel closes the socket, which the server takes for its end. Processes
    forked from this one start their own.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """`command` starts a process that calls `forking.serve`."""
        self._command = command
        self._environment = environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    @property
    def pid(self) -> int | None:
        """None before the first job."""
        return None if self._process is None else self._process.pid

    def connect(self, limit_s: float) -> socket.socket:
        """A connection with a fresh process; one that ends at once where none can be started, or not in `limit_s`."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            if not self._forks_for(theirs, limit_s):  # it died since its last job
                self._forks_for(theirs, limit_s)
        return ours

    def close(self) -> None:
        """Ends it, and all that it forked; the next job starts another one."""
        with self._lock:
            self._stop()

    def _forks_for(self, connection: socket.socket, limit_s: float) -> bool:
        """False where the server died, and may be started again. What is sent to one that is dying is lost without a
        word, so it says when it has forked."""
        try:
            control = self._running()
            control.settimeout(limit_s)
            socket.send_fds(control, [b"1"], [connection.fileno()])
            if control.recv(1):
                return True
        except ConnectionError:
            pass
        except TimeoutError:  # it hangs, and another one would
            self._stop()
            return True
        self._stop()
        return False

    def _running(self) -> socket.socket:
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                    env=self._environment,
                )
        return self._control

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._control = self._process = None

    def _forget(self) -> None:
        """In a process forked from this one: it must neither keep the parent's server alive nor end it."""
        self._lock = threading.Lock()
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.returncode = 0  # it is the parent's child, so nobody waits for it here
        self._control = self._process = None
