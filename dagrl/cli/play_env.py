"""`dagrl play-env`: be the agent yourself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagrl.cli.arguments import COLUMN_HELP, ROW_HELP, key_values, task_of


def play_env(
    env: Annotated[str, typer.Argument(help="FILE:CLASS or package.module:Class.")],
    agents: Annotated[int, typer.Option(min=1, help="Agents that act; you are all of them.")] = 1,
    row: Annotated[str | None, typer.Option(help=ROW_HELP)] = None,
    prompt: Annotated[str | None, typer.Option(help="The task's prompt.")] = None,
    ground_truth: Annotated[str | None, typer.Option(help="The task's right answer.")] = None,
    kwarg: Annotated[list[str] | None, typer.Option(help="key=value for the constructor.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds at most.")] = 100,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="For each call of the environment.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Given to reset, if it takes one.")] = 0,
    column: Annotated[list[str] | None, typer.Option(help=COLUMN_HELP)] = None,
) -> None:
    """Be the agent yourself: type what it says, read what the environment answers, until it is done or Ctrl-D."""
    from dagrl.runtime.env_trial import Seat, play

    seat = Seat(agents=agents, rounds=rounds, seed=seed, timeout_s=timeout_s, kwargs=key_values(kwarg))
    play(env, Path(), task_of(row, prompt, ground_truth, column), seat, ask=input, tell=print)
