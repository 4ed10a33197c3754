"""DeepScaleR's 40,000 competition problems → train.parquet and test.parquet.

python data_preprocess/deepscaler.py --local_dir data/deepscaler [--input deepscaler.json] [--seed 0] [--test_size 500]
    [--exclude data/aime24/test.parquet ...]

The source has one split; `--test_size` problems of it are held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common import parser, read_source, split_rows, write
from math_forms import boxed_row
from overlap import Problem, add_exclude, without_excluded

SOURCE = "agentica-org/DeepScaleR-Preview-Dataset"


def read(example: dict[str, Any]) -> Problem:
    """One problem; its worked solution, where there is one, goes to `extra_info`."""
    solution = str(example.get("solution") or "")
    return Problem(question=example["problem"], answer=str(example["answer"]), extra_info={"solution": solution})


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser("DeepScaleR to parquet", test_size=500)
    add_exclude(arguments)
    options = arguments.parse_args(argv)
    problems = [read(example) for example in read_source(SOURCE, None, "train", options.input)]
    problems = without_excluded(problems, options.exclude)
    for split, part in zip(("train", "test"), split_rows(problems, options.test_size, options.seed), strict=True):
        write(options.local_dir, split, [boxed_row(x, SOURCE, split, i) for i, x in enumerate(part)])


if __name__ == "__main__":
    main()
