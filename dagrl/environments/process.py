"""One worker process as the run sees it: started, spoken to, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from dagrl.environments import wire
from dagrl.environments.protocol import EnvAnswer
from dagrl.errors import UserCodeError

_CALLS_AT_ONCE = 64
"""Calls under way in one process: more would share its one interpreter lock and run into their time limits."""
_START_S = 120.0
"""Longest start of a process, before the clock of any environment runs."""
_PING_S = 2.0
"""Longest answer to a ping after a call ran out of time; a process that takes longer is taken for stuck."""
_COMPUTES = 0.1
"""A process that used so much of the time was computing and not waiting."""
_NOBODY = -1
"""Stands for an environment where a message is for the process itself."""
_TAIL_CHUNKS = 4
_CHUNK_BYTES = 4096
_GUARDIAN = (sys.executable, "-I", "-S", str(Path(__file__).with_name("guardian.py")))
"""Starts the worker, and ends it with all that environments started."""
_BURIAL_S = 10.0
"""Longest time that the guardian gets for that; one that environments have stopped never would."""
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Worker:
    """A worker process. All methods belong to the event loop it was started on."""

    def __init__(self, on_death: Callable[[Worker], None], *, is_single_use: bool = False) -> None:
        """`is_single_use`: it is for one environment and ends with it."""
        self.is_single_use = is_single_use
        own, other = socket.socketpair()
        output, output_of_child = os.pipe()
        with other:
            self._process = subprocess.Popen(
                [*_GUARDIAN, str(os.getpid()), sys.executable, "-m", "dagrl.environments.worker", str(other.fileno())],
                pass_fds=(other.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=output_of_child,
                stderr=output_of_child,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            )
        os.close(output_of_child)
        self._socket = own
        self._output = output
        self._tail: deque[bytes] = deque(maxlen=_TAIL_CHUNKS)
        self._on_death = on_death
        self._pending: dict[int, asyncio.Future[EnvAnswer | None]] = {}
        self._next_call = 0
        self._slots = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._pid: int | None = None
        self.envs: set[int] = set()
        """Environments that live here."""
        self.is_tainted = False
        """True after a call ran out of time: something in here still runs and cannot be stopped."""
        self.is_dead = False

    async def start(self) -> None:
        """Connects and waits until the process is ready. Raises `UserCodeError` where it never is."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[EnvAnswer | None] = loop.create_future()
        self._pending[wire.READY] = ready
        os.set_blocking(self._output, False)
        loop.add_reader(self._output, self._drain_output)
        reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
        self._reading = loop.create_task(self._read(reader))
        try:
            await asyncio.wait_for(ready, _START_S)
        except TimeoutError:
            self.kill()
            raise self._died() from None
        del self._pending[wire.READY]

    async def call(self, env_id: int, body: wire.Body, timeout_s: float) -> EnvAnswer | None:
        """One call; the clock runs from when it is sent. Raises `UserCodeError` (timeout, worker_died, …)."""
        async with self._slots:
            if self.is_dead:
                raise self._died()
            cpu_before = self._cpu_seconds()
            future = self._send(env_id, body)
            try:
                return await asyncio.wait_for(future, timeout_s)
            except TimeoutError:
                self.is_tainted = True
                if not self.is_single_use and not await self._responds():
                    self.kill()
                    raise self._died() from None
                used = self._cpu_seconds() - cpu_before
                raise UserCodeError(
                    f"no answer within {timeout_s:g} s; its process used {used:.1f} s of CPU meanwhile "
                    + ("(it computed)" if used > _COMPUTES * timeout_s else "(it waited, or the machine was busy)"),
                    how="make the call faster or raise config.rollout.env_timeout_s",
                    kind="timeout",
                ) from None

    async def _responds(self) -> bool:
        """False where one call keeps all others from running, so that nobody knows whose fault it is."""
        if self.is_dead:
            return False
        try:
            await asyncio.wait_for(self._send(_NOBODY, wire.Ping()), _PING_S)
        except (TimeoutError, UserCodeError):
            return False
        return True

    def kill(self) -> None:
        """Ends the process and whatever environments in it started. Calls under way fail."""
        if self.is_dead:
            return
        self.is_dead = True
        self._process.terminate()
        try:
            self._process.wait(_BURIAL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the worker dies with its guardian
            self._process.wait()
        self._drain_output()
        asyncio.get_running_loop().remove_reader(self._output)
        os.close(self._output)
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(self._died())
        self._pending.clear()
        self._on_death(self)

    def _send(self, env_id: int, body: wire.Body) -> asyncio.Future[EnvAnswer | None]:
        assert self._writer is not None, "the worker was not started"
        call_id, self._next_call = self._next_call, self._next_call + 1
        try:
            data = wire.pack(wire.Call(call_id=call_id, env_id=env_id, body=body))
        except Exception as error:
            raise UserCodeError(
                f"cannot be sent to the environment's process: {type(error).__name__}: {error}",
                how="env_kwargs, ground_truth and extra_info must be picklable",
                kind="bad_argument",
            ) from error
        future = asyncio.get_running_loop().create_future()
        self._pending[call_id] = future
        future.add_done_callback(lambda _: self._pending.pop(call_id, None))
        self._writer.write(data)
        return future

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (length,) = wire.LENGTH.unpack(await reader.readexactly(wire.LENGTH.size))
                self._answer(wire.unpack(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            self._reading = None
            self.kill()

    def _answer(self, reply: wire.Reply) -> None:
        future = self._pending.get(reply.call_id)
        if future is None or future.done():
            return
        if reply.call_id == wire.READY:
            self._pid = reply.pid
        if reply.fault is None:
            future.set_result(reply.answer)
        else:
            what, where, how, kind = reply.fault
            error = UserCodeError(what, where=where, how=how, kind=kind)
            if reply.trace:
                error.add_note(reply.trace)
            future.set_exception(error)

    def _drain_output(self) -> None:
        """Keeps the end of what environments print; the rest is dropped."""
        while True:
            try:
                chunk = os.read(self._output, _CHUNK_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                asyncio.get_running_loop().remove_reader(self._output)
                return
            self._tail.append(chunk)

    def _died(self) -> UserCodeError:
        code = self._process.returncode
        number = 0 if code is None else -code if code < 0 else code - 128
        how = f"signal {number}" if 0 < number < signal.NSIG else f"exit code {code}"
        if self.is_tainted:
            how = "killed, because a call in it did not come back"
        tail = b"".join(self._tail).decode(errors="replace").strip()[-500:]
        said = f"; it last printed: {tail}" if tail else ""
        return UserCodeError(f"the process that the environment lived in ended ({how}){said}", kind="worker_died")

    def _cpu_seconds(self) -> float:
        """User and system time of the process so far; 0 where the system does not tell."""
        try:
            with open(f"/proc/{self._pid}/stat", encoding="utf-8") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS
