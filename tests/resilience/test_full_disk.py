"""A disk that is full while metrics or trajectories are written: one message, exit code 5, nothing lost, resume works.

The kernel refuses for real: by a tmpfs without room, or by a limit on the size of files that a hook of the run sets.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from dagrl.cli import exit_code
from dagrl.runtime import checkpoint, line_log
from tests.command import COMMAND, environment
from tests.small_teams import one_process
from tests.tiny_project import HOOKS, write_project

pytestmark = pytest.mark.resilience

STEPS = 6
QUICK = ("data.train_batch_size=4", "data.val_files=[]", "trainer.val_without=[]", "trainer.show_sample_freq=0",
         f"trainer.total_steps={STEPS}", "trainer.save_freq=2", "rollout.n=2")  # fmt: skip
FILLING = '''
import os, pathlib, resource, subprocess

CALLS = []
ONCE = pathlib.Path(__file__).with_name("was_full")
OUT = pathlib.Path(__file__).with_name("out")


def fill(how):
    """In the fourth step: no more room, once."""
    CALLS.append(1)
    if ONCE.exists() or not (OUT / "trajectories" / "step_000003.parquet").exists():
        return
    ONCE.write_text("")
    if how == "tmpfs":
        with open(OUT / "ballast", "wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError:
                return
    if how == "readonly":
        for words in (["--bind"], ["-o", "remount,ro,bind"]):
            subprocess.run(["mount", *words, OUT / "trajectories", OUT / "trajectories"], check=True)
        return
    size = (OUT / "metrics.jsonl").stat().st_size
    room = size + 10 if how == "metrics" else (OUT / "trajectories" / "step_000003.parquet").stat().st_size - 1000
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
'''


def project(folder: Path, how: str | None) -> Path:
    path = write_project(folder)
    if how is not None:
        filled = HOOKS.replace("    seen =", f'    fill("{how}")\n    seen =')
        (folder / "hooks.py").write_text(FILLING + filled)
    return path


def result_of(run: Path) -> dict[str, bytes]:
    """Everything that must come out the same whether or not the disk was full in between."""
    names = ["metrics.jsonl", *(f"trajectories/step_{step:06d}.parquet" for step in range(1, STEPS + 1))]
    names += [f"checkpoints/step_{STEPS:06d}/{part}/model.safetensors" for part in ("agent_scout", "agent_caller")]
    return {name: (run / name).read_bytes() for name in names}


def check_stopped(code: int, err: str, run: Path) -> None:
    assert code == 5, err
    assert err.count("error:") == 1 and "Traceback" not in err
    whole = sorted((run / "checkpoints").glob("step_*"))
    assert [path.name for path in whole] == ["step_000002"]
    assert checkpoint.verify(whole[0]) == ()
    assert not (run / "trajectories" / "step_000004.parquet").exists(), "witness: it was in the fourth step"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with one_process(folder):
        yield folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert exit_code(["run", "--workflow", str(project(folder, None)), "--run-dir", str(folder / "out"), *QUICK]) == 0
    return result_of(folder / "out")


@pytest.mark.parametrize("how", ["metrics", "trajectories"])
def test_a_file_that_may_not_grow_stops_the_run_which_then_goes_on(tmp_path, undisturbed, capfd, how) -> None:
    run, limits = tmp_path / "out", resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        code = exit_code(["run", "--workflow", str(project(tmp_path, how)), "--run-dir", str(run), *QUICK])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    check_stopped(code, capfd.readouterr().err, run)
    assert exit_code(["run", "--resume", str(run)]) == 0
    assert result_of(run) == undisturbed


SCRIPT = """
set -u
mount -t tmpfs -o size=64m tmpfs out || exit 99
"$@" run --workflow calling.yaml --run-dir out {quick} 2> err; echo $? > code
{mend}; cp -r out stopped
"$@" run --resume out 2> err2; echo $? > code2
cp -r out finished
mount -o remount,ro out
"$@" run --resume out trainer.total_steps={more} --allow-changes 2> err3; echo $? > code3
cp -r out untouched
"""


def can_mount() -> bool:
    tried = subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    return shutil.which("unshare") is not None and tried.returncode == 0


@pytest.mark.skipif(shutil.which("unshare") is None or not can_mount(), reason="the kernel lets nobody mount a tmpfs")
@pytest.mark.parametrize(
    ("how", "said", "mend"),
    [("tmpfs", "the disk is full", "rm -f out/ballast"),
     ("readonly", "the file system is read-only", "umount out/trajectories")],
)  # fmt: skip
def test_a_file_system_that_takes_no_more_stops_the_run_which_then_goes_on(
    tmp_path, undisturbed, cache, how: str, said: str, mend: str
) -> None:
    """Without room, or read-only from one moment to the next; at the end all of it is read-only."""
    project(tmp_path, how)
    (tmp_path / "out").mkdir()
    script = SCRIPT.format(quick=" ".join(f"'{word}'" for word in QUICK), mend=mend, more=STEPS + 1)
    done = subprocess.run(
        ["unshare", "-Urm", "bash", "-c", script, "bash", *COMMAND],
        cwd=tmp_path, env=environment(cache), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    err = (tmp_path / "err").read_text()
    check_stopped(int((tmp_path / "code").read_text()), err, tmp_path / "stopped")
    assert said in err
    assert int((tmp_path / "code2").read_text()) == 0, (tmp_path / "err2").read_text()
    assert result_of(tmp_path / "finished") == undisturbed
    err = (tmp_path / "err3").read_text()
    assert int((tmp_path / "code3").read_text()) == 5, err
    assert "the file system is read-only" in err and err.count("error:") == 1 and "Traceback" not in err
    assert result_of(tmp_path / "untouched") == undisturbed


def test_twin_errors_that_are_not_told_apart_turn_the_check_red(
    tmp_path, undisturbed, capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `storage` around the writing of metrics the same refusal is a bug of dagrl's own."""
    monkeypatch.setattr(line_log, "storage", nullcontext)
    run, limits = tmp_path / "out", resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        code = exit_code(["run", "--workflow", str(project(tmp_path, "metrics")), "--run-dir", str(run), *QUICK])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(AssertionError):
        check_stopped(code, capfd.readouterr().err, run)
