"""E1 and E2: damaged data is found or refused, never trained on as other text; rows left out change nothing else."""

from __future__ import annotations

import importlib.util
import json
import random
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest

from dagrl.cli import exit_code
from dagrl.data import read_tasks
from dagrl.errors import DataError
from tests.small_teams import one_process
from tests.tiny_project import write_project

pytestmark = pytest.mark.resilience

FLIPS, CUTS = 300, 40
SCRIPTS = Path(__file__).parents[2] / "data_preprocess"
QUICK = (
    "data.train_batch_size=4",
    "data.val_files=[]",
    "trainer.val_without=[]",
    "trainer.total_steps=4",
    "rollout.n=2",
)


def common() -> ModuleType:
    spec = importlib.util.spec_from_file_location("data_preprocess_common", SCRIPTS / "common.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the data scripts write it."""
    folder, scripts = tmp_path_factory.mktemp("data"), common()
    rows = [
        scripts.make_row(
            data_source="sums", question=f"What is {one} + {7 * one}?", ability="math", ground_truth=str(8 * one),
            extra_info={"split": "train", "index": one},
        )
        for one in range(400)
    ]  # fmt: skip
    scripts.write(folder, "train", rows)
    return folder / "train.parquet"


def damages(content: bytes) -> list[bytes]:
    """Flipped bits, cuts, other beginnings and ends."""
    draw = random.Random(4)
    found = []
    for _ in range(FLIPS):
        flipped = bytearray(content)
        flipped[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        found.append(bytes(flipped))
    found += [content[: draw.randrange(len(content))] for _ in range(CUTS)]
    found += [b"PAR2" + content[4:], content[:-4] + b"PAR2", content + b"x", b""]
    assert content not in found, "witness: every one is damaged"
    return found


def outcome(path: Path, true: list[Any]) -> str:
    try:
        tasks = read_tasks([str(path)], base=path.parent, columns={}, split_name="train")
    except DataError as error:
        assert str(path) in str(error) and error.exit_code == 3
        return "found"
    return "unharmed" if tasks == true else "silent"


def test_every_damage_of_a_data_file_is_found(file: Path, tmp_path: Path) -> None:
    true = read_tasks([str(file)], base=file.parent, columns={}, split_name="train")
    assert len(true) == 400
    path = tmp_path / file.name
    (tmp_path / f"{file.name}.sha256").write_bytes(file.with_name(f"{file.name}.sha256").read_bytes())
    outcomes: Counter[str] = Counter()
    for damaged in damages(file.read_bytes()):
        path.write_bytes(damaged)
        outcomes[outcome(path, true)] += 1
    print(f"\n{outcomes.total()} damages with a hash beside the file: {dict(outcomes)}")
    assert outcomes == {"found": FLIPS + CUTS + 4}


def test_twin_without_the_hash_and_the_checksums_other_text_is_read(file: Path, tmp_path: Path) -> None:
    true = read_tasks([str(file)], base=file.parent, columns={}, split_name="train")
    plain = tmp_path / "plain.parquet"
    pq.write_table(pq.read_table(file), plain, compression="zstd")
    path = tmp_path / "train.parquet"
    silent = Counter[str]()
    for kind, content in (("plain", plain.read_bytes()), ("page checksums", file.read_bytes())):
        for damaged in damages(content):
            path.write_bytes(damaged)
            silent[kind] += outcome(path, true) == "silent"
    print(f"\nread as other text without a hash beside the file: {dict(silent)}")
    assert silent["plain"] > 10 * silent["page checksums"] and silent["plain"] > FLIPS // 10


def test_a_run_without_its_bad_rows_is_the_run_of_the_good_ones(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for name in ("clean", "dirty"):
        folder = tmp_path / name
        folder.mkdir()
        workflow = write_project(folder)
        rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
        rows = [{**row, "task_id": f"task {number}"} for number, row in enumerate(rows)]
        if name == "dirty":
            bad = [{"prompt": None}, {"prompt": "a\0"}, {"ground_truth": ""}, {"task_id": "task 0"}]
            rows[1:1] = [{**rows[1], "task_id": f"bad {number}", **one} for number, one in enumerate(bad)]
        (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        with one_process(folder / "cache"):
            words = ["run", "--workflow", str(workflow), "--run-dir", str(folder / "out"), *QUICK]
            if name == "dirty":
                assert exit_code(words) == 3
                said = capfd.readouterr().err
                assert "4 of 68 rows cannot be used" in said and "Traceback" not in said
                assert not (folder / "out" / "metrics.jsonl").exists()
                words[words.index(str(folder / "out"))] = str(folder / "again")
            assert exit_code([*words, "data.on_bad_row=drop"]) == 0
        run = folder / ("again" if name == "dirty" else "out")
        found[name] = (run / "metrics.jsonl").read_bytes()
    assert "4 of 68 rows are left out" in capfd.readouterr().out
    assert found["clean"] == found["dirty"]
