"""More than 1,000 broken workflow files: each refused with exit code 2, at the right line, with the right word."""

from __future__ import annotations

import collections
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dagrl.cli import exit_code
from dagrl.workflow import nearest
from tests.command import COMMAND, environment
from tests.resilience.broken_workflows import MARFT, Mutant, base_text, mutants

pytestmark = pytest.mark.resilience

_PLACE = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+):(?P<column>\d+): error\[(?P<code>E\d{3})\]: ", re.MULTILINE)
_LEAST_MUTANTS = 1000
_SHOWN = 20


@pytest.fixture(scope="module")
def base() -> str:
    return base_text()


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[int, str]]:
    """What `dagrl validate` says of a text that stands beside the shipped files: (exit code, all that was printed)."""
    for name in ("marft", "small_model", "../envs"):
        (tmp_path / "workflows").mkdir(exist_ok=True)
        (tmp_path / "workflows" / name).symlink_to((MARFT.parent / name).resolve())
    file = tmp_path / "workflows" / "broken.yaml"

    def say(text: str) -> tuple[int, str]:
        file.write_text(text, encoding="utf-8")
        code = exit_code(["validate", str(file)])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return say


def complaints(mutant: Mutant, code: int, said: str) -> list[str]:
    """What is wrong with an answer to a broken file."""
    if "Traceback" in said or code not in (0, 2):
        return [f"exit code {code}"]
    first = _PLACE.search(said)
    if code == 0:
        return [] if mutant.may_be_whole and first is None else ["accepted"]
    if first is None:
        return ["no error with file:line:column"]
    found = []
    if mutant.line is not None and int(first["line"]) != mutant.line:
        found.append(f"line {first['line']} for {mutant.line}")
    if mutant.codes and first["code"] not in mutant.codes:
        found.append(f"code {first['code']} for {'/'.join(mutant.codes)}")
    return found + [f"without {word}" for word in mutant.words if word not in said]


def judged(
    chosen: Sequence[Mutant], say: Callable[[str], tuple[int, str]]
) -> tuple[list[str], collections.Counter[str]]:
    """All complaints, and how many files of each kind were refused."""
    found: list[str] = []
    refused: collections.Counter[str] = collections.Counter()
    for number, mutant in enumerate(chosen):
        code, said = say(mutant.text)
        refused[mutant.kind] += code == 2
        found += [f"#{number} {mutant.kind}: {one}\n{said[:600]}" for one in complaints(mutant, code, said)]
    return found, refused


def test_the_file_that_is_broken_is_whole(base: str, say: Callable[[str], tuple[int, str]]) -> None:
    assert say(base)[0] == 0


def test_every_broken_file_is_refused_where_it_is_broken_with_the_right_word(
    base: str, say: Callable[[str], tuple[int, str]]
) -> None:
    found, refused = judged(list(mutants(base)), say)
    assert not found, f"{len(found)} complaints\n" + "\n".join(found[:_SHOWN])
    assert refused.total() >= _LEAST_MUTANTS, refused
    assert min(refused[kind] for kind in ("cycle", "dangling", "duplicated", "missing", "null", "wrong type")) > 10


def test_without_the_nearest_word_the_same_files_are_found_wanting(
    base: str, say: Callable[[str], tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    misspelt = [mutant for mutant in mutants(base) if mutant.kind in ("misspelt key", "dangling")][::20]
    monkeypatch.setattr(nearest, "get_close_matches", lambda *_, **__: [])
    found, _ = judged(misspelt, say)
    assert len(found) > len(misspelt) / 2


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "ok"),
        (1, "Traceback (most recent call last)"),
        (-11, ""),
        (2, "f.yaml: something is wrong"),
        (2, "f.yaml:8:1: error[E110]: unknown key\n = did you mean 'lam'?"),
        (2, "f.yaml:7:1: error[E112]: wrong type\n = did you mean 'lam'?"),
        (2, "f.yaml:7:1: error[E110]: unknown key"),
    ],
)
def test_the_judge_finds_fault_with_a_worse_answer(code: int, said: str) -> None:
    mutant = Mutant(kind="misspelt key", text="", line=7, codes=("E110",), words=("'lam'",))
    assert complaints(mutant, code, said)
    assert not complaints(mutant, 2, "f.yaml:7:1: error[E110]: unknown key\n = did you mean 'lam'?")


def test_the_command_itself_ends_the_same_way(base: str, tmp_path: Path) -> None:
    """Every 100th file, in a process of its own."""
    file = tmp_path / "broken.yaml"
    chosen = [mutant for mutant in mutants(base) if not mutant.may_be_whole][::100]
    for mutant in chosen:
        file.write_text(mutant.text, encoding="utf-8")
        done = subprocess.run(
            [*COMMAND, "validate", str(file)], env=environment(tmp_path), capture_output=True, text=True, timeout=300
        )
        assert not complaints(mutant, done.returncode, done.stdout + done.stderr), done.stderr
    assert len(chosen) > 10
