"""DeepCoder's 24,000 programming problems with tests → train.parquet and test.parquet, by the source's own split.

python data_preprocess/deepcoder.py --local_dir data/deepcoder [--input FOLDER] [--seed 0] [--max_test_chars 1000000]
    [--exclude data/livecodebench/test.parquet ...] [--references]

From agentica-org/DeepCoder-Preview-Dataset: the subsets primeintellect, taco and lcbv5 for training, codeforces and
lcbv5 for the test, with the columns problem, tests (JSON) and, in some, starter_code and metadata. `--input` is a
folder with train.jsonl and test.jsonl (or .parquet) of any of them. `--seed` shuffles the training problems.
`--references` is for workflows/codegen_verifier_deepcoder.yaml: it takes the column solutions, where a subset has one.
"""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from code_tests import add_max_test_chars, code_row, read_code_problem, tell_left_out
from common import column, open_source, parser, readable, write
from overlap import Problem, add_exclude, question_key, without_excluded, without_known, without_repeats
from references import add_references, with_references, without_solutions

SOURCE = "agentica-org/DeepCoder-Preview-Dataset"
SUBSETS = {"train": ("primeintellect", "taco", "lcbv5"), "test": ("codeforces", "lcbv5")}


def examples(split: str, options: Namespace) -> Iterator[dict[str, Any]]:
    """Rows of every subset of a split, or of the local copy."""
    for subset in SUBSETS[split] if options.input is None else ("",):
        yield from open_source(SOURCE, subset, split, options.input)


def problems(split: str, options: Namespace) -> list[Problem]:
    """The problems of a split, each once; those whose tests cannot be used are counted."""

    def read(example: dict[str, Any]) -> Problem:
        problem = read_code_problem(
            column(example, ("problem",), SOURCE),
            column(example, ("tests",), SOURCE),
            metadata=example.get("metadata"),
            starter_code=example.get("starter_code"),
            max_test_chars=options.max_test_chars,
        )
        return replace(problem, extra_info={**problem.extra_info, "solutions": example.get("solutions") or []})

    return without_repeats(readable(examples(split, options), read, f"{SOURCE}, {split}"), f"{SOURCE}, {split}")


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser("DeepCoder to parquet")
    add_exclude(arguments)
    add_max_test_chars(arguments)
    add_references(arguments)
    options = arguments.parse_args(argv)
    if options.input is not None and not options.input.is_dir():
        raise SystemExit(f"--input {options.input}: give a folder that holds both train and test")
    test = without_solutions(problems("test", options))
    train = without_known(problems("train", options), {question_key(x.question) for x in test}, "the test set")
    train = without_excluded(train, options.exclude)
    train = with_references(train) if options.references else without_solutions(train)
    tell_left_out([*train, *test])
    random.Random(options.seed).shuffle(train)
    for split, part in (("train", train), ("test", test)):
        write(options.local_dir, split, [code_row(x, SOURCE, split, i) for i, x in enumerate(part)])


if __name__ == "__main__":
    main()
