"""`dagrl doctor`: what this machine is ready for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagrl import __version__


def doctor(runs: Annotated[Path, typer.Option(help="Where runs would be kept.")] = Path("runs")) -> None:
    """Say what this machine is ready for, and what is missing. Exit code 1 if the demo could not run."""
    from dagrl.runtime.doctor import diagnose

    diagnosis = diagnose(runs)
    print(f"dagrl {__version__}")
    for check in diagnosis.checks:
        print(f"{check.level}  {check.text}")
        if check.how is not None:
            print(f"    = {check.how}")
    if diagnosis.ready:
        print(f"Ready for: {', '.join(diagnosis.ready)}.")
    if diagnosis.not_ready:
        print(f"Not ready for: {', '.join(diagnosis.not_ready)}.")
    if not diagnosis.is_well:
        raise typer.Exit(1)
