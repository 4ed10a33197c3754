"""A resolved workflow as the checks see it: nodes, groups, contracts, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagrl.errors import Finding
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.kinds import ASKS_FOR_PLAY, Column, Contract, Node, NodeKind
from dagrl.workflow.layers import NodeConfigSpec
from dagrl.workflow.outline import Outline
from dagrl.workflow.spec import WorkflowSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    outline: Outline
    base: Path
    """The folder of the workflow file."""
    spec: WorkflowSpec
    """With the defaults that depend on other keys filled in."""
    written: Sequence[Node]
    """As the file has them; nodes of one critic apart."""
    nodes: Sequence[Node]
    """In topological order; nodes of one critic merged."""
    groups: Sequence[AgentGroup]
    configs: Mapping[str, NodeConfigSpec]
    contracts: Mapping[str, Contract]
    ancestors: Mapping[str, frozenset[str]]

    def of_kind(self, *kinds: NodeKind) -> list[Node]:
        return [node for node in self.nodes if node.kind in kinds]

    def writers(self, column: Column, group: int) -> list[Node]:
        return [node for node in self.nodes if (column, group) in self.contracts[node.node_id].writes]

    @property
    def edges(self) -> Iterator[tuple[Node, Node]]:
        """Every dependency as (what is waited for, what waits)."""
        by_id = {node.node_id: node for node in self.nodes}
        for node in self.nodes:
            for name in node.dependencies:
                yield by_id[name], node

    @property
    def has_env(self) -> bool:
        return any(node.options.env_path for node in self.nodes)


def only_one(facts: Facts, kind: NodeKind, does: str, *, code: str, hint: str) -> list[Finding]:
    """A fault at the second node of `kind`; `does` says what one of them does already."""
    nodes = facts.of_kind(kind)
    if len(nodes) < 2:
        return []
    message = f"one {kind.name} node {does}, not {', '.join(node.node_id for node in nodes)}"
    return [facts.outline.fault(code, message, ("nodes", nodes[1].node_id), hint=hint)]


def carries_data(facts: Facts, before: Node, after: Node) -> bool:
    """Whether `after` uses what `before` makes, or must wait for it because it changes a model that `before` reads."""
    if before.kind.is_play or {before.kind, after.kind} & {NodeKind.COMPUTE, *ASKS_FOR_PLAY}:
        return True
    first, second = facts.contracts[before.node_id], facts.contracts[after.node_id]
    return bool(first.writes & second.reads) or second.trains_model in first.reads_model
