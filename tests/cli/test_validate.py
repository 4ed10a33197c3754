"""`dagrl validate` as a user runs it: exit codes, places, JSON, and no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dagrl.cli import exit_code
from tests.workflow_files import CHAIN, SCRIPT_FLAGS, TEAM, changed, write

MAIN = "from dagrl.cli import main; main()"


def with_code(folder: Path, env_class: str = "CheckingEnv") -> None:
    (folder / "process.py").write_text("def post_process(tokenizer, prompt_id, response_id): return response_id\n")
    (folder / "checking_env.py").write_text(f"import not_installed\nclass {env_class}: pass\n")


@pytest.mark.parametrize(
    ("env_class", "hook", "words"),
    [
        ("CheckngEnv", "post_process", "did you mean 'CheckngEnv'"),
        ("CheckingEnv", "postprocess", "no 'pre_process or post_process' in process.py"),
        ("CheckingEnv", "post process", "syntax error"),
        (None, "post_process", "no file 'checking_env.py'"),
    ],
)
def test_names_that_files_do_not_have_are_found_by_reading_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], env_class: str | None, hook: str, words: str
) -> None:
    with_code(tmp_path, env_class or "")
    if env_class is None:
        (tmp_path / "checking_env.py").unlink()
    (tmp_path / "process.py").write_text(f"def {hook}(tokenizer): pass\n")
    assert exit_code(["validate", str(write(tmp_path, CHAIN))]) == 2
    assert words in capsys.readouterr().err


def test_a_correct_file_passes_with_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_code(tmp_path)
    assert exit_code(["validate", str(write(tmp_path, CHAIN)), *SCRIPT_FLAGS]) == 0
    told = capsys.readouterr().out
    assert "14 nodes" in told
    assert "critic of group 1 is group 0's: 1 model" in told
    assert "steps 0-14 train agent 0, 15-29 train agent 1" in told


def test_faults_are_shown_with_place_caret_and_nearest_word_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, changed(TEAM, ("max_rounds", "max_ronds")))
    assert exit_code(["validate", str(file)]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"{file}:3:13: error[E110]: unknown key 'max_ronds'  [config.rollout.max_ronds]"
    assert told[2].index("^") == told[1].index("max_ronds")
    assert "did you mean 'max_rounds'" in told[3]
    assert told[-1] == "1 error, 0 warnings"


def test_json_is_stable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["validate", str(write(tmp_path, TEAM)), "--json"]) == 0
    good = json.loads(capsys.readouterr().out)
    assert (good["ok"], good["findings"]) == (True, [])
    assert exit_code(["validate", str(tmp_path / "workflow.yaml"), "trainer.sead=1", "--json"]) == 2
    bad = json.loads(capsys.readouterr().out)
    assert bad["ok"] is False
    assert bad["findings"][0]["code"] == "E110"
    assert set(bad["findings"][0]) == {"code", "message", "file", "line", "column", "field", "hint", "source"}


@pytest.mark.parametrize("arguments", [["validate", "/nowhere/at/all.yaml"], ["validate"], ["nothing"], ["graph", "/"]])
def test_wrong_use_ends_with_2_and_no_traceback(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "{long}.yaml"],
        ["validate", "{file}", "config.data.train_files={long}.jsonl"],
        ["validate", "{file}", "nodes.actor.agent_options.process_path={long}.py"],
        ["show", "{long}"],
        ["ps", "{long}"],
        ["compare", "{long}", "{long}"],
        ["view", "{long}", "--export", "page.html"],
        ["run", "--resume", "{long}"],
        ["rerun", "{long}"],
    ],
)
def test_names_that_no_file_can_have_are_a_users_mistake(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, CHAIN)
    code = exit_code([word.format(long="x" * 400, file=file) for word in arguments])
    told = capsys.readouterr().err
    assert code in (0, 2) and "bug" not in told and "Traceback" not in told, told
    assert code == 2 or "train_files" in arguments[-1], "data is looked at when it is read"


def test_validate_and_help_load_neither_torch_nor_transformers(tmp_path: Path) -> None:
    with_code(tmp_path)
    file = write(tmp_path, CHAIN)
    for arguments in (["validate", str(file)], ["graph", str(file)], ["--help"], ["--version"]):
        script = (
            "import sys\nfrom dagrl.cli import exit_code\n"
            f"code = exit_code({arguments!r})\n"
            "heavy = [name for name in ('torch', 'transformers', 'datasets', 'pyarrow') if name in sys.modules]\n"
            "assert not heavy, heavy\nsys.exit(code)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_bug_of_our_own_ends_with_70_and_a_file_with_the_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "failing_command.py").write_text("def command() -> None:\n    raise RuntimeError('our own')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules["dagrl.cli"].COMMANDS, "fail", ("failing_command:command", "Fails."))
    assert exit_code(["fail"]) == 70
    told = capsys.readouterr().err.strip()
    assert "Traceback" not in told
    assert "our own" in Path(told.rpartition(" ")[2]).read_text()


def test_the_process_itself_ends_with_the_code(tmp_path: Path) -> None:
    file = write(tmp_path, changed(TEAM, ("node_type: REWARD", "node_type: REWRAD")))
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "validate", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "did you mean 'REWARD'" in done.stderr
    assert "Traceback" not in done.stderr
