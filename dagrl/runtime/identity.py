"""Whose checkpoint it is: it is given only to the agents, models and tokenizers that it was made with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagrl.backends.pool import ModelPool
from dagrl.errors import StorageError
from dagrl.runtime import checkpoint
from dagrl.workflow.graph import Workflow

Identities = dict[str, Mapping[str, Any]]
"""`workflow`, `agent <name>`, `critic of <name>` to their fields."""


def identities(workflow: Workflow, pool: ModelPool) -> Identities:
    """All of a run."""
    names = [group.name for group in workflow.groups]
    critics = pool.critics()
    team = {
        "dag_id": workflow.spec.dag_id,
        "agents": names,
        "trained agents": [group.name for group in workflow.groups if group.is_trained],
        "critics": [names[owner] for owner in sorted(critics)],
    }
    found: Identities = {"workflow": team, **agents(workflow, pool)}
    return found | {f"critic of {names[owner]}": pool.critic_identity(owner) for owner in sorted(critics)}


def agents(workflow: Workflow, pool: ModelPool) -> Identities:
    """The agents alone, without those that a server speaks for."""
    here = pool.policies()
    return {
        f"agent {group.name}": pool.policy_identity(group.index) for group in workflow.groups if group.index in here
    }


def check(path: Path, now: Identities) -> None:
    """Raises StorageError, naming each field with both values, where the checkpoint at `path` is not of `now`."""
    saved = checkpoint.identity_of(path)
    differing = [
        f"{whose}: {field} was {before.get(field)!r}, is {present.get(field)!r}"
        for whose, present in now.items()
        for before in [saved.get(whose, {})]
        for field in sorted({*before, *present})
        if before.get(field) != present.get(field)
    ]
    if differing:
        raise StorageError(
            f"the checkpoint was made with something else: {'; '.join(differing)}",
            where=str(path),
            how="resume with what the run began with; a new run can start from an agent's folder by `model.path`",
        )
