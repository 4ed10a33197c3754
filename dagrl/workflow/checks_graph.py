"""Checks of the graph: ids, edges, groups, kinds, and whether data and models are read and written in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dagrl.errors import Finding
from dagrl.workflow.facts import Facts, carries_data
from dagrl.workflow.kinds import WRITER_OF, Column, Node, NodeKind, roles_of
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.outline import Outline, kind, num_groups, role_of
from dagrl.workflow.spec import NodeRole, NodeType
from dagrl.workflow.tree import Path

# The file alone


def unique_ids(outline: Outline) -> list[Finding]:
    seen: dict[str, int] = {}
    findings = []
    for index, node in enumerate(outline.spec.nodes):
        if node.node_id in seen:
            message = f"two nodes have the id '{node.node_id}' (the first is number {seen[node.node_id] + 1})"
            findings.append(outline.fault("E201", message, ("nodes", index, "node_id")))
        seen.setdefault(node.node_id, index)
    return findings


def known_dependencies(outline: Outline) -> list[Finding]:
    ids = [node.node_id for node in outline.spec.nodes]
    findings = []
    for node in outline.spec.nodes:
        for index, name in enumerate(node.dependencies):
            if name not in ids and name not in outline.left_out:
                place: Path = ("nodes", node.node_id, "dependencies", index)
                hint = did_you_mean(name, {*ids, *outline.left_out} - {node.node_id})
                message = f"'{node.node_id}' depends on '{name}', which is no node"
                findings.append(outline.fault("E202", message, place, hint=hint))
    return findings


def no_cycles(outline: Outline) -> list[Finding]:
    waits = {node.node_id: node.dependencies for node in outline.spec.nodes}
    ring = _find_ring(waits)
    if ring is None:
        return []
    named = " → ".join(f"{name} (line {outline.line_of(name)})" for name in ring)
    place: Path = ("nodes", ring[0], "dependencies")
    hint = "an edge goes from what is waited for to what waits; take one of these dependencies away"
    return [outline.fault("E203", f"nodes form a cycle: {named}", place, hint=hint)]


def _find_ring(waits: Mapping[str, Sequence[str]]) -> list[str] | None:
    """One ring of nodes, in the direction of the data, its first node repeated at its end."""
    left = {name: {other for other in others if other in waits} for name, others in waits.items()}
    while free := [name for name, others in left.items() if not others]:
        left = {name: others - set(free) for name, others in left.items() if name not in free}
    if not left:
        return None
    walk = [next(iter(left))]
    while (following := next(other for other in waits[walk[-1]] if other in left)) not in walk:
        walk.append(following)
    ring = walk[walk.index(following) :]
    return [following, *reversed(ring)]


def groups_without_gaps(outline: Outline) -> list[Finding]:
    if outline.left_out:
        return []
    used = {node.agent_group for node in outline.spec.nodes}
    found = ", ".join(str(group) for group in sorted(used))
    if used != set(range(len(used))):
        message = f"agent groups must be 0..n-1 without a gap; the nodes have {found}"
        odd = next(node for node in outline.spec.nodes if node.agent_group >= len(used))
        hint = f"number them 0 to {len(used) - 1}"
        return [outline.fault("E204", message, ("nodes", odd.node_id, "agent_group"), hint=hint)]
    spare = [group for group in sorted(outline.spec.agent_groups) if group not in used]
    message = f"no node belongs to this agent group; nodes have groups {found}"
    return [outline.fault("E204", message, ("agent_groups", group), on_key=True) for group in spare]


def kinds(outline: Outline) -> list[Finding]:
    findings = []
    for node in outline.spec.nodes:
        if kind(node) is not None:
            continue
        role, place = role_of(node), ("nodes", node.node_id, "node_role")
        if role not in roles_of(node.node_type):
            known = ", ".join(roles_of(node.node_type))
            message = f"a node of type {node.node_type} cannot have the role {role}"
            findings.append(outline.fault("E205", message, place, hint=f"its roles are: {known}{_other_type(role)}"))
        else:
            message = f"only_forward_compute has no meaning for {node.node_type} with role {role}"
            findings.append(outline.fault("E205", message, ("nodes", node.node_id, "only_forward_compute")))
    return findings


def _other_type(role: NodeRole) -> str:
    types = [node_type for node_type in NodeType if role in roles_of(node_type)]
    return f"; role {role} goes with type {' or '.join(types)}" if types else ""


# Resolved nodes


def play_before_learn(facts: Facts) -> list[Finding]:
    return [
        facts.outline.fault(
            "E208",
            f"'{after.node_id}' plays and waits for '{before.node_id}', which runs only after all play is over",
            ("nodes", after.node_id, "dependencies"),
            hint=f"take '{before.node_id}' out of its dependencies",
        )
        for before, after in facts.edges
        if after.kind.is_play and not before.kind.is_play
    ]


def groups_that_speak(facts: Facts) -> list[Finding]:
    speaking = {node.agent_group for node in facts.of_kind(NodeKind.ROLLOUT)}
    return [
        facts.outline.fault(
            "E208",
            f"agent group {group} has no ROLLOUT node: it never speaks, so there is nothing to learn from",
            ("nodes", next(node.node_id for node in facts.written if node.agent_group == group), "agent_group"),
        )
        for group in range(num_groups(facts.spec))
        if group not in speaking and any(n.agent_group == group and n.kind in _NEED_TURNS for n in facts.written)
    ]


_NEED_TURNS = (
    NodeKind.OLD_LOGPROBS,
    NodeKind.REF_LOGPROBS,
    NodeKind.VALUES,
    NodeKind.TRAIN_ACTOR,
    NodeKind.TRAIN_CRITIC,
)


def columns_have_writers(facts: Facts) -> list[Finding]:
    findings = []
    for node in facts.nodes:
        for column, group in sorted(facts.contracts[node.node_id].reads):
            writers = facts.writers(column, group)
            if not writers:
                findings.append(_no_writer(facts, node, column, group))
            elif not any(_is_before(facts, writer, node) for writer in writers):
                findings.append(_late_writer(facts, node, column, group, writers[0]))
    return findings


def _is_before(facts: Facts, writer: Node, node: Node) -> bool:
    return writer.kind.is_play or writer.node_id in facts.ancestors[node.node_id]


_CODES = {Column.REWARDS: "E402", Column.VALUES: "E404"}


def _no_writer(facts: Facts, node: Node, column: Column, group: int) -> Finding:
    message = f"'{node.node_id}' reads {column} of agent group {group}, which no node writes"
    hint = f"add a node {_YAML[WRITER_OF[column]]} of agent group {group}"
    if column is Column.VALUES and node.kind is NodeKind.ADVANTAGES:
        message += f": {node.algorithm.adv_estimator} needs a critic"
    if column is Column.REF_LOGPROBS:
        message += ": use_kl_loss and use_kl_in_reward need the frozen reference"
    if column is Column.REWARDS:
        hint += ", or take the rewards from an environment with config.rollout.rewards_with_env: true"
    if column is Column.OLD_LOGPROBS:
        hint += ", or set config.actor.old_logprobs: rollout"
    return facts.outline.fault(_CODES.get(column, "E210"), message, ("nodes", node.node_id), hint=hint)


def _late_writer(facts: Facts, node: Node, column: Column, group: int, writer: Node) -> Finding:
    message = (
        f"'{node.node_id}' reads {column} of agent group {group}; '{writer.node_id}' writes it, "
        "but is not among the nodes that it waits for"
    )
    hint = f"add '{writer.node_id}' to its dependencies"
    return facts.outline.fault("E210", message, ("nodes", node.node_id, "dependencies"), hint=hint)


_YAML = {
    NodeKind.ROLLOUT: "MODEL_INFERENCE with role ROLLOUT",
    NodeKind.REWARD: "REWARD",
    NodeKind.OLD_LOGPROBS: "MODEL_TRAIN with role ACTOR and only_forward_compute: true",
    NodeKind.REF_LOGPROBS: "MODEL_TRAIN with role REFERENCE",
    NodeKind.VALUES: "MODEL_TRAIN with role CRITIC and only_forward_compute: true",
    NodeKind.ADVANTAGES: "COMPUTE with role ADVANTAGE",
}


def columns_written_once(facts: Facts) -> list[Finding]:
    findings = []
    for position, node in enumerate(facts.nodes):
        for column, group in sorted(facts.contracts[node.node_id].writes):
            earlier = [other for other in facts.writers(column, group) if other in facts.nodes[:position]]
            if earlier and node.kind is not NodeKind.ROLLOUT:
                message = f"'{node.node_id}' writes {column} of agent group {group}, as '{earlier[0].node_id}' does"
                place: Path = ("nodes", node.node_id)
                findings.append(facts.outline.fault("E211", message, place, hint="take one of them away"))
    return findings


def models_trained_after_reading(facts: Facts) -> list[Finding]:
    findings = []
    for trainer in facts.nodes:
        model = facts.contracts[trainer.node_id].trains_model
        for reader in facts.nodes:
            if model not in facts.contracts[reader.node_id].reads_model:
                continue
            if reader.node_id not in facts.ancestors[trainer.node_id] and not _is_told(facts, trainer, reader):
                findings.append(_trained_too_early(facts, trainer, reader))
    return findings


def _is_told(facts: Facts, trainer: Node, reader: Node) -> bool:
    """True where `columns_have_writers` says already that the trainer must wait for the reader."""
    columns = facts.contracts[trainer.node_id].reads & facts.contracts[reader.node_id].writes
    return any(facts.writers(*column)[0] is reader for column in columns)


def _trained_too_early(facts: Facts, trainer: Node, reader: Node) -> Finding:
    message = f"'{reader.node_id}' must read the model before '{trainer.node_id}' trains it"
    if trainer.node_id in facts.ancestors[reader.node_id]:
        message += f", but waits for it to be trained; take '{trainer.node_id}' out of what it waits for"
    hint = f"let '{trainer.node_id}' depend on '{reader.node_id}', directly or through other nodes"
    return facts.outline.fault("E212", message, ("nodes", trainer.node_id, "dependencies"), hint=hint)


def models_trained_once(facts: Facts) -> list[Finding]:
    first: dict[str, Node] = {}
    findings = []
    for node in facts.nodes:
        model = facts.contracts[node.node_id].trains_model
        if model is None:
            continue
        if model in first:
            message = f"'{node.node_id}' trains the model that '{first[model].node_id}' trains in the same step"
            place: Path = ("nodes", node.node_id)
            findings.append(facts.outline.fault("E212", message, place, hint="one node trains a model"))
        first.setdefault(model, node)
    return findings


def edges_carry_data(facts: Facts) -> list[Finding]:
    idle = [(before, after) for before, after in facts.edges if not carries_data(facts, before, after)]
    if not idle:
        return []
    named = ", ".join(f"{before.node_id} → {after.node_id}" for before, after in idle)
    what = "1 edge carries" if len(idle) == 1 else f"{len(idle)} edges carry"
    place: Path = ("nodes", idle[0][1].node_id, "dependencies")
    hint = "these nodes only wait; they are right, but let less run at once"
    return [facts.outline.fault("W201", f"{what} no data: {named}", place, hint=hint)]


def work_is_used(facts: Facts) -> list[Finding]:
    read = Counter(column for node in facts.nodes for column in facts.contracts[node.node_id].reads)
    has_compute = bool(facts.of_kind(NodeKind.COMPUTE))
    findings = []
    for node in facts.nodes:
        writes = facts.contracts[node.node_id].writes
        is_watched = node.kind.is_play or node.kind is NodeKind.REWARD or has_compute
        if is_watched or not writes or any(read[column] for column in writes):
            continue
        columns = ", ".join(sorted({str(column) for column, _ in writes}))
        message = f"nothing uses the {columns} of '{node.node_id}'; it is not run{_why_unused(node)}"
        findings.append(facts.outline.fault("W202", message, ("nodes", node.node_id)))
    return findings


def _why_unused(node: Node) -> str:
    if node.kind is NodeKind.REF_LOGPROBS:
        return " (actor.use_kl_loss and algorithm.use_kl_in_reward are false)"
    return " (actor.old_logprobs is rollout)" if node.kind is NodeKind.OLD_LOGPROBS else ""
