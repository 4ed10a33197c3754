"""`dagrl show`: conversations of one step in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagrl.errors import DagrlError
from dagrl.report.conversation_files import EVALUATION, STEP, TrajectoryFile
from dagrl.report.reader import DEFAULT_ROOT, LATEST, RunReader, open_run
from dagrl.report.screen import Screen


def show(
    run: Annotated[str, typer.Argument(help="A run folder, a dag_id, a time, or latest.")] = LATEST,
    step: Annotated[int | None, typer.Option(help="The last one that was logged, if not given.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent's turns.")] = None,
    worst: Annotated[int | None, typer.Option(help="The K conversations with the lowest reward.")] = None,
    best: Annotated[int | None, typer.Option(help="The K conversations with the highest reward.")] = None,
    task: Annotated[str | None, typer.Option(help="All samples of one task, such as train:17.")] = None,
    held_out: Annotated[bool, typer.Option("--eval", help="Of the evaluation instead of the training step.")] = False,
    of: Annotated[str | None, typer.Option("--set", help="Of the evaluation on this held-out set.")] = None,
    without: Annotated[str | None, typer.Option(help="Of the evaluation that left out this node's text.")] = None,
    judged: Annotated[
        str | None, typer.Option(help="Of what `dagrl eval` kept: its time, the beginning of it, or latest.")
    ] = None,
    prompts: Annotated[bool, typer.Option("--prompts", help="Also all that each agent read.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Long texts uncut.")] = False,
    root: Annotated[Path, typer.Option(help="The folder of runs, where RUN is no path.")] = DEFAULT_ROOT,
) -> None:
    """Show conversations with rewards and advantages by turn."""
    from dagrl.report.show import MAX_TEXT_CHARS, Choice, choose, conversation_lines, summary_line

    choice = Choice(agent=agent, worst=worst, best=best, task=task)
    reader = open_run(run, root)
    file = _file(reader, step, held_out, (of, without), judged)
    chosen = choose(file.path, choice)
    screen = Screen()
    screen.print([summary_line(reader.name, str(file), chosen, choice)])
    for conversation in chosen.conversations:
        lines = conversation_lines(
            conversation, agent=agent, with_prompts=prompts, max_chars=None if full else MAX_TEXT_CHARS
        )
        screen.print([("", ""), *lines])


def _file(
    reader: RunReader, step: int | None, held_out: bool, which: tuple[str | None, str | None], judged: str | None
) -> TrajectoryFile:
    """`which`: held-out set, and the node that was left out."""
    is_evaluation = held_out or any(name is not None for name in which)
    if judged is None:
        of, without = (name or "" for name in which)
        return reader.trajectory_file(step, EVALUATION if is_evaluation else STEP, without, held_out=of)
    if is_evaluation or step is not None:
        raise DagrlError("--judged names one evaluation by itself", how="leave --step, --eval, --set and --without out")
    return reader.judged_file(judged)
