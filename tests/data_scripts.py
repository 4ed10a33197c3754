"""Runs the scripts of data_preprocess/ on small samples and reads what they wrote."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq

SCRIPTS = Path(__file__).parents[1] / "data_preprocess"
COLUMNS = {"data_source", "prompt", "ability", "reward_model", "extra_info"}


def script(name: str) -> ModuleType:
    """One of the scripts, loaded afresh."""
    spec = importlib.util.spec_from_file_location(f"data_script_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A file of `rows`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(folder: Path, split: str) -> list[dict[str, Any]]:
    """The rows that a script wrote, after a look at their columns."""
    rows: list[dict[str, Any]] = pq.read_table(folder / f"{split}.parquet").to_pylist()
    for index, row in enumerate(rows):
        assert set(row) == COLUMNS
        assert [set(message) for message in row["prompt"]] == [{"role", "content"}]
        assert set(row["reward_model"]) == {"style", "ground_truth"}
        assert isinstance(row["reward_model"]["ground_truth"], str)
        assert (row["extra_info"]["split"], row["extra_info"]["index"]) == (split, index)
    return rows


def answers(rows: list[dict[str, Any]]) -> list[str]:
    """What the rows are judged against."""
    return [row["reward_model"]["ground_truth"] for row in rows]
