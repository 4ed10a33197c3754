"""G8, A6, A9, A10: SIGTERM and SIGINT at any moment, nothing left running, one writer at a time."""

from __future__ import annotations

import array
import fcntl
import os
import random
import shutil
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM

import pytest

from dagrl.cli import EXIT_BUG
from dagrl.runtime.signals import StopSignals
from tests.fork_server import Command, dagrl, nothing
from tests.resilience import phases, projects
from tests.resilience.killer import Killer
from tests.resilience.left_running import is_soon, left_running, unguarded
from tests.resilience.projects import START, fingerprint

pytestmark = pytest.mark.resilience

STOPS = 30
AIMS = ("load", "play", "learn", "evaluate", "save")
LEAST = 3
_SLOWER = """        time.sleep(0.05)
        while HANG.exists():
            HUNG.touch()
            if HANG.read_text() == "computes":
                sum(range(10**12))
            time.sleep(0.01)
        self.left -= 1
"""
_HEAD = """import time
from pathlib import Path

HANG, HUNG = Path("hang"), Path("hung")
"""
_PIPE_BYTES = 4096


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """Its environment is slow: signals fall while it works."""
    folder = projects.write(tmp_path_factory.mktemp("signals"))
    code = (folder / "environment.py").read_text()
    (folder / "environment.py").write_text(_HEAD + code.replace("        self.left -= 1\n", _SLOWER))
    return folder


@pytest.fixture(scope="module")
def whole(project) -> Path:
    dagrl(*START, "--run-dir", "whole", cwd=project)
    return project / "whole"


def test_thirty_signals_in_all_phases_are_obeyed_and_every_run_ends_as_if_undisturbed(project, whole):
    def nothing_is_left() -> None:
        assert is_soon(lambda: not left_running(project)), left_running(project)

    killer = Killer(project, random.Random(7), AIMS, signals=(SIGTERM, SIGINT), after=nothing_is_left)
    num_runs = 0
    while killer.fell.total() < STOPS or any(killer.fell[phase] < LEAST for phase in AIMS):
        run = project / f"stopped_{num_runs}"
        killer.run(run, stops=killer.random.randint(3, 6))
        num_runs += 1
        assert fingerprint(run) == fingerprint(whole)
        shutil.rmtree(run)
        assert killer.fell.total() < 3 * STOPS, f"signals do not fall where they should: {killer.fell}"
    print(f"\n{killer.fell.total()} signals in {num_runs} runs, all bit-identical: {dict(killer.fell)}")


@pytest.fixture
def hung(project) -> Iterator[Callable[..., Command]]:
    """Starts a run that has a checkpoint and whose environment then never answers until `hang` is removed."""
    living: list[Command] = []

    def start(run: Path, how: str, setup: Callable[[], None] | None = None) -> Command:
        marks = project / "marks"
        marks.unlink(missing_ok=True)
        living.append(Command(*START, "--run-dir", str(run), cwd=project, setup=setup or phases.marking(marks)))
        assert is_soon(lambda: any((run / "checkpoints").glob("step_*")))
        (project / "hang").write_text(how)
        assert is_soon((project / "hung").exists), living[-1].output
        return living[-1]

    yield start
    for name in ("hang", "hung"):
        (project / name).unlink(missing_ok=True)
    for one in living:
        one.send(SIGKILL)
        one.wait()
    for pid in left_running(project):
        os.kill(pid, SIGKILL)


def goes_on(project: Path, run: Path, whole: Path) -> None:
    (project / "hang").unlink()
    dagrl("run", "--resume", str(run), cwd=project)
    assert fingerprint(run) == fingerprint(whole)


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_a_second_signal_ends_a_hung_run_at_once_and_it_can_go_on(project, whole, hung, number):
    living = hung(project / f"twice_{number.name}", "waits")
    living.send(number)
    assert is_soon(lambda: "finishing this step" in living.output)
    assert living.is_alive, "the first signal waits for the step"
    living.send(number)
    assert living.wait() == 128 + number
    assert is_soon(lambda: not left_running(project)), left_running(project)
    goes_on(project, project / f"twice_{number.name}", whole)


