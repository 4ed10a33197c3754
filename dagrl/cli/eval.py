"""`dagrl eval`: judges the team of a run, or two of them against each other."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagrl.errors import DagrlError
from dagrl.report.reader import DEFAULT_ROOT, RunReader, open_run

if TYPE_CHECKING:
    from dagrl.runtime.console import Console
    from dagrl.runtime.judge import Team, Verdict
    from dagrl.types import Task
    from dagrl.workflow.held_out import HeldOutSet
    from dagrl.workflow.sections import ServerSpec


def evaluate(
    runs: Annotated[list[str], typer.Argument(help="RUN, RUN@STEP or RUN@best; two are compared.")],
    data: Annotated[list[str] | None, typer.Option(help="Rows to play; else the run's held-out ones.")] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Samples of each problem.")] = 1,
    of: Annotated[str | None, typer.Option("--set", help="A set of trainer.eval; else the one that counts.")] = None,
    without: Annotated[str | None, typer.Option(help="A rollout node whose text is left out.")] = None,
    agent: Annotated[
        list[str] | None, typer.Option(help="AGENT=URL[#MODEL]: a server of OpenAI's kind speaks for an agent.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, problem by problem.")] = False,
    allow_changes: Annotated[bool, typer.Option("--allow-changes", help="Judge although the code changed.")] = False,
    root: Annotated[Path, typer.Option(help="The folder of runs, where RUN is no path.")] = DEFAULT_ROOT,
) -> None:
    """Judge a run's team on problems: avg@k, pass@k, maj@k with intervals, by source, agent and round."""
    if len(runs) > 2:
        raise DagrlError(f"{len(runs)} runs are given", how="give one, or two to be compared problem by problem")
    servers = dict(_server(word) for word in agent or ())
    from dagrl.runtime.console import Console
    from dagrl.runtime.judge import on_set, with_servers

    console = Console(sys.stderr)
    teams = [with_servers(open_judged(run, root, allow_changes, console), servers) for run in runs]
    verdicts = _judge([on_set(team, of) for team in teams], data or [], k, without, console)
    _show(verdicts, data or [], as_json)


def _server(word: str) -> tuple[str, ServerSpec]:
    """`AGENT=URL[#MODEL]`."""
    from dagrl.workflow.sections import ServerSpec
    from dagrl.workflow.servers import fault_of

    name, equals, address = word.partition("=")
    url, _, model = address.partition("#")
    fault = fault_of(url) if equals and name else "is missing"
    if fault is not None:
        raise DagrlError(f"--agent {name}: the address {fault}", how="--agent AGENT=http://host:port/v1#MODEL")
    return name, ServerSpec(url=url, model=model or None)


def open_judged(reference: str, root: Path, allow_changes: bool, console: Console) -> Team:
    from dagrl.runtime.chosen_checkpoint import choose, split_reference
    from dagrl.runtime.judge import open_team

    name, place = split_reference(reference)
    reader = open_run(name, root)
    checkpoint = choose(reader.path, place, accuracies(reader))
    for line in checkpoint.skipped:
        console.note(f"warning: {line}")
    return open_team(reader.path.resolve(), reader.name, checkpoint, allow_changes=allow_changes)


def accuracies(reader: RunReader) -> dict[int, float]:
    """A run's held-out accuracies by step."""
    rows = reader.evaluations()
    return {int(row["step"]): float(row["val/accuracy"]) for row in rows if row.get("val/accuracy") is not None}


def _judge(
    teams: list[tuple[Team, HeldOutSet | None]], files: list[str], k: int, without: str | None, console: Console
) -> list[Verdict]:
    from dagrl.runtime.judge import judge, problems_for

    given = [(team, problems_for(team, files, held_out, console)) for team, held_out in teams]
    if any(_keys(own) != _keys(given[0][1]) for _, own in given):
        raise DagrlError("the two runs do not have the same held-out problems", how="give them with --data FILE")
    return [judge(team, own, k=k, without=without, console=console) for team, own in given]


def _keys(tasks: list[Task]) -> list[tuple[object, ...]]:
    """What makes problems the same; ids alone count rows and are alike in any two files."""
    return [(task.task_id, task.prompt, task.ground_truth) for task in tasks]


def _show(verdicts: list[Verdict], data: list[str], as_json: bool) -> None:
    from dagrl.runtime.judge import as_json as json_of
    from dagrl.runtime.judge import keep
    from dagrl.runtime.judgement import compare
    from dagrl.runtime.judgement_text import difference_lines, verdict_lines

    files = [keep(verdict, data) for verdict in verdicts]
    differences = compare(verdicts[0].judgement, verdicts[1].judgement) if len(verdicts) == 2 else ()
    if as_json:
        from dataclasses import asdict

        from dagrl.plain_json import finite

        told = {"teams": [json_of(verdict, data) for verdict in verdicts]}
        print(json.dumps({**told, "differences": [finite(asdict(one)) for one in differences]}, indent=2))
        return
    for verdict, file in zip(verdicts, files, strict=True):
        print("\n".join(verdict_lines(verdict)))
        print(f"\nkept in {file}\n")
    if differences:
        print("\n".join(difference_lines(verdicts[0], verdicts[1], differences)))
