"""What the terminal shows: plain lines without control codes, hostile texts as text, a report that adds up."""

from __future__ import annotations

import io
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrl.plain_text import duration, safe
from dagrl.runtime.console import Console
from dagrl.runtime.evaluate import Evaluation
from dagrl.runtime.narration import conversation_lines, report_lines, step_line, time_shares
from dagrl.types import FinishReason, Observation, StopReason, Task, Trajectory, Turn
from dagrl.workflow.budgets import Budget

HOSTILE = "[bold]x[/bold] [/] \x1b[2J\x1b]0;title\x07 \r \x9b31m \u202e \ud800 :smile:"
METRICS = {"reward/mean": 0.5, "agent_a/actor/kl": 0.25, "agent_b/actor/kl": 0.75, "agent_a/policy/entropy": 1.5,
           "perf/tokens_per_second": 1234.4, "agent_a/reward": 0.5}  # fmt: skip


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def _turn(node: str, round: int, text: str) -> Turn:
    return Turn(
        node_id=node,
        agent_group=0,
        round=round,
        prompt_ids=(1,),
        response_ids=(2,),
        rollout_logprobs=(0.0,),
        temperature=1.0,
        finish_reason=FinishReason.STOP,
        policy_version=0,
        response_text=text,
    )


def _trajectory(text: str = "the sum is 5") -> Trajectory:
    seen = Observation(
        round=0, node_id="env", texts={0: "wrong"}, rewards={}, is_team_reward=True, terminated=False, truncated=False
    )
    return Trajectory(
        task=Task(task_id="val:3", prompt=[{"role": "user", "content": "2 + 3?"}], ground_truth="5"),
        sample=0,
        step=0,
        turns=[_turn("node_0", 0, text), _turn("node_1", 1, "5")],
        observations=[seen],
        stop_reason=StopReason.TERMINATED,
        reward=1.0,
        num_rounds=2,
    )


def _evaluation(solved: list[float], step: int, without: str | None = None) -> Evaluation:
    return Evaluation(
        step=step,
        without=without,
        solved=tuple(solved),
        solved_first_round=tuple(solved),
        mean_reward=0.0,
        failed={},
        unknown={},
        trajectories=(),
    )


@dataclass
class _Report:
    num_steps: int = 20
    before: tuple[Evaluation, ...] = ()
    after: tuple[Evaluation, ...] = ()
    without: tuple[Evaluation, ...] = ()
    stopped_by: int | None = None
    spent: Budget | None = None
    checkpoint: Path | None = None


def test_a_step_is_one_line_with_the_means_over_agents() -> None:
    line = step_line(5, 20, METRICS, {"play": 3.0, "actor_train": 1.0}, 61.0)
    assert line == (
        "step 5/20 | reward 0.500 | kl 0.5000 | entropy 1.5000 | 1234 tok/s | 4.0 s (play 75%, actor_train 25%) "
        "| ETA 1m01s"
    )


def test_a_step_without_any_learning_is_shown_too() -> None:
    assert step_line(1, 2, {"trajectory/failed": 3.0}, {}, float("nan")) == (
        "step 1/2 | 0.0 s (no time) | ETA unknown | 3 failed"
    )


def test_small_shares_of_time_are_put_together() -> None:
    assert time_shares({"a": 1, "b": 5, "c": 2, "d": 1, "e": 1}) == "b 50%, c 20%, a 10%, d 10%, other 10%"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.4, "59s"), (59.6, "1m00s"), (3599.9, "1h00m"), (7380, "2h03m")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.text(st.characters(codec=None)))
def test_no_control_character_gets_through(text: str) -> None:
    shown = safe(text)
    assert all(c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") for c in shown)
    shown.encode()


def test_text_without_control_characters_is_left_alone() -> None:
    assert safe("naïve ∑ 数学\n\tx [b]") == "naïve ∑ 数学\n\tx [b]"


def test_a_conversation_names_speakers_answers_and_the_verdict() -> None:
    lines = conversation_lines(10, _trajectory(), {"node_0": "Reasoner"})
    assert lines == [
        "--- sample of step 10: task val:3 ---",
        "problem:",
        "    (user) 2 + 3?",
        "Reasoner, round 1:",
        "    the sum is 5",
        "env answers:",
        "    wrong",
        "node_1, round 2:",
        "    5",
        "--- reward 1, terminated after 2 rounds, ground truth 5 ---",
    ]


def test_long_messages_are_cut_and_say_so() -> None:
    assert any(line.endswith("... (5000 characters)") for line in conversation_lines(1, _trajectory("x" * 5000), {}))


def test_without_a_terminal_there_are_only_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    console = Console(stream)
    with console.making_model() as progress:
        for share in (0.0, 0.05, 0.5, 1.0):
            progress(share, HOSTILE)
    console.step(1, METRICS, {"play": 1.0})
    console.conversation(1, _trajectory(HOSTILE))
    console.note(HOSTILE)
    console.evaluation(_evaluation([1.0, 0.0], 1))
    console.close()
    text = stream.getvalue()
    assert not {"\x1b", "\r", "\x07", "\x9b"} & set(text)
    assert text.count("making the model") == 3
    assert "[bold]x[/bold] [/] \\x1b[2J" in text
    assert ":smile:" in text


def test_on_a_terminal_the_models_control_codes_are_shown_and_not_obeyed() -> None:
    stream = _Terminal()
    console = Console(stream)
    with console.making_model() as progress:
        progress(0.5, HOSTILE)
    for done in (1, 2):
        console.step(done, METRICS, {"[/]node": 1.0})
        console.conversation(done, _trajectory(HOSTILE))
    console.report(_Report(), Path("runs/x"))
    text = stream.getvalue()
    assert "\x1b[2J" not in text
    assert "\x1b]0;" not in text
    assert "[bold]x[/bold] [/] \\x1b[2J" in text
    assert text.rstrip().endswith("tensorboard --logdir runs/x/tensorboard")


def test_a_stream_that_knows_only_ascii_gets_escapes() -> None:
    raw = io.BytesIO()
    console = Console(io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    console.note("∑")
    assert raw.getvalue() == b"\\u2211\n"


def test_the_report_gives_before_after_gain_and_what_each_agent_brings(tmp_path: Path) -> None:
    (tmp_path / "agent_actor").mkdir()
    before = _evaluation([0.0] * 80 + [1.0] * 20, 0)
    after = _evaluation([0.0] * 20 + [1.0] * 80, 20)
    without = _evaluation([0.0] * 100, 20, "reasoner")
    report = _Report(before=(before,), after=(after,), without=(without,), checkpoint=tmp_path)
    text = "\n".join(report_lines(report, Path("runs/x"), 20, 65.0))
    assert "Done: 20 of 20 steps in 1m05s." in text
    assert "before                   0.200 [0.133, 0.289]  100 problems, after step 0" in text
    assert "gain                     +0.600 [+0.4" in text
    assert "improved" in text
    assert "without reasoner         0.000 [0.000, 0.037]" in text
    assert "so it brings           +0.800" in text
    assert f"AutoModelForCausalLM.from_pretrained('{tmp_path}/agent_actor')" in text


def test_the_report_of_a_run_that_was_stopped_says_so() -> None:
    lines = report_lines(_Report(num_steps=3, stopped_by=2), Path("runs/x"), 20, 5.0)
    assert lines[0] == "Stopped by signal 2: 3 of 20 steps in 5s."
    assert "Held-out accuracy was not measured." in lines
