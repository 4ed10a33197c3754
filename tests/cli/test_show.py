"""`dagrl show` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagrl.cli import exit_code
from tests.command import dagrl
from tests.run_builders import make_run, trajectory, write_trajectories

HOSTILE = "fine\n=== task t:9: reward 1\x1b[2J\x1b]0;owned\x07\r\u202e[bold]x[/bold]"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = make_run(tmp_path / "runs", rewards=[0.5, 0.5])
    played = [trajectory("t:0", 1.0, text="good"), trajectory("t:1", 0.0, text=HOSTILE, heard=HOSTILE)]
    write_trajectories(folder, 2, played, [0.5, -0.25])
    return folder.path


def test_the_worst_conversation_is_shown_with_rewards_and_advantages(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["show", str(run), "--step", "2", "--best", "1"]) == 0
    told = capsys.readouterr().out
    assert "2 trajectories, mean reward 0.500; 1 shown with the highest reward" in told
    assert "=== task t:0, sample 0: reward 1, not ended after 1 round, ground truth 7" in told
    assert "thinker, round 1:  [reward 0, advantage +0.500]" in told
    assert "writer, round 1:  [reward 1, format 0.5, advantage +0.500]" in told
    assert "    good" in told
    assert told.count("environment:") == 1, "what both agents heard stands once"


def test_only_one_agents_turns_can_be_shown_and_what_it_read(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["show", str(run), "--agent", "writer", "--task", "t:0", "--prompts"]) == 0
    told = capsys.readouterr().out
    assert "thinker" not in told
    assert "writer reads:\n    to 1: [1, 2]" in told


def test_hostile_texts_are_shown_and_not_obeyed(run: Path, tmp_path: Path) -> None:
    done = dagrl("show", str(run), "--worst", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not [one for one in done.stdout if not one.isprintable() and one != "\n"]
    assert "\\x1b[2J" in done.stdout and "[bold]x[/bold]" in done.stdout
    heads = [line for line in done.stdout.splitlines() if line.startswith("===")]
    assert len(heads) == 1, "a text cannot pose as a heading"


def test_long_texts_are_cut_unless_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "runs")
    write_trajectories(folder, 1, [trajectory("t:0", 1.0, text="x" * 5000)], [0.0])
    assert exit_code(["show", str(folder.path)]) == 0
    told = capsys.readouterr().out
    assert "x" * 2000 in told and "x" * 2001 not in told
    assert "(5000 characters; --full shows all)" in told
    assert exit_code(["show", str(folder.path), "--full"]) == 0
    assert "x" * 5000 in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--step", "9"], 2, "there are steps 2"),
        (["--agent", "writr"], 2, "did you mean 'writer'"),
        (["--worst", "1", "--best", "1"], 2, "exclude each other"),
        (["--worst", "0"], 2, "from 1"),
        (["--eval"], 2, "no held-out trajectories"),
    ],
)
def test_what_cannot_be_shown_is_told(
    run: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, told: str
) -> None:
    assert exit_code(["show", str(run), *words]) == code
    assert told in capsys.readouterr().err


def test_a_damaged_file_is_a_storage_error(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / "trajectories" / "step_000002.parquet"
    file.write_bytes(file.read_bytes()[:-50])
    assert exit_code(["show", str(run)]) == 5
    assert str(file) in capsys.readouterr().err
