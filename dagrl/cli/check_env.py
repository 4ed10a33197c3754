"""`dagrl check-env`: the contract suite of environments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dagrl.cli.arguments import COLUMN_HELP, ROW_HELP, key_values, task_of


def check_env(
    env: Annotated[str, typer.Argument(help="FILE:CLASS or package.module:Class.")],
    action: Annotated[
        list[str] | None, typer.Option(help="What one agent says each round; once for each agent.")
    ] = None,
    agents: Annotated[int, typer.Option(min=1, help="Agents that act, where no --action is given.")] = 1,
    row: Annotated[str | None, typer.Option(help=ROW_HELP)] = None,
    prompt: Annotated[str | None, typer.Option(help="The task's prompt.")] = None,
    ground_truth: Annotated[str | None, typer.Option(help="The task's right answer.")] = None,
    kwarg: Annotated[list[str] | None, typer.Option(help="key=value for the constructor.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="For everything together.")] = 60.0,
    column: Annotated[list[str] | None, typer.Option(help=COLUMN_HELP)] = None,
) -> None:
    """Check that a class keeps the contract of an environment. Exit code 1 if it does not."""
    from dagrl.environments.conformance import Trial
    from dagrl.runtime.env_trial import check_in_time, spoken_to

    task = task_of(row, prompt, ground_truth, column)
    trial = Trial(
        actions=tuple(action or [f"answer of agent {number}" for number in range(agents)]),
        ground_truth=task.ground_truth,
        prompt=spoken_to(task),
        extra_info=task.extra_info,
        kwargs=key_values(kwarg),
        rounds=rounds,
        timeout_s=timeout_s,
    )
    problems = check_in_time(env, Path(), trial)
    for problem in problems:
        print(f"{env}: {problem}", file=sys.stderr)
    if problems:
        raise typer.Exit(1)
    print(f"ok  {env} keeps the contract of an environment")
    plural = "s" * (len(trial.actions) != 1)
    print(
        f"    tried with {len(trial.actions)} agent{plural} for up to {rounds} rounds: what reset and step give has the"
    )
    print("    right shape, one seed gives one course, also in two processes, two objects share nothing, arguments are")
    print("    left as they are")
