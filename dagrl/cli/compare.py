"""`dagrl compare`: runs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dagrl.errors import DagrlError
from dagrl.report.comparison import compare_metrics, group_runs
from dagrl.report.comparison_text import comparison_json, comparison_lines
from dagrl.report.reader import DEFAULT_ROOT, RunReader, find_runs, is_run, open_run
from dagrl.report.screen import Screen


def compare(
    runs: Annotated[list[str], typer.Argument(help="Run folders, times, or folders of runs (all in them).")],
    metric: Annotated[list[str] | None, typer.Option(help="Metrics to compare; * stands for anything.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with every point of the curves.")] = False,
    root: Annotated[Path, typer.Option(help="The folder of runs, where RUN is no path.")] = DEFAULT_ROOT,
) -> None:
    """Compare runs: curves, settings, code; runs that differ in the seed alone are one group."""
    readers = [reader for run in runs for reader in _readers(run, root)]
    if len(readers) < 2:
        raise DagrlError("one run is nothing to compare", how="give two or more; `dagrl ps` lists them")
    groups = group_runs(readers)
    metrics = compare_metrics(groups, metric or [])
    if as_json:
        print(json.dumps(comparison_json(groups, metrics), indent=2))
    else:
        Screen().print(comparison_lines(groups, metrics))


def _readers(run: str, root: Path) -> list[RunReader]:
    folder = Path(run).expanduser()
    if folder.is_dir() and not is_run(folder) and (inside := find_runs(folder)):
        return [RunReader(path) for path in inside]
    return [open_run(run, root)]
