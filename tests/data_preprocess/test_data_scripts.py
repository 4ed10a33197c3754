"""The data scripts on small local samples: the columns they write, the answers they find, the splits they make."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.data_scripts import answers, jsonl, rows_of, script

ROOT = Path(__file__).parents[2]


def test_deepscaler_holds_out_a_part_that_the_seed_decides(tmp_path: Path) -> None:
    source = jsonl(
        tmp_path / "deepscaler.jsonl",
        [{"problem": f"What is {i} + 1?", "answer": str(i + 1), "solution": ""} for i in range(20)],
    )
    deepscaler = script("deepscaler")
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        options = ["--local_dir", str(tmp_path / name), "--input", str(source), "--seed", seed, "--test_size", "5"]
        deepscaler.main(options)
    first = {split: answers(rows_of(tmp_path / "a", split)) for split in ("train", "test")}
    assert (len(first["train"]), len(first["test"])) == (15, 5)
    assert sorted(map(int, first["train"] + first["test"])) == list(range(1, 21))
    assert answers(rows_of(tmp_path / "b", "test")) == first["test"]
    assert answers(rows_of(tmp_path / "c", "test")) != first["test"]


def test_many_problems_are_written_in_their_order(tmp_path: Path) -> None:
    rows = [{"problem": f"p{i}", "answer": str(i), "solution": ""} for i in range(600)]
    options = ["--local_dir", str(tmp_path), "--input", str(jsonl(tmp_path / "many.jsonl", rows)), "--test_size", "1"]
    script("deepscaler").main(options)
    train = rows_of(tmp_path, "train")
    assert len(train) == 599 and all(
        row["prompt"][0]["content"].startswith(f"p{row['reward_model']['ground_truth']} ") for row in train
    )


def test_deepscaler_reads_a_parquet_copy(tmp_path: Path) -> None:
    import pyarrow

    copy = tmp_path / "copy.parquet"
    pq.write_table(pyarrow.Table.from_pylist([{"problem": f"p{i}", "answer": "1"} for i in range(3)]), copy)
    options = ["--local_dir", str(tmp_path / "out"), "--input", str(copy), "--test_size", "1"]
    script("deepscaler").main(options)
    assert "\\boxed{}" in rows_of(tmp_path / "out", "test")[0]["prompt"][0]["content"]


def test_a_test_split_larger_than_the_data_is_refused(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "one.jsonl", [{"problem": "p", "answer": "1"}])
    with pytest.raises(SystemExit, match="--test_size 5"):
        script("deepscaler").main(["--local_dir", str(tmp_path), "--input", str(source), "--test_size", "5"])


def test_gsm8k_takes_the_number_behind_the_mark(tmp_path: Path) -> None:
    for split in ("train", "test"):
        jsonl(
            tmp_path / f"in/{split}.jsonl",
            [{"question": f"{split}: how many?", "answer": "500 * 2 = <<500*2=1000>>1000\n#### 1,000"}],
        )
    script("gsm8k").main(["--local_dir", str(tmp_path / "out"), "--input", str(tmp_path / "in")])
    for split in ("train", "test"):
        (row,) = rows_of(tmp_path / "out", split)
        assert row["reward_model"]["ground_truth"] == "1000"
        assert row["prompt"][0]["content"].startswith(f"{split}: how many?")


def test_gsm8k_names_the_row_that_has_no_answer() -> None:
    with pytest.raises(ValueError, match="train row 3: no '####'"):
        script("gsm8k").convert({"question": "q", "answer": "12"}, "train", 3)


def test_math500_boxes_answers_and_keeps_its_problems_out_of_training(tmp_path: Path) -> None:
    jsonl(tmp_path / "in/test.jsonl", [{"problem": "shared", "answer": "7", "level": 3, "subject": "Algebra"}])
    jsonl(
        tmp_path / "in/train.jsonl",
        [
            {"problem": "shared", "solution": "\\boxed{7}", "level": "Level 3", "type": "Algebra"},
            {"problem": "half", "solution": "so \\boxed{\\frac{1}{2}}.", "level": "Level 5", "type": "Algebra"},
        ],
    )
    script("math500").main(["--local_dir", str(tmp_path / "out"), "--input", str(tmp_path / "in")])
    (train,) = rows_of(tmp_path / "out", "train")
    (test,) = rows_of(tmp_path / "out", "test")
    assert train["reward_model"]["ground_truth"] == "\\frac{1}{2}"
    assert (train["extra_info"]["difficulty"], test["extra_info"]["difficulty"]) == ("5", "3")


def test_reasoning_gym_splits_by_the_question_and_repeats_none(tmp_path: Path) -> None:
    sums = [{"question": f"{i} + 1 =", "answer": str(i + 1)} for i in range(200)]
    source = jsonl(tmp_path / "sums.jsonl", sums + sums)
    reasoning_gym = script("reasoning_gym")
    sizes = ["--train_size", "50", "--test_size", "10"]
    reasoning_gym.main(["--local_dir", str(tmp_path / "out"), "--input", str(source), *sizes])
    train, test = (rows_of(tmp_path / "out", split) for split in ("train", "test"))
    asked = [row["prompt"][0]["content"] for row in train + test]
    assert (len(train), len(test), len(set(asked))) == (50, 10, 60)
    assert all(reasoning_gym.is_held_out(row["prompt"][0]["content"]) for row in test)
    assert not any(reasoning_gym.is_held_out(row["prompt"][0]["content"]) for row in train)


def test_reasoning_gym_says_when_a_family_is_exhausted(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "one.jsonl", [{"question": "1 + 1 =", "answer": "2"}])
    with pytest.raises(SystemExit, match="too few different questions"):
        script("reasoning_gym").main(["--local_dir", str(tmp_path), "--input", str(source)])


def test_the_package_makes_the_shipped_problems() -> None:
    reasoning_gym = script("reasoning_gym")
    try:
        reasoning_gym._package()
    except ModuleNotFoundError:
        pytest.skip("reasoning-gym is not installed")
    config = {"min_terms": 3, "max_terms": 5, "min_digits": 1, "max_digits": 1}
    found = reasoning_gym.collect(reasoning_gym.draw("chain_sum", config, 1, 2000), 200, 20)
    for split, count in (("train", 200), ("test", 20)):
        made = [reasoning_gym.convert(x, "chain_sum", split, i) for i, x in enumerate(found[split])]
        assert rows_of(ROOT / "workflows/marft/data", split)[:count] == made


def test_the_shipped_problems_are_graded_and_disjoint() -> None:
    train, test = (rows_of(ROOT / "workflows/marft/data", split) for split in ("train", "test"))
    asked = [row["prompt"][0]["content"] for row in train + test]
    assert len(test) >= 500 and len(set(asked)) == len(asked)
    assert {row["extra_info"]["difficulty"] for row in test} == {f"num_digits=1 num_terms={n}" for n in (3, 4, 5)}
