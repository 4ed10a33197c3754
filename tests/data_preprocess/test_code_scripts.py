"""The scripts of programming sets on small samples in the published forms, judged by dagrl's own code reward."""

import base64
import json
import pickle
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from dagrl.rewards.code import compute_score, read_tests
from tests.data_scripts import jsonl, rows_of, script

DOUBLE_CALLS = [{"input": "1", "output": "2", "testtype": "functional"}]
DOUBLE_STREAM = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
RIGHT = {
    "stdin": "print(2 * int(input()))",
    "function": "def double(x):\n    return 2 * x",
    "method": "class Solution:\n    def double(self, x: int) -> int:\n        return 2 * x",
}
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


def score(program: str, row: dict[str, Any]) -> float:
    response = f"Here it is:\n```python\n{program}\n```"
    return compute_score(row["data_source"], response, row["reward_model"]["ground_truth"], row["extra_info"])


def judged(program: str, row: dict[str, Any]) -> tuple[float, float]:
    """Scores of a right program and of one that gives 2 x + 1."""
    return score(program, row), score(program.replace("2 *", "1 + 2 *"), row)


def deepcoder_rows() -> dict[str, dict[str, Any]]:
    """A problem in each form of tests that DeepCoder's subsets have, by the style of a right program."""
    pair = {"input": "21\n", "output": "42\n"}
    call = {"fn_name": "double", "type": "function_call"}
    taco = {"inputs": ["1\n", "21\n"], "outputs": ["2\n", "42\n"]}
    own_name = [{**DOUBLE_CALLS[0], "metadata": {"func_name": "double"}}]
    tests: dict[str, tuple[str, Any]] = {
        "taco, stdin": ("stdin", taco),
        "taco, call": ("function", {"fn_name": "double", "inputs": [[1], [21]], "outputs": [[2], [42]]}),
        "primeintellect, stdin": ("stdin", [{**pair, "type": "stdin_stdout"}]),
        "primeintellect, call": ("function", [{"input": [21], "output": [42], **call}]),
        "lcbv5, call": ("method", own_name),
        "codeforces, stdin": ("stdin", [{**pair, "testtype": "stdin_stdout", "metadata": {"func_name": None}}]),
    }
    return {
        name: {"problem": f"Double it ({name}).", "tests": json.dumps(form), "style": style}
        for name, (style, form) in tests.items()
    }


def run_deepcoder(tmp_path: Path, train: list[dict[str, Any]], *options: str) -> list[dict[str, Any]]:
    """The training rows that come of `train`."""
    jsonl(tmp_path / "in/train.jsonl", train)
    shared = {"problem": "Shared.", "tests": json.dumps(DOUBLE_STREAM)}
    jsonl(tmp_path / "in/test.jsonl", [shared])
    where = ["--local_dir", str(tmp_path / "out"), "--input", str(tmp_path / "in")]
    script("deepcoder").main([*where, *options])
    assert len(rows_of(tmp_path / "out", "test")) == 1
    return rows_of(tmp_path / "out", "train")


def test_deepcoder_reads_every_form_of_tests(tmp_path: Path) -> None:
    sources = deepcoder_rows()
    made = run_deepcoder(tmp_path, list(sources.values()))
    assert len(made) == len(sources)
    styles = {row["problem"]: row["style"] for row in sources.values()}
    for row in made:
        question, _, instruction = row["prompt"][0]["content"].partition("\n\n")
        fn_name = read_tests(row["reward_model"]["ground_truth"]).fn_name
        assert (fn_name is None) == (styles[question] == "stdin") == ("reads stdin" in instruction)


@needs_linux
@pytest.mark.slow
def test_the_judge_tells_right_programs_from_wrong_ones_on_deepcoder(tmp_path: Path) -> None:
    sources = deepcoder_rows()
    styles = {row["problem"]: row["style"] for row in sources.values()}
    for row in run_deepcoder(tmp_path, list(sources.values())):
        style = styles[row["prompt"][0]["content"].partition("\n\n")[0]]
        assert judged(RIGHT[style], row) == (1.0, 0.0), row["prompt"]


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ("not JSON", "Expecting value"),
        ({"cases": []}, "in no known form"),
        ([], "has no tests"),
        ([{**DOUBLE_CALLS[0]}], "a function that has no name"),
        ([{**DOUBLE_STREAM[0], "testtype": "interactive"}], "of type 'interactive'; known are"),
        ([*DOUBLE_STREAM, {**DOUBLE_CALLS[0], "fn_name": "double"}], "call different functions"),
        ({"inputs": ["1"], "outputs": []}, "zip"),
        ({"fn_name": "f", "inputs": ["not JSON"], "outputs": ["1"]}, "is not JSON"),
    ],
)
def test_deepcoder_leaves_out_problems_whose_tests_it_cannot_read(
    tmp_path: Path, tests: Any, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"problem": "Good.", "tests": json.dumps(DOUBLE_STREAM)}
    bad = {"problem": "Bad.", "tests": tests if isinstance(tests, str) else json.dumps(tests)}
    made = run_deepcoder(tmp_path, [good, bad])
    assert [row["prompt"][0]["content"][:5] for row in made] == ["Good."]
    told = capsys.readouterr().out
    assert "1 of 2 problems left out, such as\n  row 1: " in told and why in told


