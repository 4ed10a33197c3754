"""GSM8K's grade-school word problems → train.parquet and test.parquet, by the source's own split.

python data_preprocess/gsm8k.py --local_dir data/gsm8k [--input FOLDER] [--seed 0]

`--input` is a folder with train.jsonl and test.jsonl (or .parquet). `--seed` shuffles the training problems.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from common import BOXED_INSTRUCTION, Row, make_row, parser, read_source, write

SOURCE = "openai/gsm8k"


def convert(example: dict[str, Any], split: str, index: int) -> Row:
    """One problem. The answer stands behind `####` at the end of the worked solution, with commas in large numbers."""
    solution, mark, answer = example["answer"].rpartition("####")
    if not mark:
        raise ValueError(f"{SOURCE}, {split} row {index}: no '####' in the answer {example['answer']!r}")
    return make_row(
        data_source=SOURCE,
        question=f"{example['question']} {BOXED_INSTRUCTION}",
        ability="math",
        ground_truth=answer.strip().replace(",", ""),
        extra_info={"split": split, "index": index, "solution": solution.strip()},
    )


def main(argv: Sequence[str] | None = None) -> None:
    options = parser("GSM8K to parquet").parse_args(argv)
    if options.input is not None and not options.input.is_dir():
        raise SystemExit(f"--input {options.input}: give a folder that holds both train and test")
    for split in ("train", "test"):
        rows = read_source(SOURCE, "main", split, options.input)
        if split == "train":
            random.Random(options.seed).shuffle(rows)
        write(options.local_dir, split, [convert(example, split, index) for index, example in enumerate(rows)])


if __name__ == "__main__":
    main()
