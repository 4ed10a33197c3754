"""`dagrl check-env` and `dagrl play-env`: good classes pass, each fault is told, nothing hangs, a person can play."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from dagrl.cli import exit_code
from dagrl.environments.conformance import Trial, check_environment
from dagrl.workflow import plugins

CLASSES = """
import asyncio, itertools, os, time

class Good:
    def __init__(self, tries=2, **others):
        self.left = tries

    def reset(self, prompt=None):
        return f"you heard: {prompt}"

    async def step(self, actions, ground_truth):
        self.left -= 1
        is_right = actions[-1] == ground_truth
        return ("right" if is_right else "wrong"), float(is_right), is_right or self.left == 0

class Own:
    def step(self, actions):
        return [f"to {n}" for n in range(len(actions))], [float(n) for n in range(len(actions))], (False, True)

class Random:
    draws = itertools.count()
    def step(self, actions):
        return None, next(self.draws), False

class Clock:
    def step(self, actions):
        return str(int(time.time())), 0.0, True

class Process:
    def reset(self, prompt=None):
        return str(os.getpid())
    def step(self, actions):
        return None, 0.0, True

class Order:
    def step(self, actions):
        return ",".join({f"word {n}" for n in range(64)}), 0.0, True

class Shapeless:
    def step(self, actions):
        return "only an observation"

class Hanging:
    def step(self, actions):
        while True:
            pass

class Swallowing:
    def step(self, actions):
        while True:
            try:
                while True:
                    pass
            except Exception:
                return None, 0.0, False

class Waiting:
    async def step(self, actions):
        await asyncio.sleep(3600)

class Hostile:
    def step(self, actions):
        return "\\x1b[2J" + actions[0], 1.0, True

class NeedsMore:
    def __init__(self, size):
        pass
    def step(self, actions):
        return None, 0.0, True
"""


@pytest.fixture(autouse=True)
def with_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "classes.py").write_text(CLASSES)
    rows = [{"prompt": "say x", "ground_truth": "x"}, {"prompt": "say y", "ground_truth": "y", "level": 3}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)


def check(name: str, *words: str) -> int:
    return exit_code(["check-env", f"classes.py:{name}", *words])


def play(monkeypatch: pytest.MonkeyPatch, typed: str, name: str, *words: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    return exit_code(["play-env", f"classes.py:{name}", *words])


@pytest.mark.parametrize("words", [(), ("--agents", "3"), ("--action", "a", "--action", "x", "--row", "rows.jsonl:0")])
def test_good_environments_pass(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert check("Good", *words) == 0
    assert "keeps the contract" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Random", "same actions differ"),
        ("Shapeless", "step gave a str"),
        ("NeedsMore", "'size'"),
    ],
)
def test_each_fault_is_told_with_exit_code_1(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(name) == 1
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Clock", "Process", "Order"])
def test_what_differs_only_in_another_second_or_process_is_told_too(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert check(name) == 1
    assert "same actions differ" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Process", "Order"])
def test_within_one_process_nothing_differs(name: str, tmp_path: Path) -> None:
    """The twin: who looks only there does not find it."""
    assert check_environment(plugins.load(f"classes.py:{name}", tmp_path), Trial()) == []


def test_arguments_of_the_constructor_are_passed_on() -> None:
    assert check("NeedsMore", "--kwarg", "size=3") == 0


@pytest.mark.parametrize("name", ["Hanging", "Waiting", "Swallowing"])
def test_nothing_hangs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(name, "--timeout-s", "0.2") == 1
    assert "0.2 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check-env", "classes.py:Goood"], "did you mean 'Good'"),
        (["check-env", "clases.py:Good"], "did you mean 'classes.py'"),
        (["check-env", "classes.py"], "names a file but nothing in it"),
        (["check-env", "classes.py:Good", "--row", "rows.jsonl:x"], "names no row"),
        (["check-env", "classes.py:Good", "--kwarg", "size"], "not key=value"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(words) == 2
    told = capsys.readouterr().err
    assert message in told and "Traceback" not in told


def test_a_row_that_is_not_there_is_a_fault_of_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("Good", "--row", "rows.jsonl:2") == 3
    assert "has 2 rows, there is no row 2" in capsys.readouterr().err


def test_a_person_plays_a_row_to_its_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert play(monkeypatch, "z\ny\n", "Good", "--row", "rows.jsonl:1") == 0
    told = capsys.readouterr().out
    assert "problem: say y" in told and "you heard: say y" in told
    assert told.index("wrong") < told.index("right")
    assert "terminated after round 2; reward 1 in all" in told


def test_each_agent_hears_its_own_and_rewards_of_their_own_add_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, "a\nb\nc\n", "Own", "--agents", "3") == 0
    told = capsys.readouterr().out
    assert "environment to agent 2: to 2" in told and "reward: 0, 1, 2" in told
    assert "truncated after round 1; reward 3 in all" in told


def test_leaving_is_no_fault(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert play(monkeypatch, "z\n", "Good", "--kwarg", "tries=9") == 0
    assert "left; reward so far 0" in capsys.readouterr().out


def test_what_an_environment_says_cannot_command_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, "a\n", "Hostile") == 0
    assert "\x1b" not in capsys.readouterr().out


def test_playing_with_a_hanging_environment_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, "a\n", "Hanging", "--timeout-s", "0.3") == 2
    assert "0.3 s" in capsys.readouterr().err
