"""`dagrl plan`: what a run will take, before it starts; of a run, beside what it took."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dagrl.cli.completion import override_paths
from dagrl.report.reader import is_run


def plan(
    target: Annotated[Path, typer.Argument(metavar="FILE|RUN", help="The workflow's YAML file, or a run folder.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="key=value …, by dotted path and node id.", autocompletion=override_paths),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON on the standard output.")] = False,
) -> None:
    """Say what a run will take; no model is loaded."""
    from dagrl.runtime.forecast.measured import measure
    from dagrl.runtime.forecast.text import lines
    from dagrl.runtime.forecast.verdicts import verdicts
    from dagrl.runtime.forecast.whole import forecast
    from dagrl.runtime.run_folder import read_source
    from dagrl.workflow.graph import load_workflow

    given, file = list(overrides or ()), target
    run = target if is_run(target) else None
    if run is not None:
        file, before = read_source(run)
        given = [*before, *given]
    workflow = load_workflow(file, given, load_plugins=True)
    found = forecast(workflow)
    measured = None if run is None else measure(run)
    warnings = verdicts(found, Path(workflow.spec.config.trainer.runs_dir))
    if as_json:
        content = {"plan": asdict(found), "measured": None if measured is None else asdict(measured)}
        print(json.dumps(content | {"warnings": warnings}, indent=2))
        return
    print("\n".join(lines(found, measured, warnings)))
