"""The sandbox: honest programs run, attacks come to nothing behind either set of walls, weak walls are refused."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dagrl.errors import DagrlError
from dagrl.rewards import sandbox
from dagrl.rewards.fork_server import ForkServer
from dagrl.rewards.sandbox import Ending, Limits, missing_walls, run_program

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(cpu_s=30, wall_s=120, memory_bytes=1 << 29, output_bytes=1 << 20)
SECRET = "canary-4711"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


def one(program: str, stdin: str = "", limits: Limits = LIMITS) -> Any:
    (outcome,) = run_program(program, [stdin], limits=limits)
    return outcome


HONEST = {
    "input": ("a, b = map(int, input().split())\nprint(a + b)", "3 4\n", "7\n"),
    "stdin whole": ("import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))", "1 2\n3", "6\n"),
    "open(0)": ("print(len(open(0).read().split()))", "a b c", "3\n"),
    "main guard": ("def main():\n    print('in')\nif __name__ == '__main__':\n    main()", "", "in\n"),
    "exit": ("print(1)\nexit(0)", "", "1\n"),
    "threads with a large stack": (
        "import threading, sys\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**26)\n"
        "def deep(n):\n    return 0 if n == 0 else 1 + deep(n - 1)\n"
        "t = threading.Thread(target=lambda: print(deep(20000)))\nt.start()\nt.join()",
        "",
        "20000\n",
    ),
    "raises its stack": (
        "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (2**28, resource.RLIM_INFINITY))\nprint('ok')",
        "",
        "ok\n",
    ),
    "prints at exit": ("import atexit, sys\natexit.register(lambda: sys.stdout.write('end'))\nprint(1)", "", "1\nend"),
    "dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nprint(P(1))", "", "P(x=1)\n",
    ),
    "library": ("import hashlib, sqlite3, zlib, ssl\nprint(hashlib.md5(b'').hexdigest()[:4])", "", "d41d\n"),
    "names a grader gives": ("print(heapq.nsmallest(1, [2, 1]), Counter('aa')['a'])", "", "[1] 2\n"),
    "long integers": ("print(len(str(10**5000)))", "", "5001\n"),
    "unicode": ("print(input()[::-1])", "añ語", "語ña\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_prints_what_it_prints_elsewhere(name: str) -> None:
    program, stdin, printed = HONEST[name]
    outcome = one(program, stdin)
    assert (outcome.ending, outcome.stdout) == (Ending.FINISHED, printed), outcome


def test_each_case_starts_afresh_and_in_order() -> None:
    program = "import os\nos.seen = getattr(os, 'seen', 0) + 1\nprint(input(), os.seen)"
    assert [outcome.stdout for outcome in run_program(program, ["a", "b"])] == ["a 1\n", "b 1\n"]


def test_a_function_gets_its_arguments_and_gives_its_value() -> None:
    in_class = (
        "class Solution:\n    def pair(self, a: List[int], b):\n        print('noise')\n        return a, {'b': b}"
    )
    (outcome,) = run_program(in_class, [[[1, 2], "x"]], fn_name="pair")
    assert json.loads(outcome.answer) == [[1, 2], {"b": "x"}]
    (outcome,) = run_program("def f(a):\n    return a * 2", [[1.5]], fn_name="f")
    assert json.loads(outcome.answer) == 3.0


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("1/0", "ZeroDivisionError"),
        ("def", "SyntaxError"),
        ("import numpy", "ModuleNotFoundError"),
        ("input()", "EOFError"),
    ],
)
def test_a_crash_says_why(program: str, said: str) -> None:
    outcome = one(program)
    assert outcome.ending is Ending.CRASHED
    assert said in outcome.stderr


@pytest.mark.parametrize(
    ("program", "ending"),
    [
        ("while True: pass", Ending.CPU_LIMIT),
        pytest.param("import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n"
                     "    except (OSError, ValueError): pass\nwhile True: pass", Ending.CPU_LIMIT, marks=pytest.mark.slow),
        ("while True: print('x' * 10000)", Ending.OUTPUT_LIMIT),
        ("import os\nwhile True: os.write(2, b'x' * 10000)", Ending.CRASHED),
        ("x = bytearray(2**30)", Ending.CRASHED),
        ("x = []\nwhile True: x.append(bytearray(2**20))", Ending.CRASHED),
        ("import ctypes\nctypes.string_at(0)", Ending.CRASHED),
        ("import sys\nsys.exit(3)", Ending.CRASHED),
    ],
)  # fmt: skip
def test_a_program_that_passes_a_limit_is_stopped(program: str, ending: Ending) -> None:
    limits = replace(LIMITS, cpu_s=1) if ending is Ending.CPU_LIMIT else LIMITS
    outcome = one(program, limits=limits)
    assert outcome.ending is ending, outcome
    assert len(outcome.stdout) <= LIMITS.output_bytes


def test_a_program_that_waits_is_told_apart_from_one_that_computes() -> None:
    outcome = one("import time\ntime.sleep(60)", limits=Limits(cpu_s=5, wall_s=0.3))
    assert outcome.ending is Ending.CLOCK


def test_no_more_is_played_after_the_iterator_is_closed() -> None:
    outcomes = run_program("import time\ntime.sleep(int(input()))\nprint(1)", ["0", "60"])
    start = time.monotonic()
    assert next(outcomes).stdout == "1\n"
    outcomes.close()  # type: ignore[attr-defined]
    assert time.monotonic() - start < 30
    assert orphans() == []


# ruff: noqa: E501 (an attack is a line)
# Attacks: each prints ESCAPED where it got through; what it could reach outside is watched from outside

ATTACKS = {
    "read the user's file": "print(open({file!r}).read())",
    "read a file by its link": "import os\nos.symlink({file!r}, '/tmp/l')\nprint(open('/tmp/l').read())",
    "list the user's folder": "import os\nprint('ESCAPED' if os.listdir({folder!r}) else '')",
    "write to the user's file": "open({file!r}, 'w').write('ESCAPED')",
    "append by descriptor": "import os\nos.write(os.open({file!r}, os.O_WRONLY | os.O_APPEND), b'ESCAPED')",
    "delete the user's file": "import os\nos.unlink({file!r})",
    "truncate the user's file": "import os\nos.truncate({file!r}, 0)",
    "change its mode": "import os\nos.chmod({file!r}, 0o777)\nprint('ESCAPED')",
    "change its time": "import os\nos.utime({file!r}, (0, 0))\nprint('ESCAPED')",
    "rename it": "import os\nos.rename({file!r}, {file!r} + '2')",
    "make a file beside it": "open({folder!r} + '/new', 'w')\nprint('ESCAPED')",
    "make a file in /tmp": "open('/tmp/escaped', 'w')\nprint('ESCAPED')",
    "make a file in /dev/shm": "open('/dev/shm/escaped', 'w')\nprint('ESCAPED')",
    "make a file where it stands": "open('escaped', 'w')\nprint('ESCAPED')",
    "change the standard library": "import json\nopen(json.__file__, 'a')\nprint('ESCAPED')",
    "password file": "print('ESCAPED', open('/etc/passwd').read())",
    "environment": "import os\nprint(os.environ)",
    "environment of the parent": "import os\nprint(open(f'/proc/{{os.getppid()}}/environ').read(), 'ESCAPED')",
    "memory of the parent": "import os\nopen(f'/proc/{{os.getppid()}}/mem')\nprint('ESCAPED')",
    "trace the parent": "import ctypes, os\nprint('ESCAPED' if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0 else '')",
    "tcp": "import socket\nsocket.create_connection(('127.0.0.1', {port}))\nprint('ESCAPED')",
    "udp": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))\nprint('ESCAPED')",
    "unix socket": "import socket\nsocket.socket(socket.AF_UNIX).connect({unix!r})\nprint('ESCAPED')",
    "abstract socket": "import socket\nsocket.socket(socket.AF_UNIX).connect({abstract!r})\nprint('ESCAPED')",
    "socket pair": "import socket\nsocket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\nprint('ESCAPED')",
    "inherited descriptors": "import os\nfor n in range(4, 1000):\n    try: os.write(n, b'x'); print('ESCAPED', n)\n    except OSError: pass",
    "fork": "import os\nprint('ESCAPED', os.fork())",
    "fork bomb": "import os\nwhile True:\n    os.fork()\n    print('ESCAPED')",
    "daemon": "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: pass\nprint('ESCAPED')",
    "vfork": "import ctypes\nif ctypes.CDLL(None).vfork() >= 0: print('ESCAPED')",
    "clone": "import ctypes\nif ctypes.CDLL(None, use_errno=True).syscall(56, 17, 0, 0, 0, 0) >= 0: print('ESCAPED')",
    "clone3": "import ctypes\na = (ctypes.c_uint64 * 11)()\nif ctypes.CDLL(None).syscall(435, a, 88) >= 0: print('ESCAPED')",
    "command": "import subprocess\nsubprocess.run(['/bin/true'])\nprint('ESCAPED')",
    "os.system": "import os\nprint('ESCAPED' if os.system('true') == 0 else '')",
    "exec": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(\"ESCAPED\")'])",
    "own session": "import os\nos.setsid()\nprint('ESCAPED')",
    "own group": "import os\nos.setpgid(0, 0)\nprint('ESCAPED')",
    "kill the parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nprint('ESCAPED')",
    "kill everybody": "import os, signal\nos.kill(-1, signal.SIGKILL)\nprint('ESCAPED')",
    "kill the group": "import os, signal\nos.killpg(0, signal.SIGKILL)\nprint('ESCAPED')",
    "kill the watcher": "import os, signal\nos.kill({pid}, signal.SIGTERM)\nprint('ESCAPED')",
    "signal by owner of a pipe": "import os, fcntl\nr, w = os.pipe()\nfcntl.fcntl(r, 8, {pid})\nprint('ESCAPED')",
    "limits of the parent": "import os, resource\nresource.prlimit({pid}, resource.RLIMIT_CPU, (1, 1))\n"
    "print('ESCAPED' if resource.getrlimit(resource.RLIMIT_CPU) != ({cpu_s}, {cpu_s}) else '')",
    "own limits": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (99, 99))\n"
    "print('ESCAPED' if resource.getrlimit(resource.RLIMIT_CPU) != ({cpu_s}, {cpu_s}) else '')",
    "outlive the parent": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).prctl(1, 0) == 0 else '')",
    "become root": "import os\nos.setuid(0)\nprint('ESCAPED')",
    "new namespaces": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).unshare(0x10000000) == 0 else '')",
    "mount": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).mount(b'tmpfs', b'/lib', b'tmpfs', 0, None) == 0 else '')",
    "chroot": "import os\nos.chroot('/lib')\nprint('ESCAPED')",
    "device": "import os\nos.mknod('/tmp/d', 0o60777, os.makedev(254, 0))\nprint('ESCAPED')",
    "fifo": "import os\nos.mkfifo('/tmp/f')\nprint('ESCAPED')",
    "memfd": "import os\nos.memfd_create('x')\nprint('ESCAPED')",
    "shared memory": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0 else '')",
    "io_uring": "import ctypes\nb = ctypes.create_string_buffer(256)\nprint('ESCAPED' if ctypes.CDLL(None).syscall(425, 1, b) >= 0 else '')",
    "bpf": "import ctypes\nb = ctypes.create_string_buffer(256)\nprint('ESCAPED' if ctypes.CDLL(None).syscall(321, 0, b, 64) >= 0 else '')",
    "perf": "import ctypes\nb = ctypes.create_string_buffer(256)\nprint('ESCAPED' if ctypes.CDLL(None).syscall(298, b, 0, -1, -1, 0) >= 0 else '')",
    "keyring": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).syscall(250, 0, -3, 1) >= 0 else '')",
    "32-bit calls": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).syscall(0x40000000 + 39) >= 0 else '')",
    "no filter": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).prctl(22, 1, 0, 0, 0) == 0 else '')",
    "read by a hard link": "import os\nos.link({file!r}, '/tmp/h')\nprint('ESCAPED', open('/tmp/h').read())",
    "read by its own root": "print(open('/proc/self/root' + {file!r}).read())",
    "read by the root of the parent": "import os\nprint(open(f'/proc/{{os.getppid()}}/root' + {file!r}).read())",
    "read by dots": "print(open('../' * 40 + {file!r}.lstrip('/')).read())",
    "folder of the parent": "import os\nprint('ESCAPED', os.listdir(f'/proc/{{os.getppid()}}/cwd'))",
    "descriptors of the parent": "import os\nfor n in os.listdir(f'/proc/{{os.getppid()}}/fd'):\n    open(f'/proc/{{os.getppid()}}/fd/{{n}}').close()\n    print('ESCAPED', n)",
    "take a descriptor of the parent": "import ctypes, os\nfd = os.pidfd_open(os.getppid())\nprint('ESCAPED' if ctypes.CDLL(None).syscall(438, fd, 1, 0) >= 0 else '')",
    "read memory across": "import ctypes\nb = ctypes.create_string_buffer(64)\nv = (ctypes.c_uint64 * 2)(ctypes.addressof(b), 64)\nprint('ESCAPED' if ctypes.CDLL(None).syscall(310, {pid}, v, 1, v, 1, 0) > 0 else '')",
    "write memory across": "import ctypes\nb = ctypes.create_string_buffer(64)\nv = (ctypes.c_uint64 * 2)(ctypes.addressof(b), 64)\nprint('ESCAPED' if ctypes.CDLL(None).syscall(311, {pid}, v, 1, v, 1, 0) > 0 else '')",
    "fault handler": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).syscall(323, 0) >= 0 else '')",
    "file by its handle": "import ctypes\nb = ctypes.create_string_buffer(64)\nprint('ESCAPED' if ctypes.CDLL(None).syscall(304, 0, b, 0) >= 0 else '')",
    "another root": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).syscall(155, b'/', b'/') == 0 else '')",
    "mount by the newer calls": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).syscall(430, b'tmpfs', 0) >= 0 else '')",
    "clone the tree of mounts": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).syscall(428, -100, b'/', 1) >= 0 else '')",
    "namespaces of the first process": "import ctypes, os\nfd = os.open('/proc/1/ns/mnt', os.O_RDONLY)\nprint('ESCAPED' if ctypes.CDLL(None).setns(fd, 0) == 0 else '')",
    "raw socket": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)\nprint('ESCAPED')",
    "packet socket": "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)\nprint('ESCAPED')",
    "netlink": "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\nprint('ESCAPED')",
    "tcp over the newer protocol": "import socket\nsocket.create_connection(('::ffff:127.0.0.1', {port}))\nprint('ESCAPED')",
    "listen": "import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\nprint('ESCAPED')",
    "message queue": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).msgget(0, 0o1600) >= 0 else '')",
    "semaphores": "import ctypes\nprint('ESCAPED' if ctypes.CDLL(None).semget(0, 1, 0o1600) >= 0 else '')",
    "spawn": "import os\nos.posix_spawn('/bin/true', ['true'], {{}})\nprint('ESCAPED')",
    "shell": "import os\nprint(os.popen('echo ESCAPED').read())",
    "worker process": "import multiprocessing\nmultiprocessing.get_context('fork').Process(target=print, args=('ESCAPED',)).start()",
    "rank of the watcher": "import os\nos.setpriority(os.PRIO_PROCESS, {pid}, 1)\nprint('ESCAPED')",
    "core dumps of the kernel": "open('/proc/sys/kernel/core_pattern', 'a')\nprint('ESCAPED')",
    "log of the kernel": "open('/dev/kmsg', 'w')\nprint('ESCAPED')",
    "type into the terminal": "import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSTI, b'x')\nprint('ESCAPED')",
    "thread bomb": "import threading, time\nn = 0\ntry:\n    while n < 500:\n"
    "        threading.Thread(target=time.sleep, args=(0.2,), daemon=True).start()\n        n += 1\n"
    "except RuntimeError: pass\nprint('ESCAPED' if n >= {threads} else '')",
}  # fmt: skip
FAST = {
    "read the user's file",
    "environment",
    "write to the user's file",
    "tcp",
    "daemon",
    "fork bomb",
    "kill everybody",
}
"""Played in the fast suite too; all of them, behind each set of walls, in the slow one."""
NEEDS_NAMESPACES = {"thread bomb"}
"""Landlock does not count threads; memory and CPU time bound them there."""

DRIVER = """
import json, sys
from dataclasses import asdict, replace
from dagrl.rewards.sandbox import Limits, missing_walls, run_program
programs, limits = json.load(sys.stdin)
played = {name: asdict(*run_program(program, [""], limits=Limits(**limits))) for name, program in programs.items()}
print(json.dumps({"missing": missing_walls(), "played": played}))
"""
NO_NAMESPACES = [
    "unshare", "-Ur", "sh", "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set -all --inh-caps -all --no-new-privs "$@"',
    "sh",
]  # fmt: skip
"""Root without capabilities, and no new namespaces: what a program in an ordinary container has."""
ORDINARY_USER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


class Outside:
    """What an attack may find outside, and what is left of it afterwards."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "secret.txt"
        self.file.write_text(SECRET)
        self.file.chmod(0o666)
        folder.chmod(0o777)
        self.before = self.file.stat()
        self.sockets = [socket.socket(), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
        self.abstract = f"\0dagrl-test-{os.getpid()}-{folder.name}"
        for each, address in zip(self.sockets, [("127.0.0.1", 0), str(folder / "s"), self.abstract]):
            each.bind(address)
            each.listen()
        self.places = {
            "file": str(self.file), "folder": str(folder), "port": self.sockets[0].getsockname()[1],
            "unix": str(folder / "s"), "abstract": self.abstract, "pid": os.getpid(), "cpu_s": LIMITS.cpu_s,
            "threads": LIMITS.threads,
        }  # fmt: skip

    def check(self) -> None:
        after = self.file.stat()
        assert self.file.read_text() == SECRET
        assert (after.st_mode, after.st_mtime_ns) == (self.before.st_mode, self.before.st_mtime_ns)
        assert sorted(os.listdir(self.file.parent)) == ["s", "secret.txt"]
        assert select.select(self.sockets, [], [], 0)[0] == []


def orphans() -> list[str]:
    """Processes of a sandbox whose parent is gone and that stay; others' sandboxes may be ending just now."""
    deadline = time.monotonic() + 60
    while (found := _orphans_now()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _orphans_now() -> list[str]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes() if entry.isdigit() else b""
            parent = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1] if command else ""
        except OSError:
            continue
        if b"sandbox_worker" in command and parent == "1":
            found.append(entry)
    return found


def _played(walls: str, outside: Outside) -> dict[str, Any]:
    programs = {name: text.format(**outside.places) for name, text in ATTACKS.items()}
    prefix = {"namespaces": [], "landlock": NO_NAMESPACES, "ordinary user": ORDINARY_USER}[walls]
    python = sys.executable if walls != "ordinary user" else "/usr/bin/python3"
    if prefix and (shutil.which("unshare") is None or shutil.which("setpriv") is None):
        pytest.skip("needs unshare and setpriv of util-linux")
    probe = subprocess.run([*prefix, python, "-c", "import tomllib"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"cannot be set up here: {probe.stderr.decode()[-200:]}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TOKEN": SECRET, "PYTHONDONTWRITEBYTECODE": "1"}
    task = json.dumps([programs, asdict(LIMITS)])
    done = subprocess.run(
        [*prefix, python, "-c", DRIVER], input=task, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    if walls == "landlock" and "landlock" in answer["missing"]:
        pytest.skip("this kernel has no Landlock")
    assert ("namespaces" in answer["missing"]) == (walls == "landlock")
    return dict(answer["played"])


@pytest.fixture(scope="module", params=["namespaces", "landlock", "ordinary user"])
def attacks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    walls = request.param
    if walls == "ordinary user" and os.geteuid() != 0:
        pytest.skip("only root can become another user; the other rows ran as one")
    if walls == "ordinary user" and not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("needs a Python that every user may run")
    outside = Outside(tmp_path_factory.mktemp("outside"))
    yield walls, _played(walls, outside), outside
    assert orphans() == []
    for each in outside.sockets:
        each.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_comes_to_nothing(name: str, attacks: Any) -> None:
    walls, played, outside = attacks
    if walls == "landlock" and name in NEEDS_NAMESPACES:
        pytest.skip("bounded by memory and CPU time there")
    outcome = played[name]
    assert "ESCAPED" not in outcome["stdout"], outcome
    assert SECRET not in outcome["stdout"] + outcome["stderr"]
    outside.check()


def test_the_plainest_attacks_come_to_nothing(tmp_path: Path) -> None:
    outside = Outside(tmp_path)
    for name in FAST:
        outcome = one(ATTACKS[name].format(**outside.places))
        assert not {"ESCAPED", SECRET} & set(outcome.stdout.split()), outcome
    outside.check()
    assert orphans() == []


def test_attacks_would_be_seen_where_there_are_no_walls(tmp_path: Path) -> None:
    """The negative twin: played by a bare Python, these attacks do reach what is watched."""
    outside = Outside(tmp_path)
    for name in ("read the user's file", "tcp", "fork", "own session", "make a file beside it"):
        program = ATTACKS[name].format(**outside.places)
        bare = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert "ESCAPED" in bare.stdout or SECRET in bare.stdout, name
    with pytest.raises(AssertionError):
        outside.check()


REFUSING = """
import ctypes, struct, sys
from dagrl.errors import DagrlError
from dagrl.rewards.sandbox import run_program
lines = [(0x20, 0, 0, 0), (0x15, 1, 0, 272), (0x15, 0, 1, 444), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
libc.prctl(22, 2, struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code)), 0, 0)
try:
    print(*run_program("print('ran')", [""]))
except DagrlError as error:
    print(error)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of the refused calls are those of x86_64")
def test_missing_walls_are_named_and_refused_unless_told_to_go_on() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("DAGRL_ALLOW_WEAK_SANDBOX", None)
    command = [sys.executable, "-c", REFUSING]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "namespaces (unshare: Operation not permitted); landlock (" in said
    assert "DAGRL_ALLOW_WEAK_SANDBOX=1" in said
    environment["DAGRL_ALLOW_WEAK_SANDBOX"] = "1"
    assert "ran" in subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


STAND_IN = """
import os, socket, sys, time
control = socket.socket(fileno=0)
while received := socket.recv_fds(control, 1, 1)[1]:
    if os.fork() == 0:
        os.dup2(received[0], 1)
        os.dup2(received[0], control.detach())
        os.close(received[0])
        exec(sys.argv[1])
        sys.stdout.flush()
        os._exit(0)
    os.close(received[0])
    control.send(b"1")
"""


@pytest.fixture
def acts_as(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Lets a script stand in for what the sandbox's first process does with its connection as stdin and stdout."""
    servers: list[ForkServer] = []

    def stand_in(script: str) -> None:
        servers.append(ForkServer([sys.executable, "-S", "-c", STAND_IN, script], {}))
        monkeypatch.setattr(sandbox, "_server", lambda: servers[-1])

    yield stand_in
    for server in servers:
        server.close()


WEAK = 'print(\'{"is_strong": false, "missing": {"network": "EPERM"}}\', flush=True)\n'


@pytest.mark.parametrize("script", ["pass", "print('half a line', end='')", "sys.stdin.close()"])
@pytest.mark.parametrize("ask", [lambda: list(run_program("", [""])), missing_walls])
def test_a_sandbox_that_does_not_start_is_told(acts_as: Any, script: str, ask: Any) -> None:
    acts_as(script)
    with pytest.raises(DagrlError, match="the sandbox did not start: its process ended or was silent"):
        ask()


def test_a_sandbox_that_is_silent_is_not_waited_for(acts_as: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    acts_as("time.sleep(100_000)")
    monkeypatch.setattr(sandbox, "_START_S", 0.2)
    with pytest.raises(DagrlError, match="was silent"):
        list(run_program("", [""]))


def test_walls_that_are_missing_are_named_unless_weak_ones_may_be_used(
    acts_as: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts_as(WEAK)
    monkeypatch.delenv(sandbox.ALLOW_WEAK, raising=False)
    with pytest.raises(DagrlError, match=r"the kernel refuses: network \(EPERM\)"):
        list(run_program("", [""]))
    assert missing_walls() == {"network": "EPERM"}
    outcomes = list(run_program("", ["", ""], allow_weak=True))
    assert [one.ending for one in outcomes] == [Ending.LOST, Ending.LOST], "it went away before the first program"
    monkeypatch.setenv(sandbox.ALLOW_WEAK, "1")
    assert len(list(run_program("", [""]))) == 1


@pytest.mark.parametrize(("stderr", "ending"), [("", Ending.LOST), ("no seccomp", None)])
def test_a_wall_that_could_not_be_put_up_is_no_fault_of_the_program(
    acts_as: Any, stderr: str, ending: Ending | None
) -> None:
    told = json.dumps({"has_begun": False, "stderr": stderr})
    acts_as(WEAK + f"print({told!r}, flush=True)\n")
    if ending is None:
        with pytest.raises(DagrlError, match="a wall of the sandbox could not be put up: no seccomp"):
            list(run_program("", [""], allow_weak=True))
    else:
        assert [one.ending for one in run_program("", [""], allow_weak=True)] == [ending]


def test_elsewhere_than_on_linux_no_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(DagrlError, match="on Linux only"):
        list(run_program("", [""]))
