"""`dagrl show`: conversations of one step in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagrl.report.reader import DEFAULT_ROOT, LATEST, RunReader, TrajectoryFile, open_run
from dagrl.report.screen import Screen


def show(
    run: Annotated[str, typer.Argument(help="A run folder, a dag_id, a time, or latest.")] = LATEST,
    step: Annotated[int | None, typer.Option(help="The last one that was logged, if not given.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent's turns.")] = None,
    worst: Annotated[int | None, typer.Option(help="The K conversations with the lowest reward.")] = None,
    best: Annotated[int | None, typer.Option(help="The K conversations with the highest reward.")] = None,
    task: Annotated[str | None, typer.Option(help="All samples of one task, such as train:17.")] = None,
    held_out: Annotated[bool, typer.Option("--eval", help="Of the evaluation instead of the training step.")] = False,
    prompts: Annotated[bool, typer.Option("--prompts", help="Also all that each agent read.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Long texts uncut.")] = False,
    root: Annotated[Path, typer.Option(help="The folder of runs, where RUN is no path.")] = DEFAULT_ROOT,
) -> None:
    """Show conversations with rewards and advantages by turn."""
    from dagrl.report.show import MAX_TEXT_CHARS, Choice, choose, conversation_lines, summary_line

    choice = Choice(agent=agent, worst=worst, best=best, task=task)
    reader = open_run(run, root)
    file = _file(reader, step, "eval" if held_out else "step")
    chosen = choose(file.path, choice)
    screen = Screen()
    where = f"{'held-out after step' if held_out else 'step'} {file.step}"
    screen.print([summary_line(reader.name, where, chosen, choice)])
    for conversation in chosen.conversations:
        lines = conversation_lines(
            conversation, agent=agent, with_prompts=prompts, max_chars=None if full else MAX_TEXT_CHARS
        )
        screen.print([("", ""), *lines])


def _file(reader: RunReader, step: int | None, kind: str) -> TrajectoryFile:
    steps = [file.step for file in reader.trajectory_files() if file.kind == kind and not file.without]
    return reader.trajectory_file(max(steps, default=0) if step is None else step, kind)
