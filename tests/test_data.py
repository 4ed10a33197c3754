"""Reading tasks from files, and the loader's promises about epochs, borders and its saved position."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrl.data import DataLoader, read_tasks
from dagrl.errors import DataError
from dagrl.types import Task

VERL_ROW = {
    "data_source": "deepscaler",
    "prompt": [{"role": "user", "content": "1 + 1?"}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"split": "train", "index": 7},
}


def _jsonl(folder: Path, rows: list[Any], name: str = "rows.jsonl") -> str:
    (folder / name).write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return name


def _read(folder: Path, rows: list[Any], **columns: str) -> list[Task]:
    return read_tasks([_jsonl(folder, rows)], base=folder, columns=columns, split_name="train")


def test_verl_columns_are_read_from_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([VERL_ROW]), tmp_path / "train.parquet")
    (task,) = read_tasks(["train.parquet"], base=tmp_path, columns={}, split_name="train")
    assert task.prompt == [{"role": "user", "content": "1 + 1?"}]
    assert (task.ground_truth, task.data_source, task.task_id) == ("2", "deepscaler", "train:7")
    assert task.extra_info == {"split": "train", "index": 7, "ability": "math", "reward_model": {"style": "rule"}}


@pytest.mark.parametrize("column", ["answer", "solution", "ground_truth"])
def test_trl_columns_are_read(tmp_path: Path, column: str) -> None:
    (task,) = _read(tmp_path, [{"prompt": "1 + 1?", column: "2"}])
    assert (task.prompt, task.ground_truth, task.task_id) == ("1 + 1?", "2", "train:0")


def test_raw_deepscaler_takes_the_answer_and_keeps_the_solution(tmp_path: Path) -> None:
    (task,) = _read(tmp_path, [{"problem": "1 + 1?", "solution": "add", "answer": 2}])
    assert (task.prompt, task.ground_truth, dict(task.extra_info)) == ("1 + 1?", 2, {"solution": "add"})


def test_a_json_list_is_read(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps([{"question": "q", "answer": 0}]))
    (task,) = read_tasks(["rows.json"], base=tmp_path, columns={}, split_name="val")
    assert (task.prompt, task.ground_truth, task.task_id) == ("q", 0, "val:0")


def test_a_folder_of_data_files_is_read_by_name_and_split(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    _jsonl(tmp_path / "set", [{"prompt": "p", "answer": "a"}], "test.jsonl")
    (task,) = read_tasks(["set:test"], base=tmp_path, columns={}, split_name="val")
    assert (task.prompt, task.ground_truth) == ("p", "a")


def test_the_columns_map_goes_before_what_is_found(tmp_path: Path) -> None:
    row = {"prompt": "no", "answer": "no", "task": "yes", "meta": {"gold": "right"}}
    (task,) = _read(tmp_path, [row], prompt="task", ground_truth="meta.gold")
    assert (task.prompt, task.ground_truth) == ("yes", "right")
    assert task.extra_info == {"prompt": "no", "answer": "no", "meta": {}}


def test_a_row_names_its_task(tmp_path: Path) -> None:
    tasks = _read(tmp_path, [{"prompt": "p", "task_id": "a"}, {"prompt": "p", "task_id": 5}])
    assert [task.task_id for task in tasks] == ["a", "5"]
    with pytest.raises(DataError, match="more than once, such as 'a'"):
        _read(tmp_path, [{"prompt": "p", "task_id": "a"}] * 2)


def test_indices_that_repeat_are_not_used_as_names(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "extra_info": {"index": 3}}, {"prompt": "q", "extra_info": {"index": 3}}]
    assert [task.task_id for task in _read(tmp_path, rows)] == ["train:0", "train:1"]


def test_the_workflow_folder_goes_before_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near, here = tmp_path / "near", tmp_path / "here"
    near.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    _jsonl(here, [{"prompt": "cwd"}])
    assert read_tasks(["rows.jsonl"], base=near, columns={}, split_name="train")[0].prompt == "cwd"
    _jsonl(near, [{"prompt": "base"}])
    assert read_tasks(["rows.jsonl"], base=near, columns={}, split_name="train")[0].prompt == "base"


BAD_PROMPTS = [None, "", "  ", 3, [], ["text"], [{"role": "user"}], [{"role": "user", "content": None}],
               [{"role": "", "content": "x"}], [{"role": "user", "content": ""}], {"role": "user"}]  # fmt: skip


@pytest.mark.parametrize("prompt", BAD_PROMPTS)
def test_a_bad_prompt_is_refused_by_file_line_and_column(tmp_path: Path, prompt: Any) -> None:
    with pytest.raises(DataError, match=r"(?s)rows\.jsonl: 1 of 2 rows.*line 2, column 'prompt'"):
        _read(tmp_path, [{"prompt": "good", "answer": "1"}, {"prompt": prompt, "answer": "1"}])


@pytest.mark.parametrize("answer", [None, "", " ", float("nan"), float("inf")])
def test_a_bad_ground_truth_is_refused(tmp_path: Path, answer: Any) -> None:
    with pytest.raises(DataError, match="line 1, column 'answer'"):
        _read(tmp_path, [{"prompt": "p", "answer": answer}])


def test_a_row_without_the_ground_truth_that_others_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2, column 'answer': is missing"):
        _read(tmp_path, [{"prompt": "p", "answer": 1}, {"prompt": "p"}])


def test_data_without_a_ground_truth_column_has_none(tmp_path: Path) -> None:
    assert _read(tmp_path, [{"prompt": "p"}])[0].ground_truth is None


def test_all_bad_rows_are_counted_and_five_are_shown(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        _read(tmp_path, [{"prompt": None}] * 9 + [{"prompt": "good"}])
    message = str(caught.value)
    assert "9 of 10 rows" in message
    assert message.count("column 'prompt': is null") == 5
    assert "and 4 more" in message
    assert caught.value.exit_code == 3


def test_a_missing_prompt_column_names_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)no column for 'prompt'.*it has promt, answer.*did you mean 'promt'"):
        _read(tmp_path, [{"promt": "p", "answer": "1"}])


def test_an_unknown_part_in_the_columns_map_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="did you mean 'ground_truth'"):
        _read(tmp_path, [{"prompt": "p"}], ground_trut="answer")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"prompt": "p"}\n{"prompt"', r"a\.jsonl:2: is not JSON"),
        ("a.jsonl", b"[1]\n", "line 1 is a list"),
        ("a.jsonl", b"", "has no rows"),
        ("a.jsonl", b"\xff\xfe", "UTF-8"),
        ("a.json", b'{"prompt": "p"}', "not a list of rows"),
        ("a.parquet", b"PAR1 no", "not a readable parquet file"),
    ],
)
def test_broken_files_are_refused_in_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_tasks([name], base=tmp_path, columns={}, split_name="train")


def test_no_files_give_no_tasks() -> None:
    assert read_tasks([], base=Path(), columns={}, split_name="val") == []


def test_a_missing_file_tells_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"no such file(?s:.*)looked at {tmp_path}"):
        read_tasks(["gone.parquet"], base=tmp_path, columns={}, split_name="train")


def _tasks(num: int) -> list[Task]:
    return [Task(task_id=str(number), prompt="?") for number in range(num)]


sizes = st.integers(1, 12).flatmap(lambda batch: st.tuples(st.just(batch), st.integers(batch, 40)))


@given(sizes=sizes, seed=st.integers(0, 100), shuffle=st.booleans())
def test_every_pass_draws_every_task_once_and_no_batch_has_a_task_twice(
    sizes: tuple[int, int], seed: int, shuffle: bool
) -> None:
    batch_size, num = sizes
    loader = DataLoader(_tasks(num), batch_size, seed=seed, shuffle=shuffle)
    batches = [[task.task_id for task in loader.next_batch()] for _ in range(3 * num)]
    assert all(len(set(batch)) == batch_size for batch in batches)
    stream = [task_id for batch in batches for task_id in batch]
    for start in range(0, len(stream) - num, num):
        assert len(set(stream[start : start + num])) == num


@given(sizes=sizes, before=st.integers(0, 30), shuffle=st.booleans())
def test_a_restored_loader_goes_on_where_the_saved_one_stood(
    sizes: tuple[int, int], before: int, shuffle: bool
) -> None:
    batch_size, num = sizes
    one = DataLoader(_tasks(num), batch_size, seed=3, shuffle=shuffle)
    for _ in range(before):
        one.next_batch()
    other = DataLoader(_tasks(num), batch_size, seed=3, shuffle=shuffle)
    other.next_batch()
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert [one.next_batch() for _ in range(5)] == [other.next_batch() for _ in range(5)]


def test_passes_and_seeds_differ_in_order() -> None:
    loader = DataLoader(_tasks(20), 20, seed=1)
    first, second = loader.next_batch(), loader.next_batch()
    assert first != second
    assert DataLoader(_tasks(20), 20, seed=2).next_batch() != first
    assert DataLoader(_tasks(20), 20, seed=1).next_batch() == first


def test_a_position_of_other_data_is_refused() -> None:
    state = DataLoader(_tasks(5), 2, seed=1).state_dict()
    for loader in (
        DataLoader(_tasks(6), 2, seed=1),
        DataLoader(_tasks(5), 3, seed=1),
        DataLoader(_tasks(5), 2, seed=2),
    ):
        with pytest.raises(DataError, match="the saved position has"):
            loader.load_state_dict(state)


def test_steps_per_epoch_draw_every_task() -> None:
    assert DataLoader(_tasks(10), 4, seed=1).steps_per_epoch == 3
    assert DataLoader(_tasks(10), 4, seed=1).steps_for(2) == 5


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(DataError, match="3 rows do not fill a batch of 4"):
        DataLoader(_tasks(3), 4, seed=1)
