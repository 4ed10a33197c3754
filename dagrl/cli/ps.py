"""`dagrl ps`: running and finished runs."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dagrl.report.reader import DEFAULT_ROOT
from dagrl.report.run_list import list_lines, list_runs
from dagrl.report.screen import Screen


def ps(
    root: Annotated[Path, typer.Argument(help="The folder of runs.")] = DEFAULT_ROOT,
    running: Annotated[bool, typer.Option("--running", help="Only those that run now.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List runs: state, step, last sign of life; dead processes are recognised."""
    runs = [run for run in list_runs(root) if run.state == "running" or not running]
    if as_json:
        print(json.dumps([{**asdict(run), "path": str(run.path)} for run in runs], indent=2))
    elif runs:
        Screen().print(list_lines(runs))
    else:
        print(f"no {'running ' if running else ''}runs in {root}/", file=sys.stderr)
