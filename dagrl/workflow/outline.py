"""What a workflow says before anything is resolved, with the places of everything; what the first checks look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dagrl.errors import Finding
from dagrl.workflow.kinds import DEFAULT_ROLES, NodeKind, kind_of
from dagrl.workflow.schema import field_name
from dagrl.workflow.spec import NodeRole, NodeSpec, WorkflowSpec
from dagrl.workflow.tree import Item, Path, finding, nearest_item


@dataclass(frozen=True, slots=True)
class Outline:
    """The file's spec and its tree."""

    tree: Item
    spec: WorkflowSpec
    left_out: frozenset[str] = frozenset()
    """Ids of nodes with faults that keep them out of `spec`."""

    def fault(self, code: str, message: str, path: Path, *, hint: str | None = None, on_key: bool = False) -> Finding:
        """A finding at a path of the file (at the nearest place that exists); `on_key` points at the key."""
        item, known = nearest_item(self.tree, path)
        mark = item.key if item.key is not None and (on_key or known < len(path)) else item.mark
        return finding(code, message, mark, field_name(self.tree, path), hint)

    def line_of(self, node_id: str) -> int | None:
        """The line where a node begins."""
        item, known = nearest_item(self.tree, ("nodes", node_id))
        return item.mark.line if known == 2 else None

    def by_id(self) -> Mapping[str, NodeSpec]:
        """The nodes of the file; the first of each id."""
        found: dict[str, NodeSpec] = {}
        for node in self.spec.nodes:
            found.setdefault(node.node_id, node)
        return found


def role_of(node: NodeSpec) -> NodeRole:
    return DEFAULT_ROLES[node.node_type] if node.node_role is None else node.node_role


def kind(node: NodeSpec) -> NodeKind | None:
    """The kind of a node of the file, None where its type and role do not go together."""
    return kind_of(node.node_type, role_of(node), node.only_forward_compute)


def num_groups(spec: WorkflowSpec) -> int:
    """Agent groups that the file speaks of, 0 up to the largest."""
    return 1 + max([node.agent_group for node in spec.nodes] + list(spec.agent_groups))
