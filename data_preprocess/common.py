"""What the data scripts share: the row they write, where they read from, and the split into train and test."""

from __future__ import annotations

import argparse
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import datasets
import pyarrow
import pyarrow.parquet

Made = TypeVar("Made")
Row = dict[str, Any]
"""`data_source`, `prompt` (messages), `ability`, `reward_model` {style, ground_truth}, `extra_info`."""

BOXED_INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."
CODE_INSTRUCTION = "Answer with one ```python block that holds the whole program, its imports included."
_NUM_TOLD = 10
"""Problems left out of which the reason is told."""
_ROWS_AT_ONCE = 256
"""Arrow refuses a nested column of more than two gigabytes in one piece, which tests of programs can reach."""


def make_row(*, data_source: str, question: str, ability: str, ground_truth: str, extra_info: Mapping[str, Any]) -> Row:
    """One problem in the columns that workflows read; `extra_info` takes at least `split` and `index`."""
    return {
        "data_source": data_source,
        "prompt": [{"role": "user", "content": question}],
        "ability": ability,
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": dict(extra_info),
    }


def parser(description: str, *, test_size: int | None = None, is_seeded: bool = True) -> argparse.ArgumentParser:
    """The options that every script has; `--test_size` where the source has no test split of its own."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--local_dir", type=Path, required=True, help="folder for train.parquet and test.parquet")
    arguments.add_argument("--input", type=Path, help="a local parquet, jsonl or json copy, or a folder of such files")
    if is_seeded:
        arguments.add_argument("--seed", type=int, default=0, help="seed of the order and of the split")
    if test_size is not None:
        arguments.add_argument("--test_size", type=int, default=test_size, help="problems held out for the test")
    return arguments


def read_source(name: str, config: str | None, split: str, local_copy: Path | None) -> list[dict[str, Any]]:
    """All rows of `open_source`."""
    return list(open_source(name, config, split, local_copy))


def open_source(name: str, config: str | None, split: str, local_copy: Path | None) -> Iterable[dict[str, Any]]:
    """Rows of a Hugging Face data set, or of a local copy of it, read as they are asked for.

    A folder holds `<split>.parquet`, `<split>.jsonl` or `<split>.json`; a file is taken as it is, whatever `split` is.
    """
    if local_copy is None:
        return datasets.load_dataset(name, config, split=split)
    file = _split_file(local_copy, split) if local_copy.is_dir() else local_copy
    return open_files([str(file)])


def open_files(files: Sequence[str]) -> Iterable[dict[str, Any]]:
    """Rows of files of one kind, one after the other; they are local, or `hf://datasets/<name>/<file>`."""
    suffix = Path(files[0]).suffix
    kind = {".parquet": "parquet", ".jsonl": "json", ".json": "json"}.get(suffix)
    if kind is None:
        raise SystemExit(f"{files[0]}: cannot read '{suffix}'; give a .parquet, .jsonl or .json file")
    for file in files:
        if "://" not in file and not Path(file).is_file():
            raise SystemExit(f"{file}: there is no such file")
    return datasets.load_dataset(kind, data_files=list(files), split="train")


def _split_file(folder: Path, split: str) -> Path:
    tried = [folder / f"{split}{suffix}" for suffix in (".parquet", ".jsonl", ".json")]
    for file in tried:
        if file.is_file():
            return file
    raise SystemExit(f"{folder}: has none of {', '.join(file.name for file in tried)}")


def split_rows(rows: Sequence[Any], test_size: int, seed: int) -> tuple[list[Any], list[Any]]:
    """(train, test): shuffled by `seed`, then `test_size` rows held out."""
    if not 0 < test_size < len(rows):
        raise SystemExit(f"--test_size {test_size}: must be between 1 and {len(rows) - 1}, one less than the problems")
    order = list(rows)
    random.Random(seed).shuffle(order)
    return order[test_size:], order[:test_size]


def write(folder: Path, split: str, rows: Iterable[Row]) -> None:
    """Writes `<folder>/<split>.parquet`, its hash beside it, and says how many rows it has.

    Parquet alone does not notice damage: dagrl compares the hash whenever it reads the file, other readers may compare
    the checksums of its pages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    whole = list(rows)
    starts = range(0, max(1, len(whole)), _ROWS_AT_ONCE)
    parts = [pyarrow.Table.from_pylist(whole[start : start + _ROWS_AT_ONCE]) for start in starts]
    table = pyarrow.concat_tables(parts, promote_options="default")
    file = folder / f"{split}.parquet"
    pyarrow.parquet.write_table(table, file, compression="zstd", write_page_checksum=True)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    file.with_name(f"{file.name}.sha256").write_text(f"{digest}  {file.name}\n", encoding="utf-8")
    print(f"{file}: {table.num_rows} problems")


def column(example: Mapping[str, Any], names: Sequence[str], source: str) -> Any:
    """The value of the first column of `names` that the source has. SystemExit names what it has instead."""
    for name in names:
        if name in example:
            return example[name]
    raise SystemExit(f"{source}: has no column {' or '.join(names)}; it has {', '.join(example)}")


def readable(examples: Iterable[Any], read: Callable[[Any], Made], source: str) -> Iterator[Made]:
    """What `read` makes of each example. What it refuses with ValueError is left out, counted, and partly told."""
    told, num_refused, num_read = [], 0, 0
    for number, example in enumerate(examples):
        try:
            made = read(example)
        except ValueError as error:
            num_refused += 1
            if num_refused <= _NUM_TOLD:
                told.append(f"  row {number}: {error}")
            continue
        num_read += 1
        yield made
    if num_refused:
        print(f"{source}: {num_refused} of {num_refused + num_read} problems left out, such as", *told, sep="\n")
    if not num_read:
        raise SystemExit(f"{source}: no problem is left")


def last_boxed(text: str) -> str:
    """What stands in the last `\\boxed{}` or `\\fbox{}` of a solution. Raises ValueError where there is none."""
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start >= 0:
        begin = text.index("{", start) + 1
        depth = 1
        for end in range(begin, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                return text[begin:end]
    raise ValueError(f"no closed \\boxed{{}} in {text!r}")
