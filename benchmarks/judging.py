"""Answers that the math reward judges per second, and short programs that the sandbox runs per second.

Run `OMP_NUM_THREADS=1 python benchmarks/judging.py` in the repository root, on a quiet machine. The CPU time of one, in
all its processes, is printed too: it says what the cores could do where other programs take their share.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dagrl.rewards.code import compute_score as judge_program
from dagrl.rewards.math import compute_score as judge_answer

NUM_ANSWERS = 2000
NUM_HARD_ANSWERS = 400
NUM_PROGRAMS = 200
THREADS = 2
"""As many as the machine has cores."""

PLAIN = [("42", "42"), ("0.5", r"\frac{1}{2}"), ("1,242", "1242"), ("17", "18"), ("(a,b)", "(a,b)")]
HARD = [
    (r"x^2+2x+1", r"(x+1)^2"),
    (r"\frac{\sqrt{8}}{2}", r"\sqrt{2}"),
    (r"(1,2]", r"(1,3]"),
    (r"2\pi", r"\pi\cdot 2"),
    (r"\{1,2,3\}", r"\{3,2,1\}"),
]
"""What exact comparison does not settle: each goes to math-verify in a worker process."""
PROGRAM = "```python\nn = int(input())\nprint(sum(range(n)))\n```"
TESTS = {"inputs": ["10"], "outputs": ["45"]}


def mixed(number: int) -> float:
    """One answer in five is of the hard kind, as in the data sets of this field."""
    kind = HARD if number % 5 == 0 else PLAIN
    return answer(kind, number)


def answer(kind: list[tuple[str, str]], number: int) -> float:
    gold, said = kind[number // 5 % len(kind)]
    return judge_answer("bench", rf"so \boxed{{{said}}}", gold, {})


def measure(what: str, work: Callable[[int], float], count: int) -> None:
    """Prints how many per second `THREADS` threads get through, once what they start is there."""
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(2 * THREADS)))
        start, before = time.perf_counter(), cpu_seconds()
        list(threads.map(work, range(count)))
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - before
    print(f"{what:<38}{count / seconds:8.0f} /s {1000 * cpu / count:8.2f} ms of CPU time each")


def cpu_seconds() -> float:
    """Of this process, of the children that ended, and of those that are there."""
    own = os.times()
    used = own.user + own.system + own.children_user + own.children_system
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
            used += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return used


def pressure() -> str:
    """How busy the machine is by itself: the share of time that some program waited for a core, of the last 10 s."""
    try:
        return Path("/proc/pressure/cpu").read_text().split()[1]
    except OSError:
        return "unknown"


def main() -> None:
    print(f"{os.cpu_count()} cores; cpu pressure before: {pressure()}")
    for number in range(len(HARD) * 5):
        mixed(number)
    measure("answers, one in five for math-verify", mixed, NUM_ANSWERS)
    measure("answers, all for math-verify", lambda number: answer(HARD, number), NUM_HARD_ANSWERS)
    measure("short programs", lambda _: judge_program("bench", PROGRAM, TESTS, {}), NUM_PROGRAMS)
    print(f"cpu pressure after: {pressure()}")


if __name__ == "__main__":
    main()
