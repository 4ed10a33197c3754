"""`dagrl show` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagrl.cli import exit_code
from tests.command import dagrl
from tests.run_builders import make_run, trajectory, write_evaluation, write_trajectories

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


def test_evaluations_are_shown_with_the_same_choices(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the run, also with an agent left out, and what `dagrl eval` kept."""
    for step in (0, 2):
        solved = [trajectory("val:0", 1.0, text=f"after {step}"), trajectory("val:1", 0.0, text="wrong")]
        write_evaluation(run / "trajectories", step, solved)
    write_evaluation(run / "trajectories", 2, [trajectory("val:0", 0.0, text="alone", speakers=[1])], "think")
    for time in ("20260102-120000", "20260102-120000-2", "20260102-120000-10"):
        write_evaluation(run / "evaluations" / time, 1, [trajectory("val:0", 0.5, text=f"kept {time}")], "write")

    def shown(*words: str) -> str:
        assert exit_code(["show", str(run), *words]) == 0
        return capsys.readouterr().out

    assert "held out after step 2: 2 trajectories" in (told := shown("--eval", "--worst", "1"))
    assert "wrong" in told and "after 2" not in told
    assert "    after 0" in shown("--eval", "--step", "0", "--task", "val:0", "--agent", "writer")
    assert "held out after step 2, without think: 1 traj" in (told := shown("--without", "think"))
    assert "    alone" in told and "thinker" not in told
    assert "dagrl eval of 20260102-120000-10, after step 1, without write" in (told := shown("--judged", "latest"))
    assert "    kept 20260102-120000-10" in told
    assert "    kept 20260102-120000\n" in shown("--judged", "20260102-120000", "--best", "1")


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
        (["--without", "think"], 2, "val_without names"),
        (["--judged", "latest"], 2, "`dagrl eval` has kept none"),
        (["--judged", "latest", "--step", "2"], 2, "leave --step, --eval, --set and --without out"),
    ],
)
def test_what_cannot_be_shown_is_told(
    run: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, told: str
) -> None:
    assert exit_code(["show", str(run), *words]) == code
    assert told in capsys.readouterr().err


def test_what_was_left_out_is_named_where_another_is_asked_for(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_evaluation(run / "trajectories", 2, [trajectory("val:0", 0.0)], "think")
    assert exit_code(["show", str(run), "--without", "thimk"]) == 2
    told = capsys.readouterr().err
    assert "no held-out trajectories without 'thimk'; what was left out is think" in told
    assert "did you mean 'think'" in told
    assert exit_code(["show", str(run), "--without", "think", "--step", "1"]) == 2
    assert "there are steps 2" in capsys.readouterr().err


def test_a_damaged_file_is_a_storage_error(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / "trajectories" / "step_000002.parquet"
    file.write_bytes(file.read_bytes()[:-50])
    assert exit_code(["show", str(run)]) == 5
    assert str(file) in capsys.readouterr().err
