"""Checks of what a run measures besides training: that there is somebody to measure."""

from __future__ import annotations

from dagrl.errors import Finding
from dagrl.workflow.facts import Facts
from dagrl.workflow.kinds import NodeKind, shares_policy

_TRAINER = ("config", "trainer")


def role_gradients_have_roles(facts: Facts) -> list[Finding]:
    if not facts.spec.config.trainer.role_gradients_freq:
        return []
    if any(shares_policy(facts.nodes, node) for node in facts.of_kind(NodeKind.TRAIN_ACTOR)):
        return []
    message = "no trained policy speaks for several rollout nodes, so that there are no roles to tell apart"
    hint = "leave role_gradients_freq out; agent_*/actor/grad_norm is the gradient of each agent"
    return [facts.outline.fault("E406", message, (*_TRAINER, "role_gradients_freq"), hint=hint)]
