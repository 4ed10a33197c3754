"""The tutorial is followed word for word: its files are written, its commands run, and they print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "tutorial" / "README.md").read_text(encoding="utf-8")
STEP = re.compile(
    r"^`(?P<name>[\w./-]+)`:\n\n```\w+\n(?P<text>.*?)^```$|^```console\n(?P<console>.*?)^```$", re.M | re.S
)
PROGRAMS = {
    "dagrl": [sys.executable, "-c", "import sys; from dagrl.cli import main; sys.exit(main())"],
    "python": [sys.executable],
    "sed": ["sed"],
}
REFUSED = 1
"""Commands of the tutorial that are meant to fail."""


def as_pattern(shown: str) -> str:
    """What a page shows as a regular expression: `…` stands for anything in a line, alone in a line for any lines."""
    lines = [
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in shown.splitlines()
    ]
    return "".join(lines)


def run(command: str, folder: Path) -> tuple[int, str]:
    program, *arguments = command.split()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DAGRL_CACHE": str(folder / "cache"), "COLUMNS": "120"}
    done = subprocess.run(
        [*PROGRAMS[program], *arguments],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
    )  # fmt: skip
    return done.returncode, "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    failed = 0
    for step in STEP.finditer(PAGE):
        if step["name"] is not None:
            (tmp_path / step["name"]).write_text(step["text"], encoding="utf-8")
            continue
        first, _, shown = step["console"].partition("\n")
        code, printed = run(first.removeprefix("$ "), tmp_path)
        assert re.fullmatch(as_pattern(shown), printed), f"{first}\nprinted\n{printed}\nbut the tutorial shows\n{shown}"
        failed += code != 0
    assert failed == REFUSED


def test_the_dots_stand_for_anything_but_nothing_else_does() -> None:
    assert re.fullmatch(as_pattern("a …\n…\nz\n"), "a 1\nb\nc\nz\n")
    assert not re.fullmatch(as_pattern("a …\nz\n"), "a 1\nb\nz\n")
