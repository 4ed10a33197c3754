"""Runs the real `dagrl` command in children of a process that has imported everything once: a start costs little.

A child is a session of its own and ends as a command would: by its exit code, or by the signal that killed it.
"""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 1800.0
"""Longest life of a command before a test calls it hung."""

_numbers = itertools.count()
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.preload"])


class Command:
    """`dagrl WORDS` in a child; what it prints is in `log`."""

    def __init__(
        self,
        *words: str,
        cwd: Path,
        setup: Callable[[], None] | None = None,
        log: Path | None = None,
        errors: Path | None = None,
    ) -> None:
        """`setup` (picklable) is called in the child before the command: spies, and protections taken away. `errors`:
        where its stderr goes; without it to the log too."""
        self.log = cwd / f"{next(_numbers)}.log" if log is None else log
        self._process = _context.Process(target=_run, args=(words, cwd, (self.log, errors or self.log), setup))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, if there is still somebody to get it."""
        if self._process.is_alive():
            os.kill(self.pid, number)

    def wait(self) -> int:
        """The exit code; -9 after `kill -9`. One that does not end fails the test and is killed."""
        self._process.join(LIMIT_S)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
            raise AssertionError(f"did not end within {LIMIT_S:g} s:\n{self.output}")
        return code


def dagrl(*words: str, cwd: Path, setup: Callable[[], None] | None = None) -> Command:
    """Runs a command to its end, which must be a good one."""
    command = Command(*words, cwd=cwd, setup=setup)
    code = command.wait()
    assert code == 0, f"{' '.join(words)}: exit code {code}\n{command.output}"
    return command


def completed(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, whatever that is; what `tests.command.dagrl` gives, without the time of a start."""
    with tempfile.TemporaryDirectory() as folder:
        log, errors = Path(folder, "out"), Path(folder, "err")
        code = Command(*words, cwd=cwd, log=log, errors=errors).wait()
        return subprocess.CompletedProcess(words, code, log.read_text("utf-8"), errors.read_text("utf-8"))


def nothing(module: str, *names: str) -> None:
    """Takes a protection away, as (part of) a `setup`: the function named does nothing any more."""
    owner = importlib.import_module(module)
    for name in names[:-1]:
        owner = getattr(owner, name)
    setattr(owner, names[-1], lambda *args, **kwargs: None)


def _run(words: tuple[str, ...], cwd: Path, logs: tuple[Path, Path], setup: Callable[[], None] | None) -> None:
    os.setsid()
    os.chdir(cwd)
    os.environ["DAGRL_CACHE"] = str(cwd / "cache")
    for number, log in zip((1, 2), logs, strict=True):
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, number)
        os.close(output)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115 - till the end
    sys.argv = ["dagrl", *words]
    from dagrl.cli import main

    if setup is not None:
        setup()
    main(list(words))
