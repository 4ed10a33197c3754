"""The process that the sandbox's own are forked from: nothing of a job stays in it, nobody hurts it, it ends with dagrl."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dagrl.rewards import sandbox
from dagrl.rewards.code import compute_score
from dagrl.rewards.fork_server import ForkServer
from dagrl.rewards.sandbox import Ending, Limits, run_program

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(cpu_s=30, wall_s=120)
CANARY = "canary-815"
DOUBLE = {"inputs": ["1\n", "21\n"], "outputs": ["2\n", "42\n"]}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """One for the test alone, which has had a job."""
    own = ForkServer(sandbox._COMMAND, sandbox._ENVIRONMENT)
    monkeypatch.setattr(sandbox, "_server", lambda: own)
    assert printed("print('up')") == "up\n"
    yield own
    own.close()


def printed(program: str, stdin: str = "") -> str:
    (outcome,) = run_program(program, [stdin], limits=LIMITS)
    return str(outcome.stdout)


def is_soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def is_there(pid: int) -> bool:
    """Not if it is only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_all_programs_are_forked_from_one_process(server: ForkServer) -> None:
    before = server.pid
    assert [outcome.stdout for outcome in run_program("print(input())", ["a", "b"])] == ["a\n", "b\n"]
    assert printed("print('c')") == "c\n"
    assert server.pid == before


SPOIL = {
    "a module": "import json, math, sys\njson.dumps = json.loads = lambda *a, **k: '1'\nmath.pi = 3\nsys.modules.clear()",
    "the builtins": "import builtins\nbuiltins.print = builtins.len = builtins.sum = None",
    "the number 7": "import ctypes\nctypes.memset(id(7) + 24, 8, 1)",
    "the collector": "import gc\ngc.unfreeze()\ngc.disable()",
    "the random numbers": "import random\nrandom.seed(1)",
    "the limit of recursion": "import sys\nsys.setrecursionlimit(60)",
    "its files": "import os\nfor n in range(64):\n    try: os.close(n)\n    except OSError: pass",
    "its signals": "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass",
}  # fmt: skip
"""What a program can spoil in its own process, and never in the one that the next is forked from."""
HEALTH = """
import gc, json, math, signal, sys
print(json.dumps([1]), round(math.pi, 2), len(str(7)), 3 + 4, gc.isenabled(), sys.getrecursionlimit(),
      signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL, sum([1, 2]))
"""


@pytest.mark.parametrize("what", SPOIL)
def test_what_a_program_spoils_is_whole_in_the_next(server: ForkServer, what: str) -> None:
    before = server.pid
    printed(SPOIL[what])
    assert printed(HEALTH) == "[1] 3.14 1 7 True 1000 True 3\n"
    assert server.pid == before


def test_each_program_draws_its_own_random_numbers(server: ForkServer) -> None:
    assert printed("print(random.random())") != printed("print(random.random())")


def test_nothing_of_a_job_is_in_the_memory_that_the_next_begins_with(server: ForkServer) -> None:
    assert printed(f"print({CANARY!r}, input())", CANARY) == f"{CANARY} {CANARY}\n"
    assert CANARY.encode() not in memory(server.pid)
    twin = f"held = '{CANARY[:5]}' + '{CANARY[5:]}'\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", twin], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as negative:  # fmt: skip
        assert negative.stdout is not None
        negative.stdout.readline()
        assert CANARY.encode() in memory(negative.pid), "the search finds what is there"
        negative.kill()


def memory(pid: int | None) -> bytes:
    """All that a process may write to."""
    found = bytearray()
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for line in maps:
            start, end, rights = re.match(r"(\w+)-(\w+) (\S+)", line).groups()  # type: ignore[union-attr]
            if rights.startswith("rw"):
                file.seek(int(start, 16))
                found += file.read(int(end, 16) - int(start, 16)) or b""
    return bytes(found)


def test_it_shares_no_page_that_can_be_written_and_keeps_no_descriptor_of_a_job(server: ForkServer) -> None:
    for _ in range(3):
        printed("print(1)")
    maps = Path(f"/proc/{server.pid}/maps").read_text().splitlines()
    assert not [line for line in maps if line.split()[1].startswith("rw") and "s" in line.split()[1]]
    assert sorted(os.listdir(f"/proc/{server.pid}/fd")) == ["0", "1", "2"]
    assert Path(f"/proc/{server.pid}/environ").read_bytes().count(b"\0") == len(sandbox._ENVIRONMENT)


