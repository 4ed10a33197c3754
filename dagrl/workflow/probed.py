"""Which agents can be probed: those whose message somebody can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagrl.workflow.kinds import Node, NodeKind


def probed_nodes(nodes: Sequence[Node], ancestors: Mapping[str, frozenset[str]], max_rounds: int) -> list[str]:
    """The rollout nodes that another one comes after, in the round or, where there are several, in the next."""
    speakers = [node.node_id for node in nodes if node.kind is NodeKind.ROLLOUT]
    if max_rounds > 1:
        return speakers if len(speakers) > 1 else []
    return [name for name in speakers if any(name in ancestors[other] for other in speakers)]
