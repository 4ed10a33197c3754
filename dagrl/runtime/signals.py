"""SIGINT and SIGTERM of a run: the first ends it in good order, the second at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_STDERR = 2


class StoppedEarly(SystemExit):
    """A signal came before there was a step to finish; `code` is the exit code."""


class StopSignals:
    """What the first signal does: it raises `StoppedEarly`, or calls what `on_stop` was given."""

    def __init__(self) -> None:
        self._request: Callable[[int], None] | None = None
        self._came: int | None = None

    @property
    def is_early(self) -> bool:
        """True if a signal came before the first step."""
        return self._came is not None and self._request is None

    def on_stop(self, request: Callable[[int], None]) -> None:
        """From now on `request` is called with the number of the signal; it may only set a flag."""
        self.raise_if_early()
        self._request = request

    def raise_if_early(self) -> None:
        if self._came is not None and self._request is None:
            raise StoppedEarly(128 + self._came)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Writes past all buffers: the signal may have come in the middle of a `print`, which may not be entered twice.

        Nothing is lost where the process ends at once: every file in the run folder is whole, or a log whose last line
        may be torn; the processes of environments die with it.
        """
        if self._came is not None:
            os._exit(128 + number)
        self._came = number
        name = signal.Signals(number).name
        if self._request is None:
            os.write(_STDERR, f"{name}: stopping before the first step\n".encode())
            self.raise_if_early()
        else:
            self._request(number)
            os.write(_STDERR, f"{name}: finishing this step, then stopping; once more stops at once\n".encode())


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Handles both signals in the block."""
    stop = StopSignals()
    before = {number: signal.signal(number, stop.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    except Exception:
        stop.raise_if_early()  # code in C turned it into an error of its own, say of a file that cannot be read
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
