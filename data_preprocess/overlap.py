"""Which problems are the same one: repeats within a set, and problems that other sets keep for the test."""

from __future__ import annotations

import argparse
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import BOXED_INSTRUCTION, CODE_INSTRUCTION, column, open_source

QUESTION_COLUMNS = ("problem", "question", "Problem", "question_content", "prompt")
_DAPO = re.compile(r"Solve the following math problem step by step\..*?\n\n(.*)\n\nRemember to put your .*", re.DOTALL)
_FORMATTING = re.compile(r"\s|\$|\\[()\[\],;!]|\\(?:left|right|displaystyle)(?![A-Za-z])|\.$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What the scripts need of one problem, whatever its source calls it."""

    question: str
    answer: str
    """The answer, or the tests as JSON."""
    extra_info: Mapping[str, Any]


def add_exclude(arguments: argparse.ArgumentParser) -> None:
    """`--exclude`, for scripts that make training problems."""
    arguments.add_argument(
        "--exclude", type=Path, nargs="+", default=[], help="files (parquet, jsonl) whose problems stay out of training"
    )


def bare_question(text: str) -> str:
    """`text` without the instructions of DAPO's template or of this folder's scripts around it."""
    framed = _DAPO.fullmatch(text.strip())
    text = text if framed is None else framed[1]
    for instruction in (BOXED_INSTRUCTION, CODE_INSTRUCTION):
        text = text.partition(instruction)[0]
    return text.strip()


def question_key(text: str) -> str:
    r"""What two texts of one question share: instructions, spaces, case, `$`, `\left` and a last dot do not count.

    >>> question_key("Find $x + 1$. ") == question_key(r"find \(x+1\)")
    True
    """
    return _FORMATTING.sub("", unicodedata.normalize("NFKC", bare_question(text)).casefold().strip())


def question_of(example: Mapping[str, Any], source: str) -> str:
    """The question of a row of any set that these scripts read or write; of messages it is the last."""
    text = column(example, QUESTION_COLUMNS, source)
    return bare_question(text if isinstance(text, str) else text[-1]["content"])


def without_repeats(problems: Iterable[Problem], source: str) -> list[Problem]:
    """The first of each question; the others are counted."""
    return list(_first_of_each(problems, source)[0].values())


def without_disputed(problems: Iterable[Problem], source: str) -> list[Problem]:
    """The first of each question, without the questions that come with different answers; both are counted."""
    first, disputed = _first_of_each(problems, source)
    if disputed:
        print(f"{source}: {len(disputed)} questions left out: their rows do not agree on the answer")
    return [problem for key, problem in first.items() if key not in disputed]


def without_known(problems: Iterable[Problem], known: Collection[str], where: str) -> list[Problem]:
    """Problems whose question is not in `known` (keys); the others are counted."""
    every = list(problems)
    new = [problem for problem in every if question_key(problem.question) not in known]
    print(f"{len(every) - len(new)} of {len(every)} training problems left out: they are in {where}")
    return new


def without_excluded(problems: list[Problem], files: Sequence[Path]) -> list[Problem]:
    """`problems` without those of each of the files that `--exclude` names."""
    for file in files:
        rows = open_source("", None, "test", file)
        problems = without_known(problems, {question_key(question_of(row, str(file))) for row in rows}, str(file))
    return problems


def _first_of_each(problems: Iterable[Problem], source: str) -> tuple[dict[str, Problem], set[str]]:
    """The first problem by key, and the keys that came with another answer too."""
    first: dict[str, Problem] = {}
    disputed: set[str] = set()
    num_read = 0
    for problem in problems:
        num_read += 1
        key = question_key(problem.question)
        if first.setdefault(key, problem).answer != problem.answer:
            disputed.add(key)
    if num_read > len(first):
        print(f"{source}: {num_read - len(first)} of {num_read} rows left out: they repeat a question")
    return first, disputed
