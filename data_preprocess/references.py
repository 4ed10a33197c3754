"""Reference programs: of a problem's published solutions the first that passes its tests, sought once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from overlap import Problem

from dagrl.rewards.code import judge, last_block, read_tests
from dagrl.rewards.runner import Undecided

MAX_TRIES = 5
"""Solutions tried of one problem: most sets have hundreds for some and none that passes for others."""


def add_references(arguments: argparse.ArgumentParser) -> None:
    """`--references`, for scripts whose problems have published solutions."""
    arguments.add_argument(
        "--references",
        action="store_true",
        help="train only on problems with a published solution that passes their tests, and keep it as"
        " extra_info.reference; about a second for each problem",
    )


def with_references(problems: Sequence[Problem]) -> list[Problem]:
    """Those of `problems` with `solutions` in their extra_info of which one passes: it stands there as `reference`."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        programs = list(pool.map(_reference, problems))
    found = [
        replace(problem, extra_info={**problem.extra_info, "reference": program})
        for problem, program in zip(problems, programs, strict=True)
        if program is not None
    ]
    if len(found) < len(problems):
        print(f"{len(problems) - len(found)} of {len(problems)} problems left out: no published solution passes")
    return without_solutions(found)


def without_solutions(problems: Iterable[Problem]) -> list[Problem]:
    return [
        replace(problem, extra_info={key: value for key, value in problem.extra_info.items() if key != "solutions"})
        for problem in problems
    ]


def _reference(problem: Problem) -> str | None:
    tests = read_tests(problem.answer)
    for text in problem.extra_info["solutions"][:MAX_TRIES]:
        program = last_block(text) or text
        try:
            if judge(program, tests).failure is None:
                return program
        except Undecided:  # the machine was too slow for it, twice
            continue
    return None
