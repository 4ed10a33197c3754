"""Any family of reasoning-gym → train.parquet and test.parquet. Needs `pip install dagrl[envs]`, no network.

The files that workflows/marft.yaml is trained on were made by

python data_preprocess/reasoning_gym.py --local_dir workflows/marft/data --family chain_sum \\
    --config '{"min_terms": 3, "max_terms": 5, "min_digits": 1, "max_digits": 1}' \\
    --train_size 8000 --test_size 600 --seed 1

Every question occurs once. Train and test never share one: a question's checksum alone says where it belongs
(`is_held_out`), so that whoever makes problems elsewhere can keep off the test set too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from common import Row, make_row, parser, read_source, write

HELD_OUT_SHARE = 10
"""One question in so many is held out."""
DRAWS_PER_PROBLEM = 50
"""A family that gives fewer new questions than one in so many draws is exhausted."""


def is_held_out(question: str) -> bool:
    """Whether a question belongs to the test set, told by its text alone."""
    return zlib.crc32(question.encode()) % HELD_OUT_SHARE == 0


def convert(entry: dict[str, Any], family: str, split: str, index: int) -> Row:
    """One problem; what reasoning-gym knows of it goes to `extra_info.metadata` as JSON, for its own verifier."""
    metadata = entry.get("metadata") or {}
    return make_row(
        data_source=f"reasoning_gym/{family}",
        question=entry["question"],
        ability="reasoning",
        ground_truth=str(entry["answer"]),
        extra_info={
            "split": split,
            "index": index,
            "difficulty": difficulty(metadata),
            "metadata": json.dumps(metadata, sort_keys=True, default=str),
        },
    )


def difficulty(metadata: dict[str, Any]) -> str:
    """The problem's own values of the settings that the family grades by: `num_digits=1 num_terms=4`."""
    graded = metadata.get("difficulty") or {}
    return " ".join(f"{name}={metadata[name]}" for name in sorted(graded) if name in metadata)


def draw(family: str, config: dict[str, Any], seed: int, size: int) -> Iterator[dict[str, Any]]:
    """The first `size` problems of a family."""
    return iter(_package().create_dataset(family, size=size, seed=seed, **config))


def collect(entries: Iterator[dict[str, Any]], train_size: int, test_size: int) -> dict[str, list[dict[str, Any]]]:
    """New questions, each into its split, until both are full. Raises SystemExit if the entries end before."""
    wanted = {"train": train_size, "test": test_size}
    found: dict[str, list[dict[str, Any]]] = {"train": [], "test": []}
    seen: set[str] = set()
    for entry in entries:
        question = entry["question"]
        split = "test" if is_held_out(question) else "train"
        if question not in seen and len(found[split]) < wanted[split]:
            seen.add(question)
            found[split].append(entry)
        if all(len(found[name]) == wanted[name] for name in wanted):
            return found
    have = ", ".join(f"{len(found[name])} of {wanted[name]} for {name}" for name in wanted)
    raise SystemExit(f"too few different questions: {have}; ask for fewer, or widen --config")


def _package() -> Any:
    """The package of this script's own name, which Python would find here if it looked in this folder first."""
    here = Path(__file__).resolve().parent
    before = sys.path
    sys.path = [place for place in before if Path(place or ".").resolve() != here]
    try:
        return importlib.import_module("reasoning_gym")
    finally:
        sys.path = before


def arguments() -> argparse.ArgumentParser:
    options = parser("A reasoning-gym family to parquet")
    options.add_argument("--family", default="chain_sum", help="name of the family, such as chain_sum")
    options.add_argument("--config", type=json.loads, default={}, help="the family's settings, as JSON")
    options.add_argument("--train_size", type=int, default=8000)
    options.add_argument("--test_size", type=int, default=600)
    return options


def main(argv: Sequence[str] | None = None) -> None:
    options = arguments().parse_args(argv)
    num_draws = DRAWS_PER_PROBLEM * (options.train_size + options.test_size)
    if options.input is None:
        entries = draw(options.family, options.config, options.seed, num_draws)
    else:
        entries = iter(read_source("", None, "train", options.input))
    for split, part in collect(entries, options.train_size, options.test_size).items():
        write(options.local_dir, split, [convert(x, options.family, split, i) for i, x in enumerate(part)])


if __name__ == "__main__":
    main()
