"""A9: what environments start (processes, daemons in sessions of their own) ends with the run, however that ends."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest

from tests.fork_server import Command
from tests.resilience import projects
from tests.resilience.left_running import is_soon, left_running, unguarded
from tests.resilience.projects import START

pytestmark = pytest.mark.resilience

PROGRAM = """
import os, sys, time
from pathlib import Path

if sys.argv[1] == "daemon":
    if os.fork():
        os._exit(0)
    os.setsid()
os.environ.clear()
Path(f"{sys.argv[1]} {os.getpid()}").touch()
time.sleep(100_000)
"""
STARTING = """        for kind in ("child", "daemon"):
            subprocess.Popen([sys.executable, "program.py", kind], env={}, start_new_session=True)
        while len({file.name.split()[0] for file in Path().glob("* [0-9]*")}) < 2:
            time.sleep(0.01)
        while Path("hang").exists():
            time.sleep(0.01)
"""
KINDS = {"child", "daemon"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Its environment starts a process that it forgets, and a daemon, at every reset; both hide where they are from."""
    folder = projects.write(tmp_path)
    (folder / "program.py").write_text(PROGRAM)
    code = (folder / "environment.py").read_text()
    reset = "    def reset(self, prompt=None):\n"
    head = "import subprocess, sys, time\nfrom pathlib import Path\n"
    (folder / "environment.py").write_text(head + code.replace(reset, reset + STARTING))
    (folder / "hang").touch()
    return folder


def started(project: Path) -> dict[int, str]:
    return {int(file.name.split()[1]): file.name.split()[0] for file in project.glob("* [0-9]*")}


def living(project: Path) -> dict[int, str]:
    """The started ones that are still there."""
    found = {}
    for pid, kind in started(project).items():
        with suppress(OSError):
            if b"program.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found[pid] = kind
    return found


def begun(project: Path, setup=None) -> Command:
    """A run whose environments have started their processes and wait until `hang` is removed."""
    options = ("trainer.total_steps=1", "trainer.test_freq=0", "data.train_batch_size=2", "rollout.n=1")
    run = Command(*START, *options, "--run-dir", "run", cwd=project, setup=setup)
    assert is_soon(lambda: set(started(project).values()) == KINDS), run.output
    assert set(living(project).values()) == KINDS, "witness: they run"
    return run


def end(run: Command, project: Path, how: str) -> None:
    if how == "killed":
        run.send(SIGKILL)
        assert run.wait() == -SIGKILL
        return
    if how != "by itself":
        run.send(SIGTERM)
        assert is_soon(lambda: "finishing this step" in run.output)
    if how == "stopped twice":
        run.send(SIGTERM)
    else:
        (project / "hang").unlink()
    assert run.wait() == (0 if how == "by itself" else 128 + SIGTERM), run.output


@pytest.mark.parametrize("how", ["by itself", "stopped", "stopped twice", "killed"])
def test_nothing_that_environments_started_outlives_the_run(project: Path, how: str) -> None:
    end(begun(project), project, how)
    assert is_soon(lambda: not living(project)), living(project)
    assert is_soon(lambda: not left_running(project)), left_running(project)


@pytest.mark.parametrize("how", ["by itself", "killed"])
def test_twin_without_the_guardian_they_stay(project: Path, how: str) -> None:
    end(begun(project, unguarded), project, how)
    assert is_soon(lambda: not left_running(project)), "the workers themselves are gone"
    assert not is_soon(lambda: not living(project), limit_s=2.0)
    for pid in living(project):
        os.kill(pid, SIGKILL)
