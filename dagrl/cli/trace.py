"""`dagrl trace`: where the time of a run goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dagrl.report.reader import DEFAULT_ROOT, LATEST, open_run
from dagrl.report.screen import Screen, plain


def trace(
    run: Annotated[str, typer.Argument(help="A run folder, a dag_id, a time, or latest.")] = LATEST,
    step: Annotated[int | None, typer.Option(help="One step with its bars; all together, if not given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, in seconds.")] = False,
    root: Annotated[Path, typer.Option(help="The folder of runs, where RUN is no path.")] = DEFAULT_ROOT,
) -> None:
    """Show which node ran when, what a step waits for, and who is idle."""
    from dagrl.report.timeline import read_timeline
    from dagrl.report.timeline_text import as_json as told
    from dagrl.report.timeline_text import run_lines, step_lines

    reader = open_run(run, root)
    timeline = read_timeline(reader.path)
    num_cpus = int(reader.versions().get("num_cpus") or 1)
    chosen = list(timeline.steps.values()) if step is None else [timeline.step(step)]
    if as_json:
        print(json.dumps(told(timeline, chosen, num_cpus), indent=2))
        return
    screen = Screen()
    screen.print(run_lines(timeline, num_cpus) if step is None else step_lines(chosen[0], num_cpus))
    screen.print([("", ""), *plain(f"to see it all: open {timeline.path} in https://ui.perfetto.dev")])
