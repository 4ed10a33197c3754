"""The filter of system calls that a model-written program runs behind, as a program for the kernel (classic BPF)."""

from __future__ import annotations

import platform
import struct

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine: its column in the tables below, and its number in the kernel's audit records."""
_ALLOWED = {  # name: (number on x86_64, number on aarch64); -1 where there is none
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "lseek": (8, 62), "close": (3, 57), "close_range": (436, 436), "fstat": (5, 80),
    "newfstatat": (262, 79), "stat": (4, -1), "lstat": (6, -1), "statx": (332, 291), "access": (21, -1),
    "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, -1), "readlinkat": (267, 78),
    "getcwd": (79, 17), "getdents64": (217, 61), "openat": (257, 56), "open": (2, -1), "dup": (32, 23),
    "dup2": (33, -1), "dup3": (292, 24), "pipe": (22, -1), "pipe2": (293, 59), "poll": (7, -1), "ppoll": (271, 73),
    "select": (23, -1), "pselect6": (270, 72), "ftruncate": (77, 46), "fsync": (74, 82), "mmap": (9, 222),
    "munmap": (11, 215), "mremap": (25, 216), "mprotect": (10, 226), "madvise": (28, 233), "brk": (12, 214),
    "futex": (202, 98), "get_robust_list": (274, 100), "set_robust_list": (273, 99), "set_tid_address": (218, 96),
    "rseq": (334, 293), "membarrier": (324, 283), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "gettid": (186, 178), "getpid": (39, 172), "getppid": (110, 173), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getgroups": (115, 158), "getrandom": (318, 278), "uname": (63, 160),
    "sysinfo": (99, 179), "umask": (95, 166), "getrusage": (98, 165), "getrlimit": (97, 163), "times": (100, 153),
    "time": (201, -1), "gettimeofday": (96, 169), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "nanosleep": (35, 101), "restart_syscall": (219, 128), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132), "setitimer": (38, 103), "getitimer": (36, 102),
    "alarm": (37, -1), "pause": (34, -1), "exit": (60, 93), "exit_group": (231, 94), "arch_prctl": (158, -1),
}  # fmt: skip
_ALLOWED_WITH = {  # name: (numbers, argument, its allowed values): flags of its own files, the name of a thread
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 4, 1030)),
    "ioctl": ((16, 29), 1, (0x5401, 0x5413, 0x5421, 0x5450, 0x5451)),
    "prctl": ((157, 167), 0, (15, 16)),
}
_CLONE, _CLONE3, _SETRLIMIT, _PRLIMIT = (56, 220), (435, 435), (160, 164), (302, 261)
_CLONE_THREAD = 0x10000
_ALLOW, _KILL, _PRETEND, _REFUSE, _ABSENT = 0x7FFF0000, 0x80000000, 0x50000, 0x50001, 0x50026
"""What the kernel does with a call: play it, end the process, answer 0 and do nothing, fail with EPERM or ENOSYS."""
_LOAD, _IS_EQUAL, _HAS_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_CALL, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets of what is loaded; an argument has 8 bytes, the low half first."""

_Line = tuple[int, int, int, int]
"""Operation, lines to skip if it holds, lines to skip if not, operand."""


def filter_program() -> bytes | None:
    """What is listed above is allowed, the rest fails with EPERM; None where this machine's calls are not listed.

    Only threads may be cloned. Limits may be read; setting them does nothing and succeeds, since many honest programs
    first ask for a larger stack.
    """
    if platform.machine() not in _ARCHITECTURES:
        return None
    at, architecture = _ARCHITECTURES[platform.machine()]
    code: list[_Line] = [(_LOAD, 0, 0, _ARCHITECTURE), (_IS_EQUAL, 1, 0, architecture), _end(_KILL)]
    code.append((_LOAD, 0, 0, _CALL))
    for numbers in _ALLOWED.values():
        code += _on(numbers[at], [_end(_ALLOW)])
    for numbers, argument, values in _ALLOWED_WITH.values():
        tests = [line for value in values for line in ((_IS_EQUAL, 0, 1, value), _end(_ALLOW))]
        code += _on(numbers[at], [_argument(argument), *tests, _end(_REFUSE)])
    code += _on(_CLONE[at], [_argument(0), (_HAS_BIT, 0, 1, _CLONE_THREAD), _end(_ALLOW), _end(_REFUSE)])
    code += _on(_CLONE3[at], [_end(_ABSENT)])  # then glibc takes clone, whose flags can be seen
    code += _on(_SETRLIMIT[at], [_end(_PRETEND)])
    is_null = [
        line
        for half in (0, 4)
        for line in ((_LOAD, 0, 0, _ARGUMENTS + 16 + half), (_IS_EQUAL, 1, 0, 0), _end(_PRETEND))
    ]
    code += _on(_PRLIMIT[at], [*is_null, _end(_ALLOW)])
    code.append(_end(_REFUSE))
    return b"".join(struct.pack("HBBI", *line) for line in code)


def _on(number: int, block: list[_Line]) -> list[_Line]:
    """`block`, which ends in a return, for the call `number`; nothing where the machine has no such call."""
    return [] if number < 0 else [(_IS_EQUAL, 0, len(block), number), *block]


def _argument(index: int) -> _Line:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _end(action: int) -> _Line:
    return (_RETURN, 0, 0, action)
