"""What a workflow will do, in a few lines: nodes, agents, shared critics, who trains when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dagrl.workflow.graph import Workflow
from dagrl.workflow.groups import trains_in_step
from dagrl.workflow.kinds import Node, NodeKind


def summary(workflow: Workflow) -> list[str]:
    """Lines for `dagrl validate`."""
    return [_nodes(workflow), _agents(workflow), *_sharing(workflow), _schedule(workflow)]


def _nodes(workflow: Workflow) -> str:
    written = len(workflow.facts.written)
    edges = sum(len(node.dependencies) for node in workflow.facts.written)
    return f"{written} nodes, {edges} edges, acyclic: {len(workflow.play)} play, {written - len(workflow.play)} learn"


def _agents(workflow: Workflow) -> str:
    told = []
    for group in workflow.groups:
        rollouts = [node for node in workflow.play if node.kind is NodeKind.ROLLOUT]
        nodes = [node.role_name for node in rollouts if node.agent_group == group.index]
        frozen = "frozen" if group.server is None else f"frozen, at {group.server.url}"
        trained = "trained" if group.is_trained else frozen
        told.append(f"{group.index} ({', '.join(nodes) or 'silent'}; {trained})")
    return f"agent groups: {', '.join(told)}"


def _sharing(workflow: Workflow) -> list[str]:
    lines = []
    owners = [group.index for group in workflow.groups if group.critic_owner == group.index]
    for owner in owners:
        sharers = [group.index for group in workflow.groups if group.critic_owner == owner and group.index != owner]
        if sharers:
            told = "group " if len(sharers) == 1 else "groups "
            lines.append(f"critic of {told}{', '.join(map(str, sharers))} is group {owner}'s: 1 model")
    own = len(owners)
    return lines or ([f"{own} critic{'s' * (own != 1)}, none shared"] if own else ["no critic"])


def _schedule(workflow: Workflow) -> str:
    actors = [node for node in workflow.learn if node.kind is NodeKind.TRAIN_ACTOR]
    if not actors:
        return "no policy is trained"
    cycle = actors[0].options.train_cycle
    warmup = workflow.spec.config.trainer.critic_warmup
    start = f"steps 0-{warmup - 1} train critics only; " if warmup else ""
    if cycle is None:
        order = workflow.spec.config.algorithm.update_order
        return f"{start}every step trains agent{'s' * (len(actors) != 1)} {_listed(actors)} ({order})"
    starts = range(0, cycle * (len(workflow.groups) + 1), cycle)
    blocks = [(first, _trained(workflow, actors, first)) for first in starts]
    told = [f"{first}-{following - 1} train {who}" for (first, who), (following, _) in pairwise(blocks)]
    return f"{start}steps {', '.join(told)}, and so on"


def _trained(workflow: Workflow, actors: Sequence[Node], step: int) -> str:
    count = len(workflow.groups)
    told = [node for node in actors if trains_in_step(node.options.train_cycle, node.agent_group, step, count)]
    return f"agent {_listed(told)}" if told else "nobody"


def _listed(nodes: Sequence[Node]) -> str:
    return ", ".join(str(node.agent_group) for node in nodes)
