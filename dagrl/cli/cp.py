"""`dagrl cp`: copies a shipped workflow to make it one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _complete_names() -> list[str]:
    from dagrl.scaffold.files import shipped_workflows

    return list(shipped_workflows())


def cp(
    name: Annotated[str, typer.Argument(help="Of `dagrl ls workflows`.", autocompletion=_complete_names)],
    to: Annotated[
        Path, typer.Argument(help="The new file, or a folder; here under its own name if not given.")
    ] = Path(),
) -> None:
    """Copy a shipped workflow with its hooks, environments, recipes and data, so that it runs from there."""
    from dagrl.scaffold.copying import copy_workflow

    copied = copy_workflow(name, to)
    for file in copied.files:
        print(f"wrote {file}")
    if not copied.files:
        print(f"nothing to do: {copied.workflow} and what it needs are there already, unchanged")
    for data in copied.absent:
        print(f"data that does not ship: {data} (the head of {copied.workflow} says how to make it)")
    print(f"next:  dagrl validate {copied.workflow}\n       dagrl run --workflow {copied.workflow}")
