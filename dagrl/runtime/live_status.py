"""LiveStatus: puts into status.json what the run is doing now, from a thread of its own that looks once a second."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType

from dagrl.errors import StorageError
from dagrl.runtime.run_folder import RunFolder
from dagrl.runtime.trace import Trace

INTERVAL_S = 1.0


class LiveStatus:
    """Looks from entering to leaving. The run itself tells it nothing and never waits for it.

    The sign of life that it writes is the last time that anything began or ended, not the time of the look: a run that
    hangs looks as it is.
    """

    def __init__(self, folder: RunFolder, trace: Trace, *, interval_s: float = INTERVAL_S) -> None:
        self._folder = folder
        self._trace = trace
        self._interval_s = interval_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, name="dagrl-live-status", daemon=True)

    def __enter__(self) -> LiveStatus:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        shown = None
        while not self._end.wait(self._interval_s):
            doing = self._trace.doing()
            if doing is None or doing == shown:
                continue
            # A disk that is full stops the run at the end of its step, with the message that belongs to it.
            with suppress(StorageError):
                self._folder.write_doing(doing.phase, doing.since, doing.nodes, heartbeat=doing.changed)
                shown = doing
