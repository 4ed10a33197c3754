"""The scripts of mathematical sets on small samples in the published forms: answers, repeats, overlap, refusals."""

from pathlib import Path
from typing import Any

import pytest

from dagrl.rewards.math import boxed_exact_match
from tests.data_scripts import answers, jsonl, rows_of, script

DAPO_PROMPT = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{}\n\nRemember to put your answer on its "
    'own line after "Answer:".'
)


def dapo(question: str, answer: str) -> dict[str, Any]:
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": DAPO_PROMPT.format(question), "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "0"},
    }


def asked(rows: list[dict[str, Any]]) -> list[str]:
    return [row["prompt"][0]["content"].partition(" Let's think")[0] for row in rows]


def run_benchmark(tmp_path: Path, name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    source = jsonl(tmp_path / f"{name}.jsonl", rows)
    options = ["--set", name, "--local_dir", str(tmp_path / name), "--input", str(source)]
    script("math_benchmarks").main(options)
    return rows_of(tmp_path / name, "test")


@pytest.mark.parametrize(
    ("name", "row", "answer"),
    [
        ("aime24", {"id": 60, "problem": "Q", "solution": "\\boxed{033}", "url": "u"}, "33"),
        (
            "aime24",
            {"id": 60, "problem": "Q", "solution": "long, so \\boxed{7}", "answer": "204", "year": "2024"},
            "204",
        ),
        ("aime24", {"ID": "2024-II-4", "Problem": "Q", "Solution": "long", "Answer": 33}, "33"),
        ("aime24", dapo("Q", "33"), "33"),
        ("aime25", {"problem": "Q", "answer": "70", "id": "0"}, "70"),
        ("aime25", {"question": "Q", "answer": "336^\\circ"}, "336"),
        ("amc23", {"id": 0, "question": "Q", "answer": "27.0", "url": "u"}, "27"),
        ("amc23", {"id": 0, "problem": "Q", "answer": 142.0, "url": "u"}, "142"),
        ("minerva", {"question": "Q", "answer": "4.5e33"}, "4.5e33"),
        ("minerva", {"problem": "Q", "solution": "so \\boxed{\\frac{1}{2}}."}, "\\frac{1}{2}"),
    ],
)
def test_every_published_form_of_a_benchmark_gives_its_answer(
    tmp_path: Path, name: str, row: dict[str, Any], answer: str
) -> None:
    (made,) = run_benchmark(tmp_path, name, [row])
    assert asked([made]) == ["Q"] and answers([made]) == [answer]
    assert boxed_exact_match(f"so \\boxed{{{answer}}}", made["reward_model"]["ground_truth"]) == 1.0
    assert boxed_exact_match("so \\boxed{12345}", made["reward_model"]["ground_truth"]) == 0.0


@pytest.mark.parametrize("answer", ["1000", "-1", "12.5", "x + 1"])
def test_an_answer_that_no_aime_has_is_refused_with_its_row(tmp_path: Path, answer: str) -> None:
    with pytest.raises(SystemExit, match=r"math-ai/aime25, row 1: .*not an integer from 0 to 999"):
        run_benchmark(tmp_path, "aime25", [{"problem": "a", "answer": "1"}, {"problem": "b", "answer": answer}])


def test_a_worked_solution_without_a_box_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="row 0: no closed"):
        run_benchmark(tmp_path, "minerva", [{"problem": "a", "solution": "The answer is 4"}])


def test_unknown_columns_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no column problem or question .*; it has task, answer"):
        run_benchmark(tmp_path, "amc23", [{"task": "a", "answer": "1"}])


def test_dapo_keeps_each_problem_once_and_none_whose_answer_is_disputed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [dapo(f"What is $x + {i}$?", str(i)) for i in range(6)]
    rows += [*rows, dapo("What is \\(x+0\\)?", "0"), dapo("Two answers?", "1"), dapo("Two answers?", "2")]
    source = jsonl(tmp_path / "dapo.jsonl", rows)
    options = ["--local_dir", str(tmp_path / "out"), "--input", str(source), "--test_size", "2"]
    script("dapo_math").main(options)
    made = rows_of(tmp_path / "out", "train") + rows_of(tmp_path / "out", "test")
    assert sorted(asked(made)) == [f"What is $x + {i}$?" for i in range(6)]
    assert all(question.endswith(f"+ {answer}$?") for question, answer in zip(asked(made), answers(made), strict=True))
    told = capsys.readouterr().out
    assert "8 of 15 rows left out: they repeat a question" in told
    assert "1 questions left out: their rows do not agree" in told


def test_dapo_reads_the_processed_form_too(tmp_path: Path) -> None:
    rows = [{"prompt": f"Q{i}", "solution": str(i), "data_source": "math_dapo"} for i in range(3)]
    source = jsonl(tmp_path / "processed.jsonl", rows)
    options = ["--local_dir", str(tmp_path / "out"), "--input", str(source), "--test_size", "1"]
    script("dapo_math").main(options)
    made = rows_of(tmp_path / "out", "train") + rows_of(tmp_path / "out", "test")
    assert sorted(zip(asked(made), answers(made), strict=True)) == [("Q0", "0"), ("Q1", "1"), ("Q2", "2")]


@pytest.mark.parametrize("name", ["dapo_math", "deepscaler"])
def test_problems_of_excluded_files_stay_out_of_training_and_test(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_benchmark(tmp_path, "aime24", [{"problem": "Find  $x+1$.", "solution": "\\boxed{3}"}])
    raw = jsonl(tmp_path / "raw.jsonl", [dapo("Find y.", "4")])
    questions = ["find \\(x + 1\\)", "Find $x - 1$.", "find y", "Find z."]
    source = jsonl(tmp_path / "in.jsonl", [{"problem": question, "answer": "3"} for question in questions])
    where = ["--local_dir", str(tmp_path / "out"), "--input", str(source), "--test_size", "1"]
    script(name).main([*where, "--exclude", str(tmp_path / "aime24/test.parquet"), str(raw)])
    made = rows_of(tmp_path / "out", "train") + rows_of(tmp_path / "out", "test")
    assert sorted(asked(made)) == ["Find $x - 1$.", "Find z."]
    told = capsys.readouterr().out
    assert "1 of 4 training problems left out: they are in" in told and "1 of 3 training problems" in told