# ruff: noqa: E501 (an attack is a line)
ATTACKS = {
    "trace it": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).ptrace(16, {server}, 0, 0) == 0 else '')",
    "kill it": "import os\nos.kill({server}, 9)\nprint('ESCAPED')",
    "stop it": "import os\nos.kill({server}, 19)\nprint('ESCAPED')",
    "kill its group": "import os\nos.killpg({server}, 9)\nprint('ESCAPED')",
    "read its memory": "print('ESCAPED', open('/proc/{server}/mem', 'rb'))",
    "write its memory": "print('ESCAPED', open('/proc/{server}/mem', 'r+b'))",
    "read its maps": "print('ESCAPED', open('/proc/{server}/maps').read())",
    "read across": "import ctypes\nb = ctypes.create_string_buffer(64)\nv = (ctypes.c_uint64 * 2)(ctypes.addressof(b), 64)\nprint('ESCAPED' if ctypes.CDLL(None).syscall(310, {server}, v, 1, v, 1, 0) > 0 else '')",
    "write across": "import ctypes\nb = ctypes.create_string_buffer(64)\nv = (ctypes.c_uint64 * 2)(ctypes.addressof(b), 64)\nprint('ESCAPED' if ctypes.CDLL(None).syscall(311, {server}, v, 1, v, 1, 0) > 0 else '')",
    "its descriptors": "import os\nprint('ESCAPED', os.listdir('/proc/{server}/fd'))",
    "open one of them": "import os\nprint('ESCAPED', os.open('/proc/{server}/fd/0', os.O_RDWR))",
    "take one of them": "import ctypes, os\nfd = os.pidfd_open({server})\nprint('ESCAPED' if ctypes.CDLL(None).syscall(438, fd, 0, 0) >= 0 else '')",
    "its limits": "import os, resource\nresource.prlimit({server}, resource.RLIMIT_CPU, (1, 1))",
    "its rank": "import os\nos.setpriority(os.PRIO_PROCESS, {server}, 19)\nprint('ESCAPED')",
    "a socket left open": "import os, stat\nfor n in range(1024):\n    try: print('ESCAPED' if stat.S_ISSOCK(os.fstat(n).st_mode) else '')\n    except OSError: pass",
    "answer for it": "import os\nfor n in range(64):\n    try: os.write(n, b'{\"has_begun\": true}\\n')\n    except OSError: pass",
    "ask it for more": "import socket\nfor n in range(64):\n    try: socket.socket(fileno=n).send(b'1'); print('ESCAPED')\n    except OSError: pass",
}  # fmt: skip
DRIVER = """
import json, sys
from dagrl.rewards.sandbox import _server, missing_walls, run_program
list(run_program("", [""]))
before, said = _server().pid, {}
for name, program in json.load(sys.stdin).items():
    (outcome,) = run_program(program.replace("{server}", str(before)), [""])
    said[name] = [outcome.stdout, _server().pid == before]
(after,) = run_program("print('well')", [""])
print(json.dumps([missing_walls(), said, after.stdout]))
"""
PREFIXES = {
    "namespaces": [],
    "landlock": [
        "unshare", "-Ur", "sh", "-c",
        'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set -all --inh-caps -all --no-new-privs "$@"',
        "sh",
    ],
}  # fmt: skip


@pytest.mark.parametrize("walls", ["namespaces", pytest.param("landlock", marks=pytest.mark.slow)])
def test_an_attack_on_it_comes_to_nothing(walls: str) -> None:
    prefix = PREFIXES[walls]
    if prefix and (shutil.which("unshare") is None or shutil.which("setpriv") is None):
        pytest.skip("needs unshare and setpriv of util-linux")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot be set up here")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [*prefix, sys.executable, "-c", DRIVER]
    done = subprocess.run(command, input=json.dumps(ATTACKS), env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    missing, said, after = json.loads(done.stdout)
    if walls == "landlock" and "landlock" in missing:
        pytest.skip("this kernel has no Landlock")
    for name, (out, is_same) in said.items():
        assert "ESCAPED" not in out and is_same, name
    assert after == "well\n"


# Its end


def test_killed_between_jobs_it_is_started_again(server: ForkServer) -> None:
    for _ in range(10):  # it is still dying, or dead, or buried
        before = server.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        assert printed("print('again')") == "again\n"
        assert server.pid != before


def test_killed_in_the_middle_of_a_job_it_takes_the_job_along_and_the_next_one_runs(server: ForkServer) -> None:
    outcomes = run_program("import time\ntime.sleep(int(input()))\nprint(1)", ["0", "100", "0"], limits=LIMITS)
    assert next(outcomes).ending is Ending.FINISHED
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert [outcome.ending for outcome in outcomes] == [Ending.LOST, Ending.LOST]
    assert printed("print('next')") == "next\n"


@pytest.mark.slow
def test_a_program_that_it_took_along_is_played_again_and_not_judged_wrong(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is killed while the second test is played: the first time by what judges, then nobody does."""
    played, kills = sandbox.run_program, []

    def killing(*args: Any, **kwargs: Any) -> Any:
        outcomes = played(*args, **kwargs)
        for outcome in outcomes:
            yield outcome
            if not kills and server.pid is not None:
                kills.append(server.pid)
                os.kill(server.pid, signal.SIGKILL)

    monkeypatch.setattr("dagrl.rewards.code.run_program", killing)
    slow = "import time\nn = int(input())\ntime.sleep(2 if n == 21 else 0)\nprint(2 * n)"
    assert compute_score("toy", f"```python\n{slow}\n```", DOUBLE, {}) == 1.0
    assert len(kills) == 1


MAIN = """
import multiprocessing, os, sys, time
from dagrl.rewards.sandbox import _server, run_program

def child(pipe):
    (outcome,) = run_program("print('of the child')", [""])
    pipe.send((outcome.stdout, _server().pid))
    time.sleep(1000)

list(run_program("", [""]))
ours, theirs = multiprocessing.get_context("fork").Pipe()
process = multiprocessing.get_context("fork").Process(target=child, args=(theirs,), daemon=True)
process.start()
said, other = ours.recv()
(outcome,) = run_program("print('of the parent')", [""])
print(_server().pid, other, process.pid, said.strip(), outcome.stdout.strip(), sep="|", flush=True)
next(run_program("import time\\ntime.sleep(1000)", [""]))
"""


def test_it_dies_with_dagrl_though_a_process_forked_from_that_lives_on_with_one_of_its_own() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen([sys.executable, "-c", MAIN], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        own, other, child, *said = running.stdout.readline().strip().split("|")
        assert said == ["of the child", "of the parent"]
        assert own != other
    finally:
        running.kill()
        running.wait()
    try:
        assert is_soon(lambda: not is_there(int(own)))
        assert is_there(int(child)) and is_there(int(other))
    finally:
        os.kill(int(child), signal.SIGKILL)
        running.communicate()
    assert is_soon(lambda: not is_there(int(other)))