def test_twin_without_the_second_signals_meaning_a_hung_run_stays(project, whole, hung):
    living = hung(project / "deaf", "waits", _hear_once)
    living.send(SIGTERM)
    assert is_soon(lambda: "finishing this step" in living.output)
    living.send(SIGTERM)
    assert not is_soon(lambda: not living.is_alive, limit_s=3.0)


def _hear_once() -> None:
    handle = StopSignals.handle

    def once(self: StopSignals, number: int, frame: object) -> None:
        if self._came is None:
            handle(self, number, frame)

    StopSignals.handle = once


@pytest.mark.parametrize("how", ["waits", "computes"])
def test_when_the_run_is_killed_its_environments_go_too(project, whole, hung, how):
    living = hung(project / f"orphans_{how}", how)
    assert left_running(project), "there was nothing that could have been left"
    living.send(SIGKILL)
    assert living.wait() == -SIGKILL
    assert is_soon(lambda: not left_running(project)), left_running(project)


def test_without_the_kernels_help_an_environment_that_computes_would_stay(project, whole, hung, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import ctypes\nctypes.CDLL = lambda *_: type('NoPrctl', (), {'prctl': lambda *_: 0})()\n"
    )
    living = hung(project / "stays", "computes", partial(_unhelped, str(tmp_path)))
    living.send(SIGKILL)
    assert living.wait() == -SIGKILL
    assert not is_soon(lambda: not left_running(project), limit_s=2.0)


def _unhelped(folder: str) -> None:
    unguarded()
    sys.path.insert(0, folder)


def test_a_second_writer_is_refused_and_the_lock_of_a_dead_one_is_taken_over(project, whole, hung):
    run = project / "locked"
    first = hung(run, "waits")
    second = Command("run", "--resume", str(run), cwd=project)
    assert second.wait() == 2
    assert "another process is writing" in second.output and "Traceback" not in second.output
    first.send(SIGKILL)
    assert first.wait() == -SIGKILL
    goes_on(project, run, whole)


def test_without_the_lock_a_second_writer_would_write(project, whole, hung):
    hung(project / "unlocked", "waits", partial(nothing, "fcntl", "flock"))
    marks = project / "second"
    second = Command("run", "--resume", str(project / "unlocked"), cwd=project, setup=partial(_unlocked, marks))
    assert is_soon(lambda: phases.read(marks)[0] == "play"), second.output
    second.send(SIGKILL)
    second.wait()


def _unlocked(marks: Path) -> None:
    nothing("fcntl", "flock")
    phases.marking(marks)()


def _print_in_the_handler() -> None:
    handle = StopSignals.handle

    def printing(self: StopSignals, number: int, frame: object) -> None:
        print("stopping", flush=True)
        handle(self, number, frame)

    StopSignals.handle = printing


@pytest.mark.parametrize(("setup", "code"), [(None, 128 + SIGTERM), (_print_in_the_handler, EXIT_BUG)])
def test_a_signal_in_the_middle_of_a_print_does_no_harm(project, tmp_path, setup, code):
    """Nobody reads what the run prints, so it stands in a `print` when the signal comes. A handler that printed too
    would enter the buffer twice, which Python refuses."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    options = ("trainer.show_sample_freq=1", "trainer.total_steps=60", "--run-dir", str(tmp_path / "run"))
    living = Command(*START, *options, cwd=project, setup=setup, log=pipe)
    assert is_soon(lambda: _is_full(reader) and _sleeps(living.pid))
    living.send(SIGTERM)
    said = b""
    while living.is_alive:
        with suppress(BlockingIOError):
            said += os.read(reader, _PIPE_BYTES)
    os.close(reader)
    assert living.wait() == code, said.decode()


def _is_full(pipe: int) -> bool:
    """No room for the next line."""
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0] > _PIPE_BYTES // 2


def _sleeps(pid: int) -> bool:
    """It uses no CPU and waits."""

    def cpu() -> tuple[str, str, str]:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return fields[0], fields[11], fields[12]

    before = [cpu() for _ in range(20) if time.sleep(0.02) is None]
    return {state for state, *_ in before} == {"S"} and len(set(before)) == 1
