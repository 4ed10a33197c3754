"""The forms in which mathematical problems are published, read into one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from common import BOXED_INSTRUCTION, Row, column, last_boxed, make_row
from overlap import Problem, question_of

_WHOLE = re.compile(r"(-?[0-9]+)(?:\.0+)?")
_DEGREES = re.compile(r"\^\{?\\circ\}?$")


def read_problem(example: Mapping[str, Any], source: str) -> Problem:
    """One problem. The question is text or messages; raises ValueError where there is no answer.

    The answer stands in `answer`, in `reward_model.ground_truth` (DAPO's form), or, where a source has neither, in
    `solution`: its last box, or all of it if that is a whole number.
    """
    return Problem(question=question_of(example, source), answer=_answer(example, source), extra_info={})


def boxed_row(problem: Problem, source: str, split: str, index: int) -> Row:
    """The row of a problem, which asks for the answer in a box."""
    return make_row(
        data_source=source,
        question=f"{problem.question} {BOXED_INSTRUCTION}",
        ability="math",
        ground_truth=problem.answer,
        extra_info={"split": split, "index": index, **problem.extra_info},
    )


def integer_answer(text: str) -> str:
    r"""An answer of the AIME, an integer from 0 to 999, without zeros in front. Raises ValueError for anything else.

    >>> integer_answer("033"), integer_answer("336^\\circ")
    ('33', '336')
    """
    found = _WHOLE.fullmatch(_DEGREES.sub("", text.strip("$ ")))
    if found is None or not 0 <= int(found[1]) <= 999:
        raise ValueError(f"the answer {text!r:.80} is not an integer from 0 to 999")
    return str(int(found[1]))


def plain_answer(text: str) -> str:
    """An answer as it is, but whole numbers without `.0`."""
    found = _WHOLE.fullmatch(text)
    return text if found is None else found[1]


def _answer(example: Mapping[str, Any], source: str) -> str:
    given = example.get("reward_model", {}).get("ground_truth", example.get("answer", example.get("Answer")))
    if given is None:
        given = str(column(example, ("solution", "Solution", "answer"), source)).strip()
        given = given if _WHOLE.fullmatch(given) else last_boxed(given)
    text = str(given).strip()
    if "\\boxed" in text:
        text = last_boxed(text).strip()
    if not text:
        raise ValueError("has no answer")
    return text
