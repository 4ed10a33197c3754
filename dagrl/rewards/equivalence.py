"""Mathematical equivalence by math-verify, in worker processes that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from enum import Enum
from pathlib import Path
from typing import IO

from dagrl.errors import DagrlError

_REAP_S = 1.0
"""Longest time between the end of a worker's answers and its own."""
_WORKER = Path(__file__).with_name("equivalence_worker.py")


class Reply(Enum):
    """What came of one question."""

    SAME = b"same"
    DIFFERENT = b"different"
    LIMIT = b"limit"
    """The worker used up its CPU seconds, or the clock ran out."""
    DIED = b"died"
    """It ended by itself, with the question unanswered."""


class EquivalenceChecker:
    """A few processes that answer "are these two formulas the same?". Safe to use from several threads.

    A process starts when it is first needed (a second or two: math-verify imports sympy), answers one question at a
    time and dies with this process. One that passes its limit of CPU seconds, or whose answer does not come within
    `wall_limit_s`, is killed and replaced.
    """

    def __init__(
        self,
        num_workers: int = 2,
        *,
        cpu_limit_s: float = 5.0,
        wall_limit_s: float = 60.0,
        start_limit_s: float = 180.0,
    ) -> None:
        self._cpu_limit_s = cpu_limit_s
        self._wall_limit_s = wall_limit_s
        self._start_limit_s = start_limit_s
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(num_workers):
            self._idle.put(None)
        self.num_replaced = 0
        """Processes that died or were killed, so far."""

    def check(self, *, gold: str, answer: str) -> bool | None:
        """Whether `answer` is equivalent to `gold` (both without `$`); None where the limits were passed.

        A worker that died of something else (the kernel's hunt for memory, a stray signal) is replaced and the question
        asked once more. Raises DagrlError where a worker cannot be started.
        """
        reply = self._ask(gold, answer)
        if reply is Reply.DIED:
            reply = self._ask(gold, answer)
        return {Reply.SAME: True, Reply.DIFFERENT: False}.get(reply)

    def _ask(self, gold: str, answer: str) -> Reply:
        worker = self._idle.get()
        reply = Reply.DIED
        try:
            if worker is None:
                worker = _Worker(self._start_limit_s)
            reply = worker.ask(gold, answer, self._cpu_limit_s, self._wall_limit_s)
        finally:
            # One that was interrupted still owes its answer, which must not be taken for that to the next question.
            if worker is not None and reply not in (Reply.SAME, Reply.DIFFERENT):
                worker.kill()
                worker = None
                self.num_replaced += 1
            self._idle.put(worker)
        return reply

    def close(self) -> None:
        """Ends the idle workers."""
        for _ in range(self._idle.qsize()):
            worker = self._idle.get()
            if worker is not None:
                worker.kill()
            self._idle.put(None)


class _Worker:
    """One process, in a process group of its own."""

    def __init__(self, start_limit_s: float) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        if self._line(start_limit_s) != b"ready":
            self.kill()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()
            raise DagrlError(
                f"the answer checker did not start: {said[-500:] or 'it gave no reason'}",
                where="reward 'math'",
                how="`pip install math-verify`, or use another reward",
            )

    def ask(self, gold: str, answer: str, cpu_limit_s: float, wall_limit_s: float) -> Reply:
        question = json.dumps({"gold": gold, "answer": answer, "cpu_limit_s": cpu_limit_s})
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(question.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return Reply.DIED
        line = self._line(wall_limit_s)
        if line in (Reply.SAME.value, Reply.DIFFERENT.value):
            return Reply(line)
        return Reply.DIED if self._has_died() else Reply.LIMIT

    def _has_died(self) -> bool:
        """Whether it is gone for another reason than its limit of CPU seconds."""
        try:
            return self._process.wait(_REAP_S) != -signal.SIGXCPU
        except subprocess.TimeoutExpired:
            return False

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it is dead already
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # a question that it did not read
                pipe.close()

    def _line(self, limit_s: float) -> bytes:
        """The next line it writes; what there is of it where it dies or `limit_s` passes."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + limit_s
        got = b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not got.endswith(b"\n"):
                if not selector.select(max(deadline - time.monotonic(), 0.0)):
                    return b""
                part = os.read(pipe, 4096)
                if not part:
                    return b""
                got += part
        return got.strip()
