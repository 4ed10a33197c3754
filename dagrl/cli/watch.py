"""`dagrl watch`: follows a run live."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagrl.report.reader import DEFAULT_ROOT, LATEST, open_run
from dagrl.report.screen import Screen

ENDED_BADLY = ("failed", "dead")


def watch(
    run: Annotated[str, typer.Argument(help="A run folder, a dag_id, a time, or latest.")] = LATEST,
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")] = 1.0,
    root: Annotated[Path, typer.Option(help="The folder of runs, where RUN is no path.")] = DEFAULT_ROOT,
) -> None:
    """Follow a run live; ends when the run ends, with 1 where it failed or died."""
    from dagrl.report.watch import follow

    status = follow(open_run(run, root), Screen(), interval_s=interval)
    raise typer.Exit(1 if status.state in ENDED_BADLY else 0)
