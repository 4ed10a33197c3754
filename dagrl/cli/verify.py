"""`dagrl verify`: is a run folder whole, and do its numbers come out again?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagrl.errors import StorageError
from dagrl.report.reader import DEFAULT_ROOT, open_run


def verify(
    run: Annotated[str, typer.Argument(help="A run folder, a dag_id, the beginning of a time, or latest.")],
    deep: Annotated[bool, typer.Option("--deep", help="Compute the numbers of every step again.")] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps to compute again; 5 if not given.")] = None,
    root: Annotated[Path, typer.Option(help="The folder of runs, where RUN is no path.")] = DEFAULT_ROOT,
) -> None:
    """Check every file of a run and compute its numbers again; 0 whole, 5 with a line for every damaged part."""
    from dagrl.runtime.verify import FEW, verify

    path = open_run(run, root).path
    verdict = verify(path, None if deep else FEW if steps is None else steps)
    for line in verdict.damaged:
        print(f"damaged: {line}")
    for line in verdict.notes:
        print(f"note: {line}")
    print(
        f"{path}: {verdict.num_files} files and {verdict.num_checkpoints} checkpoints by their hashes, "
        f"{verdict.num_numbers:,} numbers of {len(verdict.steps)} steps computed again"
    )
    if verdict.damaged:
        raise typer.Exit(StorageError.exit_code)
    print("whole")
