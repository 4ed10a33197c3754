"""Checks of what a run measures besides training: that there is somebody to measure."""

from __future__ import annotations

from dagrl.errors import Finding
from dagrl.workflow.facts import Facts
from dagrl.workflow.kinds import NodeKind, shares_policy
from dagrl.workflow.probed import probed_nodes

_TRAINER = ("config", "trainer")


def role_gradients_have_roles(facts: Facts) -> list[Finding]:
    if not facts.spec.config.trainer.role_gradients_freq:
        return []
    if any(shares_policy(facts.nodes, node) for node in facts.of_kind(NodeKind.TRAIN_ACTOR)):
        return []
    message = "no trained policy speaks for several rollout nodes, so that there are no roles to tell apart"
    hint = "leave role_gradients_freq out; agent_*/actor/grad_norm is the gradient of each agent"
    return [facts.outline.fault("E406", message, (*_TRAINER, "role_gradients_freq"), hint=hint)]


def probes_have_listeners(facts: Facts) -> list[Finding]:
    config = facts.spec.config
    if not config.trainer.probe_freq:
        return []
    fault, place = facts.outline.fault, (*_TRAINER, "probe_freq")
    if not probed_nodes(facts.nodes, facts.ancestors, config.rollout.max_rounds):
        return [fault("E406", "no agent speaks after another, so that there is no influence to probe", place)]
    if all(facts.groups[node.agent_group].server is not None for node in facts.of_kind(NodeKind.ROLLOUT)):
        message = "a server speaks for every agent, and none of their answers can be scored here"
        return [fault("E406", message, place)]
    return []
