"""DeepScaleR's 40,000 competition problems → train.parquet and test.parquet.

python data_preprocess/deepscaler.py --local_dir data/deepscaler [--input deepscaler.json] [--seed 0] [--test_size 500]

The source has one split; `--test_size` problems of it are held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common import BOXED_INSTRUCTION, Row, make_row, parser, read_source, split_rows, write

SOURCE = "agentica-org/DeepScaleR-Preview-Dataset"


def convert(example: dict[str, Any], split: str, index: int) -> Row:
    """One problem; its worked solution, where there is one, goes to `extra_info`."""
    return make_row(
        data_source=SOURCE,
        question=f"{example['problem']} {BOXED_INSTRUCTION}",
        ability="math",
        ground_truth=str(example["answer"]),
        extra_info={"split": split, "index": index, "solution": str(example.get("solution") or "")},
    )


def main(argv: Sequence[str] | None = None) -> None:
    options = parser("DeepScaleR to parquet", test_size=500).parse_args(argv)
    rows = read_source(SOURCE, None, "train", options.input)
    for split, part in zip(("train", "test"), split_rows(rows, options.test_size, options.seed), strict=True):
        write(options.local_dir, split, [convert(example, split, index) for index, example in enumerate(part)])


if __name__ == "__main__":
    main()
