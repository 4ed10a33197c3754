"""Runs one program on several inputs behind walls: a job comes in on descriptor 0, a JSON line per input goes back.

Imports the standard library only, in a process (`forking.serve`) that lives as long as dagrl, never reads a byte of a
job, and forks one for each. Three processes then: the first enters new namespaces, the second holds the walls up and
starts the third, which plays the program on one input and ends. A program may compute, start threads, read the standard
library and write to its own stdout; the kernel refuses everything else.

All programs find the interpreter at the same addresses and with the same hash seed. That helps none of them: what reads
their output is the second process, which takes it for bytes, and nothing that was there before them is secret.
"""

from __future__ import annotations

import _sitebuiltins
import atexit
import bisect
import builtins
import collections
import ctypes
import errno
import functools
import heapq
import importlib
import itertools
import json
import math
import operator
import os
import random
import re
import resource
import select
import signal
import string
import struct
import sys
import threading
import time
import traceback
import typing
from collections.abc import Iterable
from types import ModuleType
from typing import Any

STDERR_CHARS = 2000
_MODULES = (bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys, typing)
"""Named in every program, which a grader's programs may take for granted."""
_OPENED = (typing, collections, functools, heapq, bisect, itertools)
"""Of these, the public names too."""
_USUAL = ("array", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "io", "queue", "statistics")
"""Imported here only so that programs which do so need not wait for it."""
for _name in _USUAL:
    importlib.import_module(_name)

_STANDARD_LIBRARY = os.path.dirname(os.__file__)
_LIBC = ctypes.CDLL(None, use_errno=True)
_IS_ARM = os.uname().machine == "aarch64"
_NR_PIVOT_ROOT = 41 if _IS_ARM else 155
_NR_CAPSET = 91 if _IS_ARM else 126
_NR_MOUNT_SETATTR = 442
_NR_LANDLOCK_CREATE, _NR_LANDLOCK_ADD, _NR_LANDLOCK_RESTRICT = 444, 445, 446

_NEW_MOUNTS, _NEW_UTS, _NEW_IPC = 1 << 17, 1 << 26, 1 << 27
_NEW_USER, _NEW_PIDS, _NEW_NETWORK = 1 << 28, 1 << 29, 1 << 30
_MS_BIND, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x1000, 0x4000, 1 << 18, 2
_AT_RECURSIVE, _ATTR_READ_ONLY, _ATTR_NO_SUID = 0x8000, 1, 2
_PDEATHSIG, _NO_NEW_PRIVS, _SECCOMP = 1, 38, 22
_CONNECTION = 0
"""The descriptor that the process was given its connection on."""
_PRIVATE_UIDS = 0x70000000
"""Root plays programs under a user id of this number and above: it owns no file, and its processes can be counted."""


class Missing(Exception):
    """The kernel does not give one of the walls."""


def play_job() -> None:
    """Reads a job from the connection to its end, tells there how the walls stand, then what came of each input."""
    with open(_CONNECTION, "rb", closefd=False) as file:
        job = json.loads(file.read())
    replies = open(_CONNECTION, "w", closefd=False)  # noqa: SIM115 (until the end of the process)
    _LIBC.prctl(_PDEATHSIG, signal.SIGKILL)
    walls: list[str] = []
    missing: dict[str, str] = {}
    is_host_root = os.geteuid() == 0 and _has_all_users()
    has_namespaces = _try("namespaces", walls, missing, enter_namespaces)
    if has_namespaces:
        _become_first_process()
        has_namespaces = _try("private root", walls, missing, change_root)
    has_seccomp = _try("seccomp", walls, missing, lambda: check_seccomp(job["seccomp"]))
    landlock = 0 if has_namespaces else _try("landlock", walls, missing, landlock_version)
    is_strong = has_seccomp is not None and landlock is not None
    replies.write(json.dumps({"walls": walls, "missing": missing, "is_strong": is_strong}) + "\n")
    replies.flush()
    if not is_strong and not job["allow_weak"]:
        return
    seccomp = bytes.fromhex(job["seccomp"]) if has_seccomp else None
    behind = Walls(namespaces=bool(has_namespaces), is_host_root=is_host_root, landlock=landlock or 0, seccomp=seccomp)
    for case in job["cases"]:
        replies.write(json.dumps(play(job, case, behind)) + "\n")
        replies.flush()


def _try(name: str, walls: list[str], missing: dict[str, str], build: typing.Callable[[], Any]) -> Any:
    try:
        built = build()
    except (Missing, OSError) as error:
        missing[name] = str(error)
        return None
    walls.append(name)
    return built


class Walls(typing.NamedTuple):
    """What a program's process puts up around itself before it starts."""

    namespaces: bool
    is_host_root: bool
    landlock: int
    """Version of Landlock to use; 0 where the private root does its work."""
    seccomp: bytes | None


