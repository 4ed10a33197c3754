"""The process that environments live in: `python -m dagrl.environments.worker <socket fd>`.

The main thread reads calls and never runs user code. Every environment has a thread of its own, so blocking code of one
does not hold up another; what is awaitable is awaited on one event loop in a further thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import inspect
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dagrl.environments import wire
from dagrl.environments.calls import has_async_methods, raised, reset_arguments, step_arguments
from dagrl.environments.protocol import EnvAnswer, read_reset, read_step
from dagrl.errors import DagrlError, UserCodeError, user_traceback
from dagrl.workflow import plugins

_PR_SET_PDEATHSIG = 1
_MAX_TRACE_CHARS = 20_000


class _Seat:
    """One environment and the thread it lives in."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1)
        self._loop = loop
        self._env: Any = None
        self._name = "environment"
        self._file: str | None = None

    def run(self, body: wire.Body) -> EnvAnswer | None:
        """Carries out one call; anything that goes wrong in it comes out as a `DagrlError`."""
        try:
            return self._dispatch(body)
        except DagrlError as error:
            raise self._blamed(error) from error
        except BaseException as error:
            raise raised(error, f"{self._name}.{_METHODS[type(body)]}", self._file) from error

    def _dispatch(self, body: wire.Body) -> EnvAnswer | None:
        if isinstance(body, wire.Load):
            plugins.load(body.ref, body.base)
            return None
        if isinstance(body, wire.Open):
            self._open(body)
            return None
        if isinstance(body, wire.Reset):
            return self._reset(body)
        if isinstance(body, wire.Step):
            return self._step(body)
        close = getattr(self._env, "close", None)
        if close is not None:
            self._call(close)
        return None

    def _open(self, body: wire.Open) -> None:
        self._name = body.ref
        env_class = plugins.load(body.ref, body.base)
        self._name = body.ref.rsplit(":", 1)[-1]
        self._file = _file_of(env_class)
        if has_async_methods(env_class):
            self._env = self._await(_make(env_class, dict(body.kwargs)))
        else:
            self._env = env_class(**body.kwargs)

    def _reset(self, body: wire.Reset) -> EnvAnswer:
        method = getattr(self._env, "reset", None)
        raw = None if method is None else self._call(method, **reset_arguments(method, body.offers))
        return read_reset(raw, body.seats)

    def _step(self, body: wire.Step) -> EnvAnswer:
        request = body.request
        positional, keywords = step_arguments(self._env.step, list(request.actions), request.ground_truth)
        return read_step(self._call(self._env.step, *positional, **keywords), request.seats)

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        value = method(*args, **kwargs)
        return self._await(value) if inspect.isawaitable(value) else value

    def _await(self, value: Awaitable[Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(_finish(value), self._loop).result()
        except _Escape as escape:
            raise escape.original from escape

    def _blamed(self, error: DagrlError) -> DagrlError:
        if isinstance(error, UserCodeError) and error.where is None:
            return UserCodeError(error.what, where=f"{self._file} {self._name}", how=error.how, kind=error.kind)
        return error


_METHODS = {wire.Load: "import", wire.Open: "__init__", wire.Reset: "reset", wire.Step: "step", wire.Close: "close"}


async def _make(env_class: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    return env_class(**kwargs)


class _Escape(Exception):
    """Carries SystemExit and its like across the event loop, which they would end."""

    def __init__(self, original: BaseException) -> None:
        super().__init__(original)
        self.original = original


async def _finish(value: Awaitable[Any]) -> Any:
    try:
        return await value
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise _Escape(error) from error


def _file_of(env_class: Any) -> str | None:
    try:
        return inspect.getsourcefile(env_class)
    except TypeError:
        return None


class _Host:
    """All environments of this process."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._seats: dict[int, _Seat] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def accept(self, call: wire.Call) -> None:
        """Hands a call to its environment's thread; calls of one environment run in the order they came."""
        if isinstance(call.body, wire.Ping):
            self._send(wire.Reply(call_id=call.call_id))
            return
        if isinstance(call.body, wire.Load | wire.Open):
            self._seats[call.env_id] = _Seat(self._loop)
        seat = self._seats[call.env_id]
        seat.thread.submit(self._serve, seat, call)
        if isinstance(call.body, wire.Close):
            del self._seats[call.env_id]
            seat.thread.shutdown(wait=False)

    def _serve(self, seat: _Seat, call: wire.Call) -> None:
        try:
            reply = wire.Reply(call_id=call.call_id, answer=seat.run(call.body))
        except DagrlError as error:
            kind = error.kind if isinstance(error, UserCodeError) else "raised"
            trace = user_traceback(error)[-_MAX_TRACE_CHARS:]
            reply = wire.Reply(call_id=call.call_id, fault=(error.what, error.where, error.how, kind), trace=trace)
        self._send(reply)

    def _send(self, reply: wire.Reply) -> None:
        data = wire.pack(reply)
        with self._lock:
            self._sock.sendall(data)


def main(arguments: list[str]) -> None:
    """Serves calls until the run is gone; then ends at once, whatever environments are doing."""
    _die_with_parent()
    faulthandler.enable()
    _raise_file_limit()
    sock = socket.socket(fileno=int(arguments[0]))
    host = _Host(sock)
    sock.sendall(wire.pack(wire.Reply(call_id=wire.READY, pid=os.getpid())))
    for call in wire.calls(sock):
        host.accept(call)
    os._exit(0)


def _die_with_parent() -> None:
    """Linux: the kernel kills this process when its guardian dies; elsewhere the closed socket ends it with the run."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main(sys.argv[1:])
