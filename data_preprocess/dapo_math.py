"""DAPO-Math-17k's competition problems with integer answers → train.parquet and test.parquet.

python data_preprocess/dapo_math.py --local_dir data/dapo_math [--input FILE] [--seed 0] [--test_size 500]
    [--exclude data/aime24/test.parquet ...]

The source (BytedTsinghua-SIA/DAPO-Math-17k: `prompt` in DAPO's template, `reward_model`) has one split, which holds
each of its 17,000 problems about a hundred times; `--test_size` problems are held out. A local copy may also have the
columns of open-r1/DAPO-Math-17k-Processed (`prompt` as plain text, `solution`).
"""

from __future__ import annotations

from collections.abc import Sequence

from common import open_source, parser, readable, split_rows, write
from math_forms import boxed_row, read_problem
from overlap import add_exclude, without_disputed, without_excluded

SOURCE = "BytedTsinghua-SIA/DAPO-Math-17k"


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser("DAPO-Math-17k to parquet", test_size=500)
    add_exclude(arguments)
    options = arguments.parse_args(argv)
    examples = open_source(SOURCE, None, "train", options.input)
    problems = without_disputed(readable(examples, lambda example: read_problem(example, SOURCE), SOURCE), SOURCE)
    problems = without_excluded(problems, options.exclude)
    for split, part in zip(("train", "test"), split_rows(problems, options.test_size, options.seed), strict=True):
        write(options.local_dir, split, [boxed_row(x, SOURCE, split, i) for i, x in enumerate(part)])


if __name__ == "__main__":
    main()
