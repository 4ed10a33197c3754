"""`dagrl data check`: what data files hold, and every row that cannot be used."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dagrl.cli.arguments import COLUMN_HELP, columns_of


class Work(StrEnum):
    CHECK = "check"


def data(
    work: Annotated[Work, typer.Argument(help="What to do.")],
    files: Annotated[list[str], typer.Argument(help="Parquet, jsonl or json files, folders, or Hugging Face names.")],
    column: Annotated[list[str] | None, typer.Option("--column", help=COLUMN_HELP)] = None,
) -> None:
    """Check data files: what is read as what, every bad row, repeated prompts, prompts in more than one file."""
    from dagrl.data.survey import survey
    from dagrl.plain_text import safe

    found = survey(files, base=Path(), columns=columns_of(column))
    for line in found.lines:
        print(safe(line))
    for warning in found.warnings:
        print(f"warning: {safe(warning)}", file=sys.stderr)
