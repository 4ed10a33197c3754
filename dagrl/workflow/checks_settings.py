"""Checks of settings that need something beside them: a function for keyword arguments, a trained model for a group."""

from __future__ import annotations

from typing import Any

from dagrl.errors import Finding
from dagrl.workflow.checks_options import SECTION_USERS
from dagrl.workflow.facts import Facts
from dagrl.workflow.fields import Spec
from dagrl.workflow.groups import AgentGroup
from dagrl.workflow.kinds import Node, NodeKind
from dagrl.workflow.layers import given, over
from dagrl.workflow.spec import AgentGroupSpec

_NEEDS = (
    ("pre_process_kwargs", "process_path", "W403"),
    ("post_process_kwargs", "process_path", "W403"),
    ("env_kwargs", "env_path", "W403"),
    ("reward_kwargs", "executable_ref", "E207"),
)
"""Keyword arguments, what they are for, and what it is to give them without it."""

_OF_ADVANTAGES = (
    "adv_estimator", "gamma", "lam", "gamma_agent", "lam_agent", "gamma_token", "lam_token", "norm_adv",
    "use_kl_in_reward", "kl_penalty", "kl_ctrl",
)  # fmt: skip
_NEED_THE_POLICY = (NodeKind.OLD_LOGPROBS, NodeKind.REF_LOGPROBS, NodeKind.TRAIN_ACTOR)
_OF_TRAINING = ("action_logprob", "policy_loss", "loss_agg_mode", "loss_horizon")


def kwargs_have_a_function(facts: Facts) -> list[Finding]:
    findings = []
    for node in facts.written:
        for name, target, code in _NEEDS:
            named = node.executable_ref if target == "executable_ref" else getattr(node.options, target)
            is_address = name == "reward_kwargs" and node.kind is NodeKind.CREDIT  # of a model as a judge
            if getattr(node.options, name) and not named and not is_address:
                message = f"{name} does nothing on '{node.node_id}': it has no {target}"
                place = ("nodes", node.node_id, "agent_options", name)
                findings.append(facts.outline.fault(code, message, place, on_key=True))
    return findings


def group_settings_have_effect(facts: Facts) -> list[Finding]:
    """Settings of an agent group that nothing of it uses."""
    findings = []
    for group in facts.groups:
        said = facts.spec.agent_groups.get(group.index, AgentGroupSpec())
        idle = [name for name in ("adapter", "optim") if not group.is_trained and getattr(said, name) is not None]
        findings += [_idle(facts, group, name, "W403", "no node trains its policy") for name in idle]
        if said.critic is None or group.critic_owner == group.index:
            continue
        if group.critic_owner is None:
            findings.append(_idle(facts, group, "critic", "W403", "it has no critic"))
        elif said.critic != facts.spec.agent_groups.get(group.critic_owner, AgentGroupSpec()).critic:
            reason = f"it shares the critic of group {group.critic_owner}, whose settings hold"
            findings.append(_idle(facts, group, "critic", "E215", reason))
    return findings


def _idle(facts: Facts, group: AgentGroup, name: str, code: str, reason: str) -> Finding:
    message = f"'{name}' of agent group {group.index} does nothing: {reason}"
    return facts.outline.fault(code, message, ("agent_groups", group.index, name), on_key=True)


def adapters_without_dropout(facts: Facts) -> list[Finding]:
    return [
        facts.outline.fault(
            "E206",
            "dropout in adapters is not built: log-probs would not be the same when taken and when trained",
            ("agent_groups", group.index, "adapter", "dropout"),
            hint="leave it at 0",
        )
        for group in facts.groups
        if group.adapter is not None and group.adapter.dropout > 0.0
    ]


def servers_speak_for_frozen_agents(facts: Facts) -> list[Finding]:
    """Nobody here can train what a server holds, or ask it for log-probs."""
    findings = []
    for group in (group for group in facts.groups if group.server is not None):
        asking = [n for n in facts.nodes if n.agent_group == group.index and n.kind in _NEED_THE_POLICY]
        if asking:
            named = ", ".join(f"'{node.node_id}'" for node in asking)
            message = f"a server speaks for agent group {group.index}, but {named} must have its policy here"
            hint = "take these nodes away: the agent is frozen; or take `server` away"
            place = ("agent_groups", group.index, "server")
            findings.append(facts.outline.fault("E406", message, place, hint=hint, on_key=True))
    return findings


def node_keys_have_effect(facts: Facts) -> list[Finding]:
    """Keys of a node's `config` that only another kind of node uses, where they say otherwise than that node has it."""
    findings = []
    for node in facts.written:
        config = facts.configs.get(node.node_id)
        for section in (name for name in ("algorithm", "actor", "critic") if node.kind in SECTION_USERS[name]):
            for key, value in given(None if config is None else getattr(config, section)).items():
                users = _users_of(section, key)
                if node.kind in users or _is_held(facts, node, users, section, {key: value}):
                    continue
                message = f"config.{section}.{key} does nothing on '{node.node_id}', a node of kind {node.kind}"
                place = ("nodes", node.node_id, "config", section, key)
                hint = f"it works on {' and '.join(users)} nodes, or in the file's config"
                findings.append(facts.outline.fault("W403", message, place, hint=hint, on_key=True))
    return findings


def _users_of(section: str, key: str) -> tuple[NodeKind, ...]:
    """The kinds of node that use a key of `config`; nothing of `algorithm` that is for the whole run."""
    if section == "actor":
        return (NodeKind.TRAIN_ACTOR, NodeKind.ADVANTAGES) if key == "old_logprobs" else (NodeKind.TRAIN_ACTOR,)
    if section == "critic":
        return (NodeKind.TRAIN_CRITIC,)
    if key in _OF_ADVANTAGES:
        return (NodeKind.ADVANTAGES,)
    return (NodeKind.TRAIN_ACTOR,) if key in _OF_TRAINING else (NodeKind.ADVANTAGES, NodeKind.TRAIN_ACTOR)


def _is_held(facts: Facts, node: Node, users: tuple[NodeKind, ...], section: str, said: dict[str, Any]) -> bool:
    """True where a node of the same group that uses the key has this value anyway (siiRL's shared anchors)."""
    for other in facts.written:
        if other.kind in users and (node.agent_group == other.agent_group or other.kind is NodeKind.ADVANTAGES):
            settings: Spec = getattr(other, section)
            if over(settings, said) == settings:
                return True
    return False
