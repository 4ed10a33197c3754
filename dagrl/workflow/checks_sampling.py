"""Checks of DYNAMIC_SAMPLING nodes: nothing works on a batch that is about to change, and samples can differ."""

from __future__ import annotations

from dagrl.errors import Finding
from dagrl.workflow.facts import Facts, only_one
from dagrl.workflow.kinds import NodeKind
from dagrl.workflow.tree import Path


def one_sampling_node(facts: Facts) -> list[Finding]:
    does = "says what a step trains on"
    return only_one(facts, NodeKind.DYNAMIC_SAMPLING, does, code="E406", hint="keep one of them")


def sampling_comes_first(facts: Facts) -> list[Finding]:
    """What another node wrote for the samples of the batch would be lost with them."""
    findings = []
    for sampler in facts.of_kind(NodeKind.DYNAMIC_SAMPLING):
        for node in facts.nodes:
            is_before = node.kind.is_play or node.kind is NodeKind.REWARD or node is sampler
            if is_before or sampler.node_id in facts.ancestors[node.node_id]:
                continue
            message = f"'{node.node_id}' works on samples that '{sampler.node_id}' may drop or add to"
            place: Path = ("nodes", node.node_id, "dependencies")
            hint = f"add '{sampler.node_id}' to its dependencies"
            findings.append(facts.outline.fault("E210", message, place, hint=hint))
    return findings


def samples_can_differ(facts: Facts) -> list[Finding]:
    branches = max((node.options.num_parallel for node in facts.of_kind(NodeKind.ROLLOUT)), default=1)
    if facts.spec.config.rollout.n > 1 or branches > 1:
        return []
    return [
        facts.outline.fault(
            "E406",
            f"'{node.node_id}' keeps prompts whose samples differ in reward, and rollout.n is 1: it would drop all",
            ("config", "rollout", "n"),
            hint="for example rollout.n=8",
        )
        for node in facts.of_kind(NodeKind.DYNAMIC_SAMPLING)
    ]
