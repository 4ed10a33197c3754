"""`dagrl replay`: a logged step's learning, or a failed trajectory, once more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dagrl.errors import DagrlError
from dagrl.report.reader import DEFAULT_ROOT, open_run


def replay(
    what: Annotated[str, typer.Argument(help="A run, or the file of a failed trajectory: RUN/failures/*.json.")],
    step: Annotated[int | None, typer.Option(min=1, help="The step of the run, as it is shown.")] = None,
    node: Annotated[str | None, typer.Option(help="This node alone, on what the log holds of those before it.")] = None,
    onwards: Annotated[str | None, typer.Option("--from", help="This node and those after it.")] = None,
    is_debugged: Annotated[bool, typer.Option("--pdb", help="Stop in each node and in your function in it.")] = False,
    root: Annotated[Path, typer.Option(help="The folder of runs, where RUN is no path.")] = DEFAULT_ROOT,
) -> None:
    """Run a step's nodes again on the saved trajectories, or play a failed trajectory again, beside what was logged."""
    if what.endswith(".json"):
        if step is not None or node is not None or onwards is not None:
            raise DagrlError("a failed trajectory is played as a whole", how="leave --step, --node and --from out")
        raise typer.Exit(_capsule(Path(what), is_debugged))
    if step is None:
        raise DagrlError("--step is not given", how="`dagrl show RUN` names the steps that were logged")
    if node is not None and onwards is not None:
        raise DagrlError("--node and --from exclude each other")
    raise typer.Exit(_step(what, root, step, node, onwards, is_debugged))


def _capsule(file: Path, is_debugged: bool) -> int:
    from dagrl.runtime.capsule import replay_capsule
    from dagrl.runtime.console import Console
    from dagrl.runtime.replay_text import capsule_lines

    encore = replay_capsule(file, is_debugged=is_debugged, console=Console(sys.stderr))
    print("\n".join(capsule_lines(encore)))
    return 0 if encore.is_mended else 1


def _step(what: str, root: Path, step: int, node: str | None, onwards: str | None, is_debugged: bool) -> int:
    from dagrl.runtime.console import Console
    from dagrl.runtime.replay import Part, replay_step
    from dagrl.runtime.replay_text import step_lines

    reader = open_run(what, root)
    file = reader.trajectory_file(step)
    part = Part(node=node, onwards=onwards)
    console = Console(sys.stderr)
    told = replay_step(reader.path.resolve(), file.path, step, part, is_debugged=is_debugged, console=console)
    print("\n".join(step_lines(told)))
    return 0 if told.agrees else 1
