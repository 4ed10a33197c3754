"""What is drawn, whatever the format: boxes in lanes and layers, edges between them, notes below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dagrl.workflow.facts import carries_data
from dagrl.workflow.graph import Workflow
from dagrl.workflow.kinds import Node, NodeKind

_TEAM = "all agents"
"""Lane of the nodes that work for several agents at once."""

KIND_TEXT = {
    NodeKind.ROLLOUT: "speaks",
    NodeKind.ENV: "environment",
    NodeKind.REWARD: "reward",
    NodeKind.DYNAMIC_SAMPLING: "keeps what differs",
    NodeKind.CREDIT: "credit",
    NodeKind.OLD_LOGPROBS: "old log-probs",
    NodeKind.REF_LOGPROBS: "reference log-probs",
    NodeKind.VALUES: "values",
    NodeKind.ADVANTAGES: "advantages",
    NodeKind.TRAIN_CRITIC: "trains critic",
    NodeKind.TRAIN_ACTOR: "trains policy",
    NodeKind.COMPUTE: "function",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One node."""

    node_id: str
    label: str
    kind: NodeKind
    kind_text: str
    lane: int
    lanes: tuple[int, ...]
    """Lanes of all agents that it works for."""
    layer: int
    """Within its half: one more than the largest of what it waits for there."""
    is_play: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    before: str
    after: str
    carries_data: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    title: str
    lanes: tuple[str, ...]
    boxes: tuple[Box, ...]
    """Play first, in the order of running."""
    edges: tuple[Edge, ...]
    notes: tuple[str, ...]

    def parts(self) -> tuple[tuple[str, list[Box]], tuple[str, list[Box]]]:
        """The two halves with their boxes."""
        play = [box for box in self.boxes if box.is_play]
        return ("play", play), ("learn", [box for box in self.boxes if not box.is_play])

    def into(self, box: Box) -> list[Edge]:
        return [edge for edge in self.edges if edge.after == box.node_id]


def picture(workflow: Workflow) -> Picture:
    """The boxes, edges and notes of a workflow."""
    nodes = [*workflow.play, *workflow.learn]
    layers = _layers(nodes)
    team_lane = len(workflow.groups)
    lanes = [_lane_title(workflow, group) for group in range(team_lane)]
    has_team = any(_lane(node, team_lane) == team_lane for node in nodes)
    edges = [
        Edge(before=before.node_id, after=after.node_id, carries_data=carries_data(workflow.facts, before, after))
        for before, after in workflow.facts.edges
    ]
    return Picture(
        title=workflow.spec.dag_id,
        lanes=tuple([*lanes, _TEAM] if has_team else lanes),
        boxes=tuple(_box(node, layers[node.node_id], team_lane) for node in nodes),
        edges=tuple(edges),
        notes=tuple(_notes(workflow, edges)),
    )


def _layers(nodes: Sequence[Node]) -> dict[str, int]:
    layers: dict[str, int] = {}
    for node in nodes:
        inner = [name for name in node.dependencies if name in layers and _is_same_half(nodes, name, node)]
        layers[node.node_id] = 1 + max((layers[name] for name in inner), default=-1)
    return layers


def _is_same_half(nodes: Sequence[Node], name: str, node: Node) -> bool:
    return next(other for other in nodes if other.node_id == name).kind.is_play == node.kind.is_play


def _lane(node: Node, team_lane: int) -> int:
    return team_lane if len(node.groups) > 1 else node.agent_group


def _lane_title(workflow: Workflow, group: int) -> str:
    names = [node.role_name for node in workflow.play if node.kind is NodeKind.ROLLOUT and node.agent_group == group]
    agent = workflow.groups[group]
    named = agent.name if agent.name != str(group) else ", ".join(names)
    return f"agent {group}: {named}" if named else f"agent {group}"


def _box(node: Node, layer: int, team_lane: int) -> Box:
    kind_text = KIND_TEXT.get(node.kind, str(node.kind).lower())
    if node.kind is NodeKind.TRAIN_CRITIC and len(node.groups) > 1:
        kind_text = f"trains the critic shared by agents {', '.join(map(str, node.groups))}"
    elif node.kind is NodeKind.ROLLOUT and node.options.env_path:
        kind_text = f"speaks, steps {', '.join(path.rpartition(':')[2] for path in node.options.env_path)}"
    if node.options.train_cycle is not None:
        kind_text += f", train_cycle {node.options.train_cycle}"
    return Box(
        node_id=node.node_id,
        label=" + ".join(node.merged_ids) if len(node.merged_ids) > 1 else node.node_id,
        kind=node.kind,
        kind_text=kind_text,
        lane=_lane(node, team_lane),
        lanes=node.groups if len(node.groups) > 1 else (node.agent_group,),
        layer=layer,
        is_play=node.kind.is_play,
    )


def _notes(workflow: Workflow, edges: Sequence[Edge]) -> list[str]:
    notes = [
        f"critic of agent {group.index} is agent {group.critic_owner}'s: one model"
        for group in workflow.groups
        if group.critic_owner not in (None, group.index)
    ]
    idle = sum(not edge.carries_data for edge in edges)
    if idle:
        notes.append(f"{idle} edge{'s' * (idle != 1)} carr{'y' if idle != 1 else 'ies'} no data (dashed; '?' in text)")
    return notes
