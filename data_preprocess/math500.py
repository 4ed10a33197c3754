"""MATH-500, competition problems of five levels → test.parquet, and train.parquet from MATH's own training set.

python data_preprocess/math500.py --local_dir data/math500 [--input FOLDER] [--seed 0]

`--input` is a folder with test.jsonl (MATH-500) and train.jsonl (MATH), or .parquet. `--seed` shuffles the training
problems. A training problem that is also in MATH-500 is left out, and counted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from common import BOXED_INSTRUCTION, Row, last_boxed, make_row, parser, read_source, write

TEST_SOURCE = "HuggingFaceH4/MATH-500"
TRAIN_SOURCE = "DigitalLearningGmbH/MATH-lighteval"


def convert(example: dict[str, Any], source: str, split: str, index: int) -> Row:
    """One problem. MATH has no answer column: the answer is the last box of the solution."""
    return make_row(
        data_source=source,
        question=f"{example['problem']} {BOXED_INSTRUCTION}",
        ability="math",
        ground_truth=str(example.get("answer") or last_boxed(example["solution"])),
        extra_info={
            "split": split,
            "index": index,
            "difficulty": str(example.get("level", "")).removeprefix("Level ").strip(),
            "subject": str(example.get("subject") or example.get("type") or ""),
        },
    )


def main(argv: Sequence[str] | None = None) -> None:
    options = parser("MATH-500 to parquet").parse_args(argv)
    if options.input is not None and not options.input.is_dir():
        raise SystemExit(f"--input {options.input}: give a folder that holds both train and test")
    test = read_source(TEST_SOURCE, None, "test", options.input)
    held_out = {example["problem"].strip() for example in test}
    drawn = read_source(TRAIN_SOURCE, None, "train", options.input)
    train = [example for example in drawn if example["problem"].strip() not in held_out]
    print(f"{len(drawn) - len(train)} training problems left out: they are in MATH-500")
    random.Random(options.seed).shuffle(train)
    write(options.local_dir, "train", [convert(x, TRAIN_SOURCE, "train", i) for i, x in enumerate(train)])
    write(options.local_dir, "test", [convert(x, TEST_SOURCE, "test", i) for i, x in enumerate(test)])


if __name__ == "__main__":
    main()
