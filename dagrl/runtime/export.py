"""Taking agents home: a Hugging Face folder with a model card for each trained agent of a checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagrl.backends.adapters import WEIGHTS_FILE
from dagrl.backends.hub import push
from dagrl.backends.merging import save_merged
from dagrl.backends.recipes import Progress
from dagrl.errors import DagrlError
from dagrl.runtime import checkpoint
from dagrl.runtime.chosen_checkpoint import Chosen
from dagrl.runtime.judge import FOLDER, recorded_workflow
from dagrl.runtime.model_card import CardFacts, auto_class, model_card
from dagrl.runtime.storage import TEMP_PREFIX, make_folder, storage, write_text
from dagrl.workflow.graph import Workflow
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.nearest import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What is to be taken home, and how."""

    run: Path
    name: str
    """Of the run, as it is shown."""
    checkpoint: Chosen
    metrics: Sequence[dict[str, Any]]
    """The rows of the run's metrics, for the card."""
    out: Path
    agent: str | None = None
    """Only this one, whose folder is then `out` itself; None puts every trained agent into a folder of its name."""
    merges_lora: bool = False


def export_agents(export: Export, progress: Progress) -> dict[str, Path]:
    """Writes the folders, each whole or absent, and gives them by agent. Raises DagrlError where there is nothing to
    export or `out` is in use."""
    workflow = recorded_workflow(export.run, load_plugins=False)
    groups = _chosen_groups(workflow, export.agent)
    sources = {group.name: export.checkpoint.path / f"agent_{group.name}" for group in groups}
    if export.merges_lora and not any((source / WEIGHTS_FILE).exists() for source in sources.values()):
        raise DagrlError("no agent to export has a LoRA adapter", where=export.name, how="leave --merge-lora out")
    _check_free(export.out)
    folders = {name: export.out if export.agent is not None else export.out / name for name in sources}
    for group in groups:
        _export_one(export, workflow, group, sources[group.name], folders[group.name], progress)
    return folders


def push_agents(folders: dict[str, Path], name: str) -> dict[str, str]:
    """Sends them to the hub: one agent to `name`, several to `name-<agent>`. Gives the addresses by agent."""
    names = {agent: name if len(folders) == 1 else f"{name}-{agent}" for agent in folders}
    return {agent: push(folder, names[agent]) for agent, folder in folders.items()}


def _chosen_groups(workflow: Workflow, agent: str | None) -> list[AgentGroup]:
    trained = [group for group in workflow.groups if group.is_trained]
    if agent is None:
        return trained
    names = [group.name for group in workflow.groups]
    if agent not in names:
        how = did_you_mean(agent, names) or f"there are {', '.join(names)}"
        raise DagrlError(f"there is no agent '{agent}'", where="--agent", how=how)
    found = [group for group in trained if group.name == agent]
    if not found:
        raise DagrlError(f"agent '{agent}' was not trained: it is its base model", where="--agent")
    return found


def _check_free(out: Path) -> None:
    with storage(out):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise DagrlError("is not an empty folder", where=str(out), how="give -o a new one")


def _export_one(
    export: Export, workflow: Workflow, group: AgentGroup, source: Path, folder: Path, progress: Progress
) -> None:
    make_folder(folder.parent)
    temp = folder.with_name(f"{TEMP_PREFIX}{folder.name}-{os.getpid()}")
    is_adapter = (source / WEIGHTS_FILE).exists()
    try:
        with storage(folder):
            if is_adapter and export.merges_lora:
                temp.mkdir()
                save_merged(group.model, source, temp, base=workflow.path.parent, progress=progress)
            else:
                shutil.copytree(source, temp)
        is_peft = is_adapter and not export.merges_lora
        write_text(temp / "README.md", model_card(_facts(export, workflow, group, auto_class(temp), is_peft=is_peft)))
        with storage(folder):
            os.replace(temp, folder)
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _facts(export: Export, workflow: Workflow, group: AgentGroup, loader: str, *, is_peft: bool) -> CardFacts:
    step = export.checkpoint.step
    return CardFacts(
        workflow=workflow,
        group=group,
        run=export.name,
        step=step,
        auto_class=loader,
        is_peft=is_peft,
        num_problems=_num_held_out(checkpoint.load_state(export.checkpoint.path)),
        metrics=[row for row in export.metrics if int(row["step"]) <= step],
        judged=[one for one in _judged(export.run) if one["step"] == step and one["without"] is None],
    )


def _num_held_out(state: dict[str, Any]) -> int | None:
    """How many problems the run's own evaluations had, as the checkpoint knows; None where there was none before it."""
    for evaluations in (state["latest"], state["before"]):
        if evaluations:
            return len(evaluations[0]["solved"])
    return None


def _judged(run: Path) -> list[dict[str, Any]]:
    """What `dagrl eval` kept of this run, oldest first."""
    found = []
    for file in sorted((run / FOLDER).glob("*.json")):
        with storage(file):
            found.append(json.loads(file.read_text(encoding="utf-8")))
    return found
