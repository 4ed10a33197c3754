"""The program of a worker of `EquivalenceChecker`: reads questions as JSON lines, answers `same` or `different`.

Run as a script, without importing dagrl. math-verify's own time limits are off: they use alarm signals, which call a
slow comparison wrong; here the kernel ends the process when its CPU seconds are used up, and the parent knows.
"""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import sys

from math_verify import parse, verify


def is_same(gold: str, answer: str) -> bool:
    """Whether two formulas without `$` are equivalent."""
    parsed = [parse(f"${formula}$", parsing_timeout=None) for formula in (gold, answer)]
    return bool(verify(parsed[0], parsed[1], timeout_seconds=None))


def limit_cpu(seconds: float) -> None:
    """Lets the kernel end this process after `seconds` more of CPU time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints is taken for a reply
    logging.disable()
    is_same("\\frac{1}{2}", "0.5")  # the first formula builds the parser's tables
    replies.write("ready\n")
    replies.flush()
    for line in sys.stdin:
        question = json.loads(line)
        limit_cpu(question["cpu_limit_s"])
        replies.write("same\n" if is_same(question["gold"], question["answer"]) else "different\n")
        replies.flush()


if __name__ == "__main__":
    main()
