"""LiveCodeBench's programming problems with all their tests, public and private → test.parquet.

python data_preprocess/livecodebench.py --local_dir data/livecodebench [--input FILE|FOLDER] [--release 6]
    [--since 2024-08-01] [--until 2025-02-01] [--max_test_chars 1000000]

From livecodebench/code_generation_lite, whose release N is its files test.jsonl, test2.jsonl ... testN.jsonl; `--input`
is a folder that holds them, or one of them. `--since` and `--until` keep the problems of contests from the one day to
before the other, such as those later than a model's training data.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from argparse import Namespace
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

from code_tests import add_max_test_chars, code_row, read_code_problem, tell_left_out
from common import column, open_files, parser, readable, write
from overlap import Problem, without_repeats

SOURCE = "livecodebench/code_generation_lite"
NUM_RELEASES = 6


def examples(options: Namespace) -> Iterable[dict[str, Any]]:
    """Rows of a release, or of the local copy."""
    names = ["test.jsonl", *(f"test{number}.jsonl" for number in range(2, options.release + 1))]
    if options.input is None:
        return open_files([f"hf://datasets/{SOURCE}/{name}" for name in names])
    return open_files([str(options.input / name) for name in names] if options.input.is_dir() else [str(options.input)])


def read(example: dict[str, Any], max_test_chars: int) -> Problem:
    """One problem with its tests of both kinds."""
    public = json.loads(column(example, ("public_test_cases",), SOURCE))
    problem = read_code_problem(
        column(example, ("question_content",), SOURCE),
        public + private_tests(column(example, ("private_test_cases",), SOURCE)),
        metadata=example.get("metadata"),
        starter_code=example.get("starter_code"),
        max_test_chars=max_test_chars,
    )
    about = {name: str(example.get(name) or "") for name in ("question_id", "platform", "difficulty")}
    extra_info = {**problem.extra_info, **about, "contest_date": contest_date(example).isoformat()}
    return Problem(question=problem.question, answer=problem.answer, extra_info=extra_info)


def contest_date(example: dict[str, Any]) -> date:
    """The day of the contest; readers make times of it or leave it as text."""
    return date.fromisoformat(str(column(example, ("contest_date",), SOURCE))[:10])


def private_tests(packed: str) -> list[Any]:
    """Private tests: JSON, or JSON in a pickled text, compressed, in base 64. Raises ValueError for anything else."""
    if packed.lstrip().startswith("["):
        return list(json.loads(packed))
    try:
        text = _TextOnly(io.BytesIO(zlib.decompress(base64.b64decode(packed)))).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"its private tests cannot be unpacked: {error}") from error
    if not isinstance(text, str):
        raise ValueError(f"its private tests are packed as {type(text).__name__}, not as a text")
    return list(json.loads(text))


class _TextOnly(pickle.Unpickler):
    """Loads texts and numbers: a pickle that names a class or function could run anything."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"it wants {module_name}.{global_name}")


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser("LiveCodeBench to parquet", is_seeded=False)
    add_max_test_chars(arguments)
    arguments.add_argument("--release", type=int, choices=range(1, NUM_RELEASES + 1), default=NUM_RELEASES)
    arguments.add_argument("--since", type=date.fromisoformat, default=date.min, help="first day of contests")
    arguments.add_argument("--until", type=date.fromisoformat, default=date.max, help="day after the last of contests")
    options = arguments.parse_args(argv)
    wanted = (x for x in examples(options) if options.since <= contest_date(x) < options.until)
    found = list(readable(wanted, lambda example: read(example, options.max_test_chars), SOURCE))
    problems = without_repeats(found, SOURCE)
    tell_left_out(problems)
    write(options.local_dir, "test", [code_row(x, SOURCE, "test", i) for i, x in enumerate(problems)])


if __name__ == "__main__":
    main()
