"""Nothing that a model wrote reaches the terminal as anything but text."""

from __future__ import annotations

import io

import pytest

from dagrl.report.screen import Screen, printable, table
from dagrl.report.sparkline import resample, sparkline

HOSTILE = "\x1b[2J\x1b]0;owned\x07 [red]x[/red] \u202egnp.exe\r\x9b31m \u2028 \n==="


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_control_characters_become_escapes_and_a_line_stays_one_line() -> None:
    shown = printable(HOSTILE)
    assert not [character for character in shown if not character.isprintable()]
    assert "[red]x[/red]" in shown
    assert "\\x1b[2J" in shown
    assert "\\n===" in shown


def test_characters_that_the_terminal_lacks_are_escaped() -> None:
    assert printable("1 ± ▁", "ascii") == "1 \\xb1 \\u2581"


@pytest.mark.parametrize("stream", [io.StringIO(), _Terminal()])
def test_a_hostile_line_is_text_on_a_terminal_and_off_it(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    Screen(stream).print([(HOSTILE, "red")])
    own = stream.getvalue().replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert "\x1b" not in own and "\x07" not in own and "\r" not in own and "\u202e" not in own
    assert "[red]x[/red]" in own
    assert own.count("\n") == 1


def test_columns_of_a_table_stand_below_each_other() -> None:
    lines = [text for text, _ in table(("a", "n"), [["long\x1b", "7"], ["b", "123"]], right=("n",))]
    assert lines == ["a           n", "long\\x1b    7", "b         123"]


def test_a_curve_is_drawn_between_its_bounds() -> None:
    assert sparkline([0, 1, None, 2, 99, -5], 0, 2) == "▁▅ ██▁"
    assert sparkline([3, 3], 3, 3) == "▄▄"


def test_points_are_averaged_in_equal_parts() -> None:
    points = {step: float(step) for step in range(1, 101)}
    assert resample(points, 1, 100, 4) == [13.0, 38.0, 63.0, 88.0]
    assert resample({5: 1.0, 200: 2.0}, 1, 10, 5) == [None, None, 1.0, None, None]
    assert resample({3: 1.0}, 3, 3, 2) == [1.0, None]