def test_deepcoder_refuses_other_columns_by_name(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no column tests; it has problem, cases"):
        run_deepcoder(tmp_path, [{"problem": "p", "cases": "[]"}])


def test_deepcoder_trains_on_no_problem_of_its_test_set_or_of_an_excluded_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = [{"input": "5", "output": "10"}]
    train = [
        {"problem": problem, "tests": json.dumps(tests)}
        for problem, tests in (("shared", other), ("Kept.", other), ("kept", DOUBLE_STREAM), ("Known.", other))
    ]
    known = jsonl(tmp_path / "lcb.jsonl", [{"question_content": "KNOWN"}])
    made = run_deepcoder(tmp_path, train, "--exclude", str(known))
    assert [json.loads(row["reward_model"]["ground_truth"])["inputs"] for row in made] == [["5"]]
    told = capsys.readouterr().out
    assert "1 of 4 rows left out: they repeat" in told
    assert "1 of 3 training problems left out: they are in the test set" in told
    assert f"1 of 2 training problems left out: they are in {known}" in told


def test_tests_past_the_limit_are_left_out_the_longest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = [{"input": character * size, "output": "1"} for character, size in (("a", 50), ("b", 500), ("c", 5))]
    huge = {"problem": "Huge.", "tests": json.dumps(tests[1:2])}
    (row,) = run_deepcoder(
        tmp_path, [{"problem": "Mixed.", "tests": json.dumps(tests)}, huge], "--max_test_chars", "100"
    )
    assert json.loads(row["reward_model"]["ground_truth"])["inputs"] == ["a" * 50, "c" * 5]
    assert (row["extra_info"]["num_tests"], row["extra_info"]["num_tests_left_out"]) == (2, 1)
    told = capsys.readouterr().out
    assert "1 tests of 1 problems left out" in told and "its shortest test has" in told


def packed(tests: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(tests))).decode()


def lcb(question: str, tests: list[dict[str, Any]], private: str, day: str = "2024-09-01") -> dict[str, Any]:
    return {
        "question_title": "title",
        "question_content": question,
        "platform": "leetcode",
        "question_id": "3000",
        "contest_id": "c",
        "contest_date": f"{day}T00:00:00",
        "starter_code": "class Solution:\n    def double(self, x: int) -> int:\n        ",
        "difficulty": "easy",
        "public_test_cases": json.dumps(tests),
        "private_test_cases": private,
        "metadata": json.dumps({"func_name": "double"}),
    }


def run_livecodebench(tmp_path: Path, source: Path, *options: str) -> list[dict[str, Any]]:
    script("livecodebench").main(["--local_dir", str(tmp_path / "out"), "--input", str(source), *options])
    return rows_of(tmp_path / "out", "test")


def private_and_plain() -> list[dict[str, Any]]:
    private = [{"input": "21", "output": "42", "testtype": "functional"}]
    stream = [{"input": "21\n", "output": "42\n", "testtype": "stdin"}]
    return [
        lcb("Method.", DOUBLE_CALLS, packed(json.dumps(private))),
        lcb("Stream.", DOUBLE_STREAM, json.dumps(stream), day="2025-03-01"),
    ]


def test_livecodebench_joins_public_and_private_tests(tmp_path: Path) -> None:
    method, stream = run_livecodebench(tmp_path, jsonl(tmp_path / "test6.jsonl", private_and_plain()))
    truth = json.loads(method["reward_model"]["ground_truth"])
    assert truth == {"inputs": ["1", "21"], "outputs": ["2", "42"], "fn_name": "double"}
    assert method["prompt"][0]["content"].endswith(
        "completes this code:\n```python\n" + ("class Solution:\n    def double(self, x: int) -> int:\n```")
    )
    assert json.loads(stream["reward_model"]["ground_truth"])["inputs"] == ["1\n", "21\n"]
    assert stream["extra_info"]["contest_date"] == "2025-03-01"


@needs_linux
@pytest.mark.slow
def test_the_judge_tells_right_programs_from_wrong_ones_on_livecodebench(tmp_path: Path) -> None:
    method, stream = run_livecodebench(tmp_path, jsonl(tmp_path / "test6.jsonl", private_and_plain()))
    assert judged(RIGHT["method"], method) == (1.0, 0.0)
    assert judged(RIGHT["stdin"], stream) == (1.0, 0.0)


