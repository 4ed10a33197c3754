"""`dagrl graph` as a user runs it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from dagrl.cli import exit_code
from tests.workflow_files import CHAIN, write


def test_text_goes_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["graph", str(write(tmp_path, CHAIN))]) == 0
    told = capsys.readouterr().out
    assert "play graph" in told
    assert "learn graph" in told
    assert "[critic_1 + critic_2]" in told


@pytest.mark.parametrize("name", ["a.svg", "a.html", "a.mmd", "a.txt"])
def test_the_name_of_the_file_says_the_format(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    assert exit_code(["graph", str(write(tmp_path, CHAIN)), "-o", str(out)]) == 0
    text = out.read_text()
    begin = {"a.svg": "<svg", "a.html": "<!doctype html>", "a.mmd": "flowchart", "a.txt": "team_ppo_pipeline"}[name]
    assert text.startswith(begin)
    if name == "a.svg":
        ElementTree.fromstring(text)


def test_an_unknown_format_names_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["graph", str(write(tmp_path, CHAIN)), "--format", "svgg"]) == 2
    assert "did you mean 'svg'" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["graph", str(write(tmp_path, CHAIN)), "-o", str(tmp_path / "no" / "a.svg")]) == 5
    assert "cannot write" in capsys.readouterr().err
