"""`dagrl graph`: draws a workflow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dagrl.cli.completion import override_paths
from dagrl.errors import DagrlError, StorageError
from dagrl.workflow.draw import FORMATS, draw
from dagrl.workflow.graph import load_workflow
from dagrl.workflow.nearest import did_you_mean

_FORMAT_OF_SUFFIX = {".svg": "svg", ".html": "html", ".htm": "html", ".mmd": "mermaid", ".md": "mermaid"}


def graph(
    file: Annotated[Path, typer.Argument(help="The workflow's YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="key=value …, by dotted path and node id.", autocompletion=override_paths),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", "-f", help=f"{', '.join(FORMATS)}; by default what --output's name says.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of the terminal.")] = None,
) -> None:
    """Draw a workflow: text, Mermaid, SVG or HTML."""
    suffix = "" if output is None else output.suffix.lower()
    chosen = _FORMAT_OF_SUFFIX.get(suffix, "ascii") if form is None else form
    if chosen not in FORMATS:
        raise DagrlError(f"unknown format '{chosen}'", how=did_you_mean(chosen, FORMATS))
    drawing = draw(load_workflow(file, overrides or []), chosen)
    if output is None:
        print(drawing)
        return
    try:
        output.write_text(drawing + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {output}: {error.strerror}") from error
    print(f"wrote {output}", file=sys.stderr)
