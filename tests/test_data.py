"""Reading tasks from files, and the loader's promises about epochs, borders and its saved position."""

from __future__ import annotations

import hashlib
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
    with pytest.raises(DataError, match="line 2, column 'task_id': 'a' is the id of line 1 of "):
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


CHAT = [{"role": "user", "content": "p"}]
BAD_ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": None}, "prompt", "is null"),
    ({"prompt": " "}, "prompt", "is empty"),
    ({"prompt": ...}, "prompt", "is missing"),
    ({"prompt": 3}, "prompt", "is 3 (int), not a text or a list of messages"),
    ({"prompt": "x" * 10_000_000}, "prompt", "has 10,000,000 characters, more than 5,000,000"),
    ({"prompt": "ab\ud83d"}, "prompt", "holds half of a surrogate pair, as character 2"),
    ({"prompt": "a\0"}, "prompt", "holds a NUL, as character 1"),
    ({"prompt": [*CHAT, {"role": "user", "content": "\udc00"}]}, "prompt", "'content' of message 1 holds half"),
    ({"prompt": [*CHAT, "text"]}, "prompt", "message 1 is 'text' (str), not a mapping with role and content"),
    ({"answer": None}, "answer", "is null"),
    ({"answer": ...}, "answer", "is missing"),
    ({"answer": float("nan")}, "answer", "is nan"),
    ({"answer": "\udfff"}, "answer", "holds half of a surrogate pair, as character 0"),
    ({"data_source": 1.5}, "data_source", "is 1.5 (float), not a text"),
    ({"extra_info": ["x"]}, "extra_info", "is ['x'] (list), not a mapping"),
    ({"task_id": True}, "task_id", "is True (bool), not a text or a whole number"),
    ({"task_id": "good 0"}, "task_id", "'good 0' is the id of line 1 of "),
]


def _good(number: int) -> dict[str, Any]:
    return {"prompt": f"p {number}", "answer": "1", "data_source": "s", "extra_info": {}, "task_id": f"good {number}"}


def _bad(number: int) -> dict[str, Any]:
    row = _good(100 + number) | BAD_ROWS[number][0]
    return {name: value for name, value in row.items() if value is not ...}


@pytest.mark.parametrize("number", range(len(BAD_ROWS)))
def test_every_kind_of_bad_row_is_refused_by_line_column_and_reason(tmp_path: Path, number: int) -> None:
    _, column, reason = BAD_ROWS[number]
    with pytest.raises(DataError) as caught:
        _read(tmp_path, [_good(0), _bad(number), _good(1)])
    assert "1 of 3 rows cannot be used" in str(caught.value)
    assert f"line 2, column '{column}': {reason}" in str(caught.value)
    assert len(str(caught.value)) < 1000, "a long text is not repeated"


def test_bad_rows_that_may_be_left_out_are_counted_and_named(tmp_path: Path) -> None:
    rows = [row for number in range(len(BAD_ROWS)) for row in (_good(number), _bad(number))]
    _jsonl(tmp_path, rows)
    told: list[str] = []
    tasks = read_tasks(["rows.jsonl"], base=tmp_path, columns={}, split_name="train", left_out=told.append)
    assert [task.task_id for task in tasks] == [f"good {number}" for number in range(len(BAD_ROWS))]
    assert len(told) == 1
    assert told[0].startswith(f"{tmp_path / 'rows.jsonl'}: {len(BAD_ROWS)} of {2 * len(BAD_ROWS)} rows are left out:")
    assert "line 2, column 'prompt': is null" in told[0] and f"and {len(BAD_ROWS) - 5} more" in told[0]


def test_rows_keep_their_numbers_where_others_are_left_out(tmp_path: Path) -> None:
    _jsonl(tmp_path, [{"prompt": None}, {"prompt": "a"}, {"prompt": None}, {"prompt": "b"}])
    (tmp_path / "more.jsonl").write_text('{"prompt": ""}\n{"prompt": "c"}\n')
    told: list[str] = []
    files = ["rows.jsonl", "more.jsonl"]
    tasks = read_tasks(files, base=tmp_path, columns={}, split_name="train", left_out=told.append)
    assert [task.task_id for task in tasks] == ["train:1", "train:3", "train:5"]
    assert ["2 of 4 rows" in told[0], "1 of 2 rows" in told[1]] == [True, True]


def test_data_of_which_no_row_is_left_is_refused(tmp_path: Path) -> None:
    _jsonl(tmp_path, [{"prompt": None}])
    with pytest.raises(DataError, match="no rows that can be used"):
        read_tasks(["rows.jsonl"], base=tmp_path, columns={}, split_name="train", left_out=lambda text: None)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_a_file_that_its_hash_was_not_taken_of_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist([{"prompt": "p"}]), file)
    else:
        file.write_text('[{"prompt": "p"}]' if name.endswith("json") else '{"prompt": "p"}')
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (tmp_path / f"{name}.sha256").write_text(f"{digest}  {name}\n")
    assert read_tasks([name], base=tmp_path, columns={}, split_name="train")[0].prompt == "p"
    for noted in (f"{'0' * 64}  {name}\n", ""):
        (tmp_path / f"{name}.sha256").write_text(noted)
        with pytest.raises(DataError, match=rf"{name}: is not the file that {name}\.sha256 was made for"):
            read_tasks([name], base=tmp_path, columns={}, split_name="train")


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


def _bomb(folder: Path, *, packed_by: str) -> str:
    """A small file with 80 MB of text or more: pressed together, or told once and meant a thousand times."""
    if packed_by == "compression":
        rows, options = [{"prompt": "0" * 1_000_000}] * 80, {"compression": "zstd", "use_dictionary": False}
    else:
        rows, options = [{"prompt": "0" * 100_000}] * 1_000, {"compression": "zstd", "use_dictionary": True}
    pq.write_table(pa.Table.from_pylist(rows), folder / "bomb.parquet", write_statistics=False, **options)
    return "bomb.parquet"


@pytest.mark.parametrize("packed_by", ["compression", "dictionary"])
def test_parquet_that_would_fill_the_memory_is_refused(tmp_path: Path, packed_by: str) -> None:
    file = _bomb(tmp_path, packed_by=packed_by)
    assert (tmp_path / file).stat().st_size < 50_000
    with pytest.raises(DataError, match=r"bomb\.parquet: [\d,]+ bytes that unpack to more than 67,108,864"):
        read_tasks([file], base=tmp_path, columns={}, split_name="train")


def test_parquet_of_one_text_many_times_is_no_bomb(tmp_path: Path) -> None:
    rows = [{"problem": "What is a dagrl? " * 300, "answer": str(number)} for number in range(3_000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", compression="zstd", row_group_size=700)
    tasks = read_tasks(["rows.parquet"], base=tmp_path, columns={}, split_name="train")
    assert [task.ground_truth for task in tasks] == [str(number) for number in range(3_000)]


def test_parquet_that_holds_no_text_where_it_should_is_refused(tmp_path: Path) -> None:
    raw = pa.array([b"good", b"\xff\xfe"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 2, raw.buffers())  # not validated, as in a damaged page
    pq.write_table(pa.table({"prompt": text}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: is not a readable parquet file"):
        read_tasks(["a.parquet"], base=tmp_path, columns={}, split_name="train")


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
