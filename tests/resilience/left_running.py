"""Processes that a run started and that are still there."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path


def left_running(project: Path) -> dict[int, str]:
    """Processes (id: command) that a run in `project` started and that still run; they inherit where its cache is."""
    sign = f"DAGRL_CACHE={project}/cache".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if sign in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return found


def is_soon(condition: Callable[[], bool], limit_s: float = 120.0) -> bool:
    """Waits for it, for as long as only something broken takes."""
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def unguarded() -> None:
    """A `setup` that starts workers of environments without their guardian."""
    from dagrl.environments import process

    start = "import os, sys; os.execv(sys.argv[2], sys.argv[2:])"
    process._GUARDIAN = (sys.executable, "-I", "-S", "-c", start)
