"""Mathematical answers: the last box of a response against the ground truth, exactly first, then by equivalence."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dagrl.errors import DataError
from dagrl.rewards.equivalence import EquivalenceChecker
from dagrl.rewards.runner import Undecided

MAX_CHECKED_CHARS = 2000
"""Longer answers are compared exactly only: no answer of a data set is as long, and parsing one can take minutes."""
_MAX_NUMBER_CHARS = 200

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])[ \t]*")
_UNBRACED_END = re.compile(r"[\s$]|\\[)\]]")
_SIGN = r"(?P<sign>[+-]?) ?"
_DECIMAL = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_FRACTION_FORMS = (
    re.compile(rf"{_SIGN}(?P<over>{_DECIMAL})(?:/(?P<under>{_DECIMAL}))?"),
    re.compile(rf"{_SIGN}\\[dt]?frac\{{(?P<over>-?{_DECIMAL})\}}\{{(?P<under>-?{_DECIMAL})\}}"),
    re.compile(rf"{_SIGN}\\[dt]?frac ?(?P<over>[0-9]) ?(?P<under>[0-9])"),
)
_GROUPED_NUMBER = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_DROPPED = re.compile(r"\$|\\[()\[\]]|\\[,;:! ]|\\left(?![A-Za-z])|\\right(?![A-Za-z])")
_SPACE_NEXT_TO_SIGN = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])")


def last_boxed(text: str) -> str | None:
    r"""What stands in the last `\boxed` or `\fbox` of `text`; None without one, or where the last one is not closed.

    Without braces it is what follows up to the next space or end of formula.

    >>> last_boxed(r"first \boxed{1}, then $\boxed{\frac{1}{2}}$")
    '\\frac{1}{2}'
    """
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    last = boxes[-1]
    if text[last.end() : last.end() + 1] == "{":
        return _braced(text, last.end())
    rest = text[last.end() :]
    end = _UNBRACED_END.search(rest)
    return (rest if end is None else rest[: end.start()]) or None


def boxed_exact_match(text: str, ground_truth: Any) -> float:
    r"""1.0 if the last box of `text` is `ground_truth`, as the same number or the same text, else 0.0.

    Numbers are compared exactly: 035 = 35, 1,242 = 1242.00, 0.5 = 1/2 = \frac{1}{2}. In texts spaces, `$`, commas
    between thousands and a dot at the end do not count.

    >>> boxed_exact_match(r"so \boxed{035}.", 35)
    1.0
    """
    answer = last_boxed(text)
    return float(answer is not None and _is_same(_normal(answer), _gold(ground_truth)))


def same_answer_key(text: str) -> Fraction | str | None:
    r"""What the last boxes of two texts have in common if they are the same answer; None without a box.

    Exact as `boxed_exact_match`, without math-verify: what is equivalent only by algebra stays apart.

    >>> same_answer_key(r"\boxed{0.50}") == same_answer_key(r"\boxed{\frac{1}{2}}")
    True
    """
    boxed = last_boxed(text)
    normal = None if boxed is None else _normal(boxed)
    if not normal:
        return None
    number = _number(normal)
    return normal if number is None else number


def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """1.0 if the last box of the response `solution_str` is equivalent to `ground_truth`, else 0.0.

    What differs as text goes to math-verify in a process of its own. Raises `Undecided` where that gave no answer
    within its limits, DataError where there is no ground truth.
    """
    gold = _gold(ground_truth)
    boxed = last_boxed(solution_str)
    if boxed is None:
        return 0.0
    answer = _normal(boxed)
    if _is_same(answer, gold):
        return 1.0
    if not answer or len(answer) > MAX_CHECKED_CHARS or None not in (_number(answer), _number(gold)):
        return 0.0
    verdict = _checker().check(gold=gold, answer=answer)
    if verdict is None:
        raise Undecided(f"math-verify could not compare {answer!r:.80} with {gold!r:.80} within its limits")
    return float(verdict)


@functools.cache
def _checker() -> EquivalenceChecker:
    """One set of worker processes for the run; they start with the first question and end with this process."""
    return EquivalenceChecker()


def _braced(text: str, start: int) -> str | None:
    """What stands between the brace at `start` and the one that closes it; None if it is not closed."""
    depth = 0
    place = start
    while place < len(text):
        if text[place] == "\\":
            place += 1
        elif text[place] == "{":
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : place]
        place += 1
    return None


def _gold(ground_truth: Any) -> str:
    gold = "" if ground_truth is None else str(ground_truth)
    boxed = last_boxed(gold)
    normal = _normal(gold if boxed is None else boxed)
    if not normal:
        raise DataError("there is no ground truth to compare with", where="reward 'math'")
    return normal


def _is_same(answer: str, gold: str) -> bool:
    if answer == gold:
        return True
    number = _number(answer)
    return number is not None and number == _number(gold)


def _normal(answer: str) -> str:
    """`answer` without what does not change its meaning."""
    text = answer.replace("−", "-").replace("{,}", ",")
    text = " ".join(_DROPPED.sub(" ", text).split())
    text = _SPACE_NEXT_TO_SIGN.sub("", text)
    if text.endswith(".") and not text.endswith(".."):
        text = text[:-1]
    return text.replace(",", "") if _GROUPED_NUMBER.fullmatch(text) else text


def _number(text: str) -> Fraction | None:
    """The exact value of a plain number or fraction of numbers; None for anything else."""
    if len(text) > _MAX_NUMBER_CHARS:
        return None
    for form in _FRACTION_FORMS:
        found = form.fullmatch(text)
        if found is None:
            continue
        under = Fraction(_decimal(found["under"] or "1"))
        if under == 0:
            return None
        value = Fraction(_decimal(found["over"])) / under
        return -value if found["sign"] == "-" else value
    return None


def _decimal(text: str) -> str:
    """`text` in the form that `Fraction` reads: `5.` and `.5` get their zeros."""
    return f"{text}0" if text.endswith(".") else text