def test_livecodebench_reads_the_files_of_a_release_and_the_contests_of_a_window(tmp_path: Path) -> None:
    first, second = private_and_plain()
    jsonl(tmp_path / "in/test.jsonl", [first])
    jsonl(tmp_path / "in/test2.jsonl", [second])
    folder = tmp_path / "in"
    assert len(run_livecodebench(tmp_path, folder, "--release", "2")) == 2
    assert len(run_livecodebench(tmp_path, folder, "--release", "1")) == 1
    (late,) = run_livecodebench(tmp_path, folder, "--release", "2", "--since", "2024-09-02", "--until", "2025-03-02")
    assert late["extra_info"]["contest_date"] == "2025-03-01"
    with pytest.raises(SystemExit, match=r"test3\.jsonl: there is no such file"):
        run_livecodebench(tmp_path, folder, "--release", "3")


class Evil:
    """Unpickled by the usual loader, it would call `exit`."""

    def __reduce__(self) -> Any:
        return (sys.exit, (7,))


def test_livecodebench_runs_nothing_that_a_pickle_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*private_and_plain(), lcb("Evil.", DOUBLE_CALLS, packed(Evil()))]
    assert len(run_livecodebench(tmp_path, jsonl(tmp_path / "test6.jsonl", rows))) == 2
    assert "row 2: its private tests cannot be unpacked: it wants sys.exit" in capsys.readouterr().out


def humaneval(number: int, head: str, solution: str, test: str) -> dict[str, Any]:
    entry_point = head.partition("def ")[2].partition("(")[0]
    return {
        "task_id": f"HumanEval/{number}",
        "prompt": f'{head}\n    """Told here."""\n',
        "canonical_solution": f"    {solution}\n",
        "test": f"\n\nMETADATA = {{}}\n\n\ndef check(candidate):\n    {test}\n",
        "entry_point": entry_point,
    }


@needs_linux
@pytest.mark.slow
def test_humaneval_writes_down_the_calls_of_every_kind_of_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        humaneval(0, "def double(x: int) -> int:", "return 2 * x", "assert candidate(3) == 6, 'as told'"),
        humaneval(2, "def half(x: float) -> float:", "return x / 2", "assert abs(candidate(0.3) - 0.15) < 1e-6"),
        humaneval(
            53,
            "def double(x: int) -> int:",
            "return 2 * x",
            "import random\n    for x in random.sample(range(99), 4):\n        assert candidate(x) == x * 2",
        ),
        humaneval(8, "def pair(x):", "return (x, 2 * x)", "assert candidate(1) == (1, 2)"),
        humaneval(9, "def sort(x):", "x.sort(); return x", "assert candidate([2, 1]) == [1, 2]"),
        humaneval(32, "def root(x):", "return x[0]", "assert candidate([1, 2]) > 0"),
        humaneval(40, "def wrong(x):", "return 1", "assert candidate(1) == 2"),
        humaneval(41, "def silent(x):", "return 1", "pass"),
    ]
    source = jsonl(tmp_path / "humaneval.jsonl", rows)
    script("humaneval").main(["--local_dir", str(tmp_path / "out"), "--input", str(source)])
    made = {row["extra_info"]["task_id"]: row for row in rows_of(tmp_path / "out", "test")}
    assert list(made) == [f"HumanEval/{number}" for number in (0, 2, 53, 8, 9)]
    told = capsys.readouterr().out
    assert "3 of 8 problems left out" in told and all(f"HumanEval/{number}: its " in told for number in (32, 40, 41))
    truth = json.loads(made["HumanEval/9"]["reward_model"]["ground_truth"])
    assert truth == {"fn_name": "sort", "inputs": [[[2, 1]]], "outputs": [[1, 2]]}
    assert made["HumanEval/53"]["extra_info"]["num_tests"] == 4
    assert judged(RIGHT["function"], made["HumanEval/0"]) == judged(RIGHT["function"], made["HumanEval/53"]) == (1, 0)
    assert score("def half(x):\n    return 0.5 * x + 1e-9", made["HumanEval/2"]) == 1.0
    assert score("def pair(x):\n    return [x, x + x]", made["HumanEval/8"]) == 1.0


@needs_linux
@pytest.mark.slow
def test_deepcoder_keeps_the_first_published_solution_that_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = json.dumps(DOUBLE_STREAM)
    fenced = f"```python\n{RIGHT['stdin']}\n```"
    train = [
        {"problem": "Fenced.", "tests": tests, "solutions": ["print(3)", fenced, "print(2)"]},
        {"problem": "Plain.", "tests": tests, "solutions": [RIGHT["stdin"]]},
        {"problem": "Wrong.", "tests": tests, "solutions": ["print(3)"]},
        {"problem": "None.", "tests": tests, "solutions": None},
    ]
    made = run_deepcoder(tmp_path, train, "--references")
    found = {row["prompt"][0]["content"].partition("\n")[0]: row["extra_info"].get("reference") for row in made}
    assert found == {"Fenced.": RIGHT["stdin"] + "\n", "Plain.": RIGHT["stdin"]}
    assert "2 of 4 problems left out: no published solution passes" in capsys.readouterr().out
    assert not any("solutions" in row["extra_info"] for row in [*made, *rows_of(tmp_path / "out", "test")])
    assert len(run_deepcoder(tmp_path / "all", train)) == 4
