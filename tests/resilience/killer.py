"""Stops runs at random moments, by any signal, and lets them go on."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL, Signals

from tests.fork_server import LIMIT_S, Command, dagrl
from tests.resilience import phases
from tests.resilience.projects import START

LONGEST_S = 0.06
"""A signal falls so long after its phase was seen to begin, at most; the phases take some 0.05 s each."""
POLL_S = 0.002


@dataclass
class Killer:
    """Starts a run, stops it, resumes it, stops it again, … and counts the phases in which the signals fell."""

    project: Path
    random: random.Random
    targets: Sequence[str]
    """Phases that are aimed at; the one hit least often comes next."""
    signals: Sequence[Signals] = (SIGKILL,)
    """In turn."""
    after: Callable[[], None] = lambda: None
    """Looks at what a stopped run left."""
    fell: Counter[str] = field(default_factory=Counter)

    def run(self, run: Path, stops: int) -> None:
        """A run that is stopped `stops` times and then comes to its end."""
        for _ in range(stops):
            self._stop(self._life(run, Command))
        self._life(run, dagrl)

    def _stop(self, living: Command) -> None:
        """Sends the next signal in the phase that is due, the first to third time that it comes."""
        number = self.signals[self.fell.total() % len(self.signals)]
        seen_in = self._await_moment(living)
        living.send(number)
        code = living.wait()
        self.after()
        is_unheard = (
            seen_in == "start" and code == -number
        )  # before the command is read, signals do what they always do
        is_over = code == 0
        if is_over or is_unheard:
            return
        assert code == (-SIGKILL if number is SIGKILL else 128 + number), f"{number.name}: {code}\n{living.output}"
        self.fell[phases.read(self._marks)[0] if number is SIGKILL else seen_in] += 1

    def _await_moment(self, living: Command) -> str:
        """Waits for it and gives the phase."""
        is_any = self.random.random() < 0.2
        target = min(self.targets, key=lambda phase: (self.fell[phase], self.random.random()))
        number = self.random.randint(1, 1 if target == "load" else 3)
        deadline = time.monotonic() + LIMIT_S
        while not is_any and living.is_alive and time.monotonic() < deadline:
            phase, entered = phases.read(self._marks)
            if phase == target and entered >= number:
                break
            time.sleep(POLL_S)
        time.sleep(self.random.uniform(0, 2.0 if is_any else LONGEST_S))
        return phases.read(self._marks)[0]

    def _life(self, run: Path, start: Callable[..., Command]) -> Command:
        """A start from the newest checkpoint, or anew where there is none yet."""
        self._marks.unlink(missing_ok=True)
        words = ["run", "--resume", str(run)]
        if not any((run / "checkpoints").glob("step_*")):
            shutil.rmtree(run, ignore_errors=True)
            words = [*START, "--run-dir", str(run)]
        return start(*words, cwd=self.project, setup=phases.marking(self._marks))

    @property
    def _marks(self) -> Path:
        return self.project / "marks"
