"""Nodes as the loader would resolve them, for tests of single nodes."""

from __future__ import annotations

from typing import Any

from dagrl.types import SamplingParams
from dagrl.workflow.algorithm_section import AlgorithmSpec
from dagrl.workflow.kinds import Node, NodeKind
from dagrl.workflow.sections import ActorSpec, CriticSpec
from dagrl.workflow.spec import AgentOptions


def node(kind: NodeKind, *, groups: tuple[int, ...] = (0,), **changes: Any) -> Node:
    fields: dict[str, Any] = {
        "node_id": str(kind).lower(),
        "kind": kind,
        "agent_group": groups[0],
        "groups": groups,
        "dependencies": (),
        "role_name": str(kind).lower(),
        "options": AgentOptions(),
        "algorithm": AlgorithmSpec(),
        "actor": ActorSpec(),
        "critic": CriticSpec(),
        "sampling": SamplingParams(),
        "val_sampling": SamplingParams(),
    }
    return Node(**(fields | changes))
