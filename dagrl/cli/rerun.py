"""`dagrl rerun`: makes a run again from its folder, and says whether it came out the same, byte for byte."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

EXIT_DIFFERENT = 1


def rerun(
    run: Annotated[str, typer.Argument(help="A run folder, or the manifest.json in it.")],
    run_dir: Annotated[Path | None, typer.Option(help="A new folder instead of runs/…/<time>.")] = None,
) -> None:
    """Repeat a run from its kept workflow and code; 0 if all came out byte for byte, 1 with the first difference."""
    from dagrl.cli.run import begin
    from dagrl.runtime import manifest, rerun, run_difference
    from dagrl.runtime.run_folder import create_run_folder
    from dagrl.runtime.signals import stop_signals
    from dagrl.workflow.graph import load_workflow

    before = rerun.run_of(run)
    for line in rerun.other_surroundings(before):
        print(f"warning: {line}; numbers may come out otherwise", file=sys.stderr)
    with TemporaryDirectory() as trial:  # a run that is refused leaves no folder behind
        rerun.check_inputs(before, load_workflow(rerun.lay_out(before, Path(trial))))
    folder = create_run_folder(Path("runs"), manifest.read(before)["dag_id"], run_dir=run_dir)
    with stop_signals() as stop:
        ended = begin(load_workflow(rerun.lay_out(before, folder.path), load_plugins=True), [], folder, stop)
    if ended > EXIT_DIFFERENT:
        raise typer.Exit(ended)
    lines = run_difference.differences(before, folder.path)
    for line in lines:
        print(f"different: {line}")
    rows, trajectories, weights = run_difference.num_compared(before, folder.path)
    print(
        f"{before} and {folder.path}: {rows} rows of metrics, {trajectories} files of trajectories, "
        f"{weights} of weights, {'not all the same' if lines else 'all byte for byte the same'}"
    )
    raise typer.Exit(EXIT_DIFFERENT if lines else 0)
