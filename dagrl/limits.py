"""Calls of user code in this process: an end to those that hang, and what they change in the process put back."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Generator, Iterator
from contextlib import contextmanager
from types import coroutine
from typing import Any, TypeVar

from dagrl.errors import DagrlError, TimeUp

_T = TypeVar("_T")
_LAST_RESORT_FACTOR = 3.0
_LAST_RESORT_S = 30.0
"""Past `_LAST_RESORT_FACTOR` time limits and these seconds the process ends: the call cannot be interrupted."""
_KEPT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `TimeUp` in the block when `seconds` of the clock have passed, and again until the block ends.

    By SIGALRM, which reaches loops and waits of Python and of most C code. Where it does not (a deadlock in C code,
    code that swallows every exception), the process ends a while later with the stacks of all its threads on stderr
    and exit code 1: a hang must not be silent. Raises DagrlError outside the main thread, where there is no such
    signal.
    """
    if threading.current_thread() is not threading.main_thread():
        raise DagrlError("user code is called outside the main thread", how="play from the main thread of the process")

    def ring(number: int, frame: Any) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    last_resort = _LAST_RESORT_FACTOR * seconds + _LAST_RESORT_S
    faulthandler.dump_traceback_later(last_resort, exit=True, file=sys.__stderr__ or 2)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


@contextmanager
def contained() -> Iterator[None]:
    """Puts back the working directory and the handlers of signals that end a run, whatever the block did to them."""
    folder = os.getcwd()
    handlers = {number: signal.getsignal(number) for number in _KEPT_SIGNALS}
    try:
        yield
    finally:
        if _folder_now() != folder:
            os.chdir(folder)
        for number, handler in handlers.items():
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)


async def in_limited_pieces(awaited: Awaitable[_T], seconds: float) -> _T:
    """Awaits `awaited`; every piece between two of its waits is contained and has `seconds`.

    Without it a coroutine that computes or blocks would hold up the event loop, and no timeout of the loop could come.
    """
    return await _pieces(awaited, seconds)


@coroutine
def _pieces(awaited: Awaitable[_T], seconds: float) -> Generator[Any, Any, _T]:
    pieces: Any = awaited.__await__()
    advance, given = pieces.send, None
    while True:
        try:
            with contained(), time_limit(seconds):
                waits_for = advance(given)
        except StopIteration as end:
            result: _T = end.value
            return result
        try:
            given = yield waits_for
            advance = pieces.send
        except BaseException as error:  # noqa: BLE001 - it is thrown where it belongs
            given, advance = error, pieces.throw


def _folder_now() -> str | None:
    """None where the working directory was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None
