"""`dagrl ablate`: who needs whom in a run's team."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagrl.cli.eval import open_judged
from dagrl.report.reader import DEFAULT_ROOT

if TYPE_CHECKING:
    from dagrl.runtime.ablation import Row


def ablate(
    run: Annotated[str, typer.Argument(help="RUN, RUN@STEP or RUN@best.")],
    against: Annotated[list[int] | None, typer.Option(help="Agents as after this step, too; may be repeated.")] = None,
    single: Annotated[str | None, typer.Option(help="A run of one agent, to compare at equal tokens.")] = None,
    data: Annotated[list[str] | None, typer.Option(help="Rows to play; else the run's held-out ones.")] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Samples of each problem.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    allow_changes: Annotated[bool, typer.Option("--allow-changes", help="Judge although the code changed.")] = False,
    root: Annotated[Path, typer.Option(help="The folder of runs, where RUN is no path.")] = DEFAULT_ROOT,
) -> None:
    """Judge a run's team with one agent at a time as it began, as after another step, or silent."""
    from dagrl.runtime.ablation import ablate as judge_all
    from dagrl.runtime.chosen_checkpoint import choose
    from dagrl.runtime.console import Console
    from dagrl.runtime.judge import on_set, problems_for

    console = Console(sys.stderr)
    team, held_out = on_set(open_judged(run, root, allow_changes, console), None)
    others = [choose(team.run, str(step), {}) for step in against or ()]
    alone = None if single is None else on_set(open_judged(single, root, allow_changes, console), None)[0]
    tasks = problems_for(team, data or [], held_out, console)
    rows = judge_all(team, tasks, k=k, others=others, single=alone, console=console)
    if as_json:
        from dataclasses import asdict

        from dagrl.plain_json import finite

        print(json.dumps([finite(asdict(row)) for row in rows], indent=2))
    else:
        print("\n".join(_lines(rows, len(tasks), k)))


def _lines(rows: list[Row], num_problems: int, k: int) -> list[str]:
    from dagrl.runtime.judgement_text import table

    cells = [("team", "solved", "less the whole team", "tokens")]
    for row in rows:
        cells.append((row.name, str(row.solved), _difference(row), f"{row.tokens:.0f}"))
    return [f"{num_problems} problems, {k} sample(s) each; intervals at 95 %, differences paired by problem", "",
            *table(cells)]  # fmt: skip


def _difference(row: Row) -> str:
    if row.difference is None:
        return ""
    mean, low, high = row.difference
    verdict = "" if low <= 0 <= high else "  better" if mean > 0 else "  worse"
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]{verdict}"
