"""Which critic each agent group uses: its own, the one of a group that it shares with, or none."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.errors import Finding
from dagrl.workflow.kinds import NodeKind
from dagrl.workflow.outline import Outline, kind, num_groups
from dagrl.workflow.spec import NodeSpec

CRITIC_KINDS = (NodeKind.VALUES, NodeKind.TRAIN_CRITIC)


def critic_nodes(outline: Outline, group: int) -> list[NodeSpec]:
    return [node for node in outline.spec.nodes if node.agent_group == group and kind(node) in CRITIC_KINDS]


def critic_owners(outline: Outline) -> tuple[tuple[int | None, ...], list[Finding]]:
    """The owner of the critic of each group, and what is wrong with the `share_instance` that say so."""
    findings: list[Finding] = []
    targets = [_target(outline, group, findings) for group in range(num_groups(outline.spec))]
    owners = tuple(_owner(outline, targets, group, findings) for group in range(len(targets)))
    return owners, findings


def _target(outline: Outline, group: int, findings: list[Finding]) -> int | None:
    """The group that `group` takes its critic from (itself where it says nothing), None without a critic."""
    nodes = critic_nodes(outline, group)
    if not nodes:
        return None
    said = {node.node_id: node.agent_options.share_instance for node in nodes}
    if len(set(said.values())) > 1:
        told = ", ".join(f"{name}: {'its own' if share is None else f'group {share}'}" for name, share in said.items())
        silent = next(name for name, share in said.items() if share != next(iter(said.values())))
        message = f"the critic nodes of group {group} use different critics ({told})"
        hint = "give all of them the same share_instance"
        findings.append(outline.fault("E215", message, ("nodes", silent, "agent_options", "share_instance"), hint=hint))
    shares = [share for share in said.values() if share is not None]
    return shares[0] if shares else group


def _owner(outline: Outline, targets: Sequence[int | None], group: int, findings: list[Finding]) -> int | None:
    if targets[group] is None:
        return None
    seen = [group]
    while True:
        following = targets[seen[-1]] if seen[-1] < len(targets) else None
        if following is None:
            findings.append(_no_target(outline, seen, len(targets)))
            return group
        if following == seen[-1]:
            said = _share_of(outline, seen[-1])
            if said is not None:
                findings.append(_fault(outline, seen[-1], f"group {seen[-1]} shares its critic with itself"))
            return following
        if following in seen:
            ring = " → ".join(str(one) for one in (*seen, following))
            findings.append(_fault(outline, group, f"groups share their critic in a ring: {ring}"))
            return group
        seen.append(following)


def _share_of(outline: Outline, group: int) -> NodeSpec | None:
    nodes = critic_nodes(outline, group)
    return next((node for node in nodes if node.agent_options.share_instance is not None), None)


def _no_target(outline: Outline, seen: Sequence[int], count: int) -> Finding:
    target = seen[-1]
    what = f"there is no group {target}" if target >= count else f"group {target} has no critic"
    owners = [str(group) for group in range(count) if group not in seen and critic_nodes(outline, group)]
    hint = f"groups with a critic: {', '.join(owners)}" if owners else None
    return _fault(outline, seen[-2], f"shares the critic of group {target}, but {what}", hint)


def _fault(outline: Outline, group: int, message: str, hint: str | None = None) -> Finding:
    node = _share_of(outline, group)
    name = "?" if node is None else node.node_id
    return outline.fault("E213", message, ("nodes", name, "agent_options", "share_instance"), hint=hint)
