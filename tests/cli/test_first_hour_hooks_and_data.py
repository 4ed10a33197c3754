"""`dagrl try-hook` and `dagrl data check`: ids and texts before and after; what files hold and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dagrl.backends.byte_tokenizer import byte_tokenizer
from dagrl.cli import exit_code
from dagrl.cli.arguments import key_values

HOOKS = """
def pre_process(tokenizer, prompt_id, obs, *, cue=" now"):
    return prompt_id + (obs or []) + tokenizer.encode(cue, add_special_tokens=False)

def post_process(tokenizer, prompt_id, response_id):
    return prompt_id[1:] + response_id
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "process.py").write_text(HOOKS)
    monkeypatch.chdir(tmp_path)


def write_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def blocks(told: str) -> dict[str, tuple[list[int], str]]:
    """Name → ids and text, of what `try-hook` printed."""
    lines = told.splitlines()
    found = {}
    for number, line in enumerate(lines):
        if line.startswith("    ids"):
            ids = [int(word) for word in line.split()[1:]]
            found[lines[number - 1].partition(":")[0]] = (ids, lines[number + 1].removeprefix("    text  "))
    return found


@pytest.mark.parametrize("text", ["plain", "ünïcode 数 🙂", "<|end|> of it\n"])
def test_the_byte_tokenizer_gives_every_text_back_and_never_makes_control_tokens_of_it(text: str) -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text


def test_ids_and_texts_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    row = write_rows("rows.jsonl", [{"prompt": "ab", "ground_truth": "c"}])
    assert exit_code(["try-hook", "process.py", "--row", f"{row}:0", "--obs", "no", "--response", "c"]) == 0
    told = capsys.readouterr().out
    found, encode = blocks(told), byte_tokenizer().encode
    assert found["prompt_id"] == (encode("ab"), "ab")
    assert found["obs"] == (encode("no"), "no")
    assert found["pre_process gives"] == (encode("abno now"), "abno now")
    assert found["response_id"] == (encode("c<|end|>"), "c<|end|>")
    assert found["post_process gives"] == (encode("bc<|end|>"), "bc<|end|>")
    assert "all 2 kept, 0 put before, 6 put behind" in told
    assert "3 kept, 0 new, 1 gone" in told


def test_kwargs_go_to_their_hook(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["try-hook", "process.py", "--prompt", "ab", "--pre-kwarg", "cue= Go: 1"]) == 0
    assert blocks(capsys.readouterr().out)["pre_process gives"][1] == "ab Go: 1"


def test_values_of_kwargs_are_what_they_look_like() -> None:
    words = ["a=1", "b=0.5", "c=true", "d=null", "e= x: y", "f=[1, two]", "g={h: 1}", "i='1'", "j=", "k=a=b"]
    expected = {"a": 1, "b": 0.5, "c": True, "d": None, "e": " x: y", "f": [1, "two"], "g": {"h": 1}, "i": "1"}
    assert key_values(words) == {**expected, "j": None, "k": "a=b"}


def test_a_node_of_a_workflow_gives_kwargs_and_tokenizer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["new", "project", "team"]) == 0
    model = Path("team/tiny_model.py")
    model.write_text(model.read_text().replace("NUM_LESSONS = 100", "NUM_LESSONS = 1"))
    monkeypatch.setenv("DAGRL_CACHE", str(Path("cache").absolute()))
    words = ["--workflow", "team/workflow.yaml", "--row", "team/data/train.jsonl:1"]
    assert exit_code(["try-hook", "team/process.py", *words, "--node", "writer"]) == 0
    found = blocks(capsys.readouterr().out)
    assert found["prompt_id"][1] == "Say b"
    assert found["pre_process gives"][1] == "Say b Writer:"
    assert exit_code(["try-hook", "team/process.py", *words, "--node", "writr"]) == 2
    assert "did you mean 'writer'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("def pre_process(tokenizer, prompt_id, obs): return []", "gave an empty list"),
        ("def pre_process(tokenizer, prompt_id, obs): return [10**9]", "gave the id 1000000000"),
        ("def pre_process(tokenizer, prompt_id, obs): return tokenizer.nothing", "raised AttributeError"),
        ("def pre_process(tokenizer): return []", "cannot be called"),
        ("x = 1", "has neither pre_process nor post_process"),
    ],
)
def test_a_hook_that_is_wrong_is_told_as_in_a_run(
    hook: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(hook + "\n")
    assert exit_code(["try-hook", str(file), "--prompt", "ab"]) == 2
    told = capsys.readouterr().err
    assert message in told and "Traceback" not in told


def test_a_prompt_or_a_row_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["try-hook", "process.py"]) == 2
    assert "--row FILE:N" in capsys.readouterr().err


def test_data_that_is_right_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"problem": f"{n} + 1", "answer": n + 1, "data_source": "sums", "level": n % 2} for n in range(4)]
    assert exit_code(["data", "check", write_rows("rows.jsonl", rows)]) == 0
    told = capsys.readouterr()
    for words in ("4 rows", "int (4); 4 different", "sums (4)", "extra_info: level", "0 + 1 → 1"):
        assert words in told.out
    assert told.err == ""


def test_repeated_and_shared_prompts_are_pointed_out(capsys: pytest.CaptureFixture[str]) -> None:
    one = write_rows("train.jsonl", [{"prompt": name, "ground_truth": "x"} for name in "aabc"])
    other = write_rows("test.jsonl", [{"prompt": name} for name in "cd"])
    assert exit_code(["data", "check", one, other]) == 0
    told = capsys.readouterr().err
    assert "1 rows repeat the prompt of another, such as train:0, train:1" in told
    assert "1 prompts stand in both train.jsonl and test.jsonl" in told
    assert "test.jsonl: no column for the ground truth" in told


def test_every_bad_row_is_told_at_once_with_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt": "", "answer": 1}, {"prompt": "ok", "answer": 1}, {"prompt": "ok", "answer": None}]
    assert exit_code(["data", "check", write_rows("rows.jsonl", rows)]) == 3
    told = capsys.readouterr().err
    assert "2 of 3 rows cannot be used" in told and "line 1" in told and "line 3" in told


def test_columns_with_other_names_can_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    name = write_rows("rows.jsonl", [{"q": "1 + 1", "a": "2"}])
    assert exit_code(["data", "check", name]) == 3
    assert exit_code(["data", "check", name, "--column", "prompt=q", "--column", "ground_truth=a"]) == 0
    assert "1 + 1 → 2" in capsys.readouterr().out


def test_a_file_of_another_kind_is_refused_without_asking_the_network(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.csv").write_text("prompt\nx\n")
    assert exit_code(["data", "check", "rows.csv"]) == 3
    assert "one ends in .parquet, .jsonl, .json" in capsys.readouterr().err


def test_control_characters_of_data_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = write_rows("rows.jsonl", [{"prompt": "\x1b[2J", "ground_truth": "x", "data_source": "\x1b]0;t"}])
    assert exit_code(["data", "check", name]) == 0
    assert "\x1b" not in capsys.readouterr().out
