"""`dagrl export`: takes the agents of a run home."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dagrl.cli.eval import accuracies
from dagrl.report.reader import DEFAULT_ROOT, open_run


def export(
    run: Annotated[str, typer.Argument(help="RUN, RUN@STEP or RUN@best; the newest checkpoint if no step is given.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new or empty folder.")],
    agent: Annotated[str | None, typer.Option(help="Only this agent, straight into the folder.")] = None,
    merge_lora: Annotated[bool, typer.Option("--merge-lora", help="Fold LoRA adapters into their base.")] = False,
    push: Annotated[str | None, typer.Option(help="Also send it to this repository of the Hugging Face hub.")] = None,
    root: Annotated[Path, typer.Option(help="The folder of runs, where RUN is no path.")] = DEFAULT_ROOT,
) -> None:
    """Write a Hugging Face folder with a model card for each trained agent of a run."""
    from dagrl.runtime.chosen_checkpoint import choose, split_reference
    from dagrl.runtime.console import Console
    from dagrl.runtime.export import Export, export_agents, push_agents

    name, place = split_reference(run)
    reader = open_run(name, root)
    checkpoint = choose(reader.path, place, accuracies(reader))
    console = Console(sys.stderr)
    for line in checkpoint.skipped:
        console.note(f"warning: {line}")
    plan = Export(
        run=reader.path.resolve(),
        name=reader.name,
        checkpoint=checkpoint,
        metrics=reader.metrics(),
        out=out,
        agent=agent,
        merges_lora=merge_lora,
    )
    with console.making_model() as progress:
        folders = export_agents(plan, progress)
    for agent_name, folder in folders.items():
        print(f"{agent_name} after step {checkpoint.step}: {folder}")
    if push is not None:
        for agent_name, address in push_agents(folders, push).items():
            print(f"{agent_name}: {address}")