# Walls that stand around all inputs of a program


def enter_namespaces() -> bool:
    """New processes, network, mounts, IPC; in a user namespace for all but root."""
    spaces = _NEW_MOUNTS | _NEW_UTS | _NEW_IPC | _NEW_PIDS | _NEW_NETWORK
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0 and _has_all_users() and _LIBC.unshare(spaces) == 0:
        return True
    _call(_LIBC.unshare(spaces | _NEW_USER), "unshare")
    for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(line)
    return True


def _has_all_users() -> bool:
    """False in a container whose root is an ordinary user outside: it cannot take any other user id."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return file.read().split() == ["0", "0", "4294967295"]


def _become_first_process() -> None:
    """Goes on as process 1 of the new namespace, whose end is the end of all others in it."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        os._exit(abs(os.waitstatus_to_exitcode(status)))
    _LIBC.prctl(_PDEATHSIG, signal.SIGKILL)


def change_root() -> bool:
    """A read-only root that holds the standard library, the system's shared libraries and three devices."""
    root = "/proc"  # any folder that is there; only this process sees the new mount
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", 0)
    for path in visible_folders():
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
            continue
        os.makedirs(root + path, exist_ok=True)
        _mount(path, root + path, None, _MS_BIND | _MS_REC)
    packages = f"{root}{_STANDARD_LIBRARY}/site-packages"
    if os.path.isdir(packages):
        _mount("tmpfs", packages, "tmpfs", 0)
    os.mkdir(f"{root}/dev")
    for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
        os.close(os.open(root + device, os.O_CREAT))
        _mount(device, root + device, None, _MS_BIND)
    attributes = struct.pack("QQQQ", _ATTR_READ_ONLY | _ATTR_NO_SUID, 0, 0, 0)
    _call(_LIBC.syscall(_NR_MOUNT_SETATTR, -1, root.encode(), _AT_RECURSIVE, attributes, 32), "mount_setattr")
    os.chdir(root)
    _call(_LIBC.syscall(_NR_PIVOT_ROOT, b".", b"."), "pivot_root")
    _call(_LIBC.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")
    return True


def visible_folders() -> list[str]:
    """What a program may read; outer folders first, nothing twice."""
    folders = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"]
    for path in (os.path.join(sys.base_prefix, "lib"), _STANDARD_LIBRARY):
        if not any(path == folder or path.startswith(folder + "/") for folder in folders):
            folders.append(path)
    return [folder for folder in folders if os.path.exists(folder)]


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    kind_bytes = None if kind is None else kind.encode()
    _call(_LIBC.mount(source.encode(), target.encode(), kind_bytes, ctypes.c_ulong(flags), None), f"mount {target}")


def _call(result: int, what: str) -> int:
    if result < 0:
        raise Missing(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


# Walls that a program's process puts up around itself


def check_seccomp(program: str | None) -> bool:
    if program is None:
        raise Missing(f"the system calls of {os.uname().machine} are not listed")
    _call(0 if _LIBC.prctl(_SECCOMP, 2, None, 0, 0) == 0 or ctypes.get_errno() == errno.EFAULT else -1, "seccomp")
    return True


def landlock_version() -> int:
    version: int = _LIBC.syscall(_NR_LANDLOCK_CREATE, None, 0, 1)
    return _call(version, "landlock")


def _restrict_files(version: int) -> None:
    """Reading below the visible folders, writing to /dev/null, and no other file."""
    num_rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    rules = _call(_LIBC.syscall(_NR_LANDLOCK_CREATE, struct.pack("Q", (1 << num_rights) - 1), 8, 0), "landlock")
    read_file, read_folder, write_file = 1 << 2, 1 << 3, 1 << 1
    rights = dict.fromkeys(visible_folders(), read_file | read_folder)
    rights |= {"/dev/null": read_file | write_file, "/dev/zero": read_file, "/dev/urandom": read_file}
    for path, right in rights.items():
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        _call(_LIBC.syscall(_NR_LANDLOCK_ADD, rules, 1, struct.pack("=Qi", right, place), 0), f"landlock {path}")
        os.close(place)
    _call(_LIBC.syscall(_NR_LANDLOCK_RESTRICT, rules, 0), "landlock")
    os.close(rules)


def _set_limits(limits: dict[str, Any], walls: Walls) -> None:
    fixed = {
        resource.RLIMIT_CPU: limits["cpu_s"],
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_FSIZE: limits["output_bytes"],
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
    }
    if walls.namespaces:  # elsewhere all processes of the user would be counted
        fixed[resource.RLIMIT_NPROC] = limits["threads"]
    for which, most in fixed.items():
        resource.setrlimit(which, (most, most))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = limits["memory_bytes"] // 2
    resource.setrlimit(resource.RLIMIT_STACK, (stack if hard < 0 else min(stack, hard), hard))


def _give_up_rights(walls: Walls) -> None:
    """No root, no capabilities, none to be had again; and death with the process that started this one."""
    uid = _PRIVATE_UIDS + int.from_bytes(os.urandom(3))
    if walls.namespaces and walls.is_host_root:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    _LIBC.syscall(_NR_CAPSET, struct.pack("=Ii", 0x20080522, 0), bytes(24))
    _LIBC.prctl(_PDEATHSIG, signal.SIGKILL)


def _filter_calls(program: bytes) -> None:
    lines = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(lines))
    _call(_LIBC.prctl(_SECCOMP, 2, head, 0, 0), "seccomp")


# One input


def play(job: dict[str, Any], case: Any, walls: Walls) -> dict[str, Any]:
    """Plays the program on one input in a process of its own and tells what came of it."""
    limits = job["limits"]
    files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr", "answer")]
    if job["fn_name"] is None:
        _write_all(files[0], case.encode(errors="surrogateescape"))
        os.lseek(files[0], 0, os.SEEK_SET)
    is_up, says_up = os.pipe()
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _begin(job, case, walls, [*files, says_up])
    os.close(says_up)
    handle = os.pidfd_open(pid)
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    waiting.register(_CONNECTION, 0)  # dagrl hung up: nobody wants to know
    ended = waiting.poll(limits["wall_s"] * 1000)
    was_stopped = (handle, select.POLLIN) not in ended
    if was_stopped:
        os.kill(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    os.close(handle)
    outcome = {
        "has_begun": bool(os.read(is_up, 1)),
        "exit_code": os.waitstatus_to_exitcode(status),
        "was_stopped": was_stopped,
        "cpu_s": used.ru_utime + used.ru_stime,
        "wall_s": time.monotonic() - start,
        "is_full": os.fstat(files[1]).st_size >= limits["output_bytes"],
        "stdout": _content(files[1], limits["output_bytes"]),
        "stderr": _content(files[2], limits["output_bytes"])[-STDERR_CHARS:],
        "answer": _content(files[3], limits["output_bytes"]),
    }
    for file in (*files, is_up):
        os.close(file)
    return outcome


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _content(file: int, most: int) -> str:
    return os.pread(file, most, 0).decode(errors="replace")


def _begin(job: dict[str, Any], case: Any, walls: Walls, files: list[int]) -> typing.NoReturn:
    """The third process: files, limits, walls, a sign that they stand, then the program."""
    code = 1
    try:
        for number, file in enumerate([os.dup(file) for file in files]):
            os.dup2(file, number)
        os.closerange(len(files), 4096)
        _set_limits(job["limits"], walls)
        if walls.landlock:
            _LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
            _restrict_files(walls.landlock)
        _give_up_rights(walls)
        if walls.seccomp is not None:
            _filter_calls(walls.seccomp)
        os.write(len(files) - 1, b"1")
        os.close(len(files) - 1)
        code = _run(job["program"], job["fn_name"], case)
    except BaseException as error:  # noqa: BLE001 (told to the first process, which cannot see it otherwise)
        os.write(2, repr(error).encode())
    finally:
        os._exit(code)


def _run(program: str, fn_name: str | None, case: Any) -> int:
    """Runs the program as a user would; gives its exit code."""
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", errors="replace")  # noqa: SIM115
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
    sys.argv = ["program.py"]
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    module = ModuleType("__main__" if fn_name is None else "solution")
    sys.modules[module.__name__] = module
    _name_modules(module.__dict__, _MODULES)
    code = _guarded(lambda: _play_program(program, fn_name, case, module))
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return max(code, _guarded(sys.stdout.flush), _guarded(sys.stderr.flush))


def _name_modules(names: dict[str, Any], modules: Iterable[ModuleType]) -> None:
    names.update({module.__name__: module for module in modules})
    for module in _OPENED:
        public = getattr(module, "__all__", [name for name in dir(module) if not name.startswith("_")])
        names.update({name: getattr(module, name) for name in public})


def _play_program(program: str, fn_name: str | None, case: Any, module: ModuleType) -> None:
    exec(compile(program, "program.py", "exec", dont_inherit=True), module.__dict__)
    if fn_name is not None:
        owner: Any = module.__dict__["Solution"]() if "Solution" in module.__dict__ else module
        answer = json.dumps(getattr(owner, fn_name)(*case))
        _write_all(3, answer.encode())


def _guarded(act: typing.Callable[[], Any]) -> int:
    try:
        act()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        return 1
    except BaseException:  # noqa: BLE001 (whatever the program raised is its own fault)
        traceback.print_exc(limit=-3, chain=False)
        return 1
    return 0
