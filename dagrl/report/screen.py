"""The terminal of the commands that look at runs: one place where every text is made harmless before it is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console as RichConsole
from rich.text import Text

from dagrl.plain_text import safe

Line = tuple[str, str]
"""A text without line breaks, and a rich style; the style is left out where there is no terminal."""

HEAD, DIM, GOOD, BAD = "bold", "dim", "green", "red"


class Screen:
    """Prints lines on `stream`. Control characters and markup in them are shown, not obeyed."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.rich = RichConsole(file=self.stream, markup=False, highlight=False, emoji=False)

    @property
    def is_terminal(self) -> bool:
        return self.rich.is_terminal and not self.rich.is_dumb_terminal

    def print(self, lines: Iterable[Line]) -> None:
        for text, style in lines:
            shown = printable(text, self.stream.encoding or "utf-8")
            if self.is_terminal:
                self.rich.print(Text(shown, style), soft_wrap=True)
            else:
                print(shown, file=self.stream)
        self.stream.flush()


def printable(text: str, encoding: str = "utf-8") -> str:
    """One line of `text` that a terminal of this encoding can show and will not obey."""
    return safe(text).replace("\n", "\\n").encode(encoding, errors="backslashreplace").decode(encoding)


def plain(*texts: str) -> list[Line]:
    return [(text, "") for text in texts]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> list[Line]:
    """Columns as wide as their widest cell; those named in `right` are flush right."""
    cells = [[printable(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = []
    for row in cells:
        parts = [cell.rjust(width) if name in right else cell.ljust(width)
                 for name, cell, width in zip(head, row, widths, strict=True)]  # fmt: skip
        lines.append("  ".join(parts).rstrip())
    return [(line, HEAD if number == 0 else "") for number, line in enumerate(lines)]
