"""Checks of options: each on a kind of node where it works, and agreeing with the others."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dagrl.errors import Finding
from dagrl.workflow import servers
from dagrl.workflow.algorithm_section import AlgorithmSpec
from dagrl.workflow.facts import Facts
from dagrl.workflow.groups import trains_in_step
from dagrl.workflow.kinds import Node, NodeKind
from dagrl.workflow.layers import given
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.outline import Outline, kind, role_of
from dagrl.workflow.sections import ModelSpec, RolloutSpec
from dagrl.workflow.spec import NodeRole, NodeSpec

_SPEAKING = (NodeKind.ROLLOUT,)
_PLAYING = (NodeKind.ROLLOUT, NodeKind.ENV)
_TRAINING = (NodeKind.TRAIN_ACTOR, NodeKind.TRAIN_CRITIC)
_REWARDING = (NodeKind.REWARD,)

KINDS_OF_OPTION: Mapping[str, tuple[NodeKind, ...]] = {
    "process_path": _SPEAKING,
    "pre_process_kwargs": _SPEAKING,
    "post_process_kwargs": _SPEAKING,
    "obs_with_env": _SPEAKING,
    "needs_obs": _SPEAKING,
    "num_parallel": _SPEAKING,
    "sampling": _SPEAKING,
    "when": _PLAYING,
    "env_path": _PLAYING,
    "env_kwargs": _PLAYING,
    "train_cycle": _TRAINING,
    "reward_kwargs": (*_REWARDING, NodeKind.CREDIT),
    "credit": (NodeKind.CREDIT,),
    "dynamic_sampling": (NodeKind.DYNAMIC_SAMPLING,),
    "rewards": _REWARDING,
    "correct_reward_weight": _REWARDING,
    "incorrect_reward_weight": _REWARDING,
    "outcome_node": _REWARDING,
    "combine": _REWARDING,
}
"""Where each option works; those not named work everywhere or have a check of their own."""

_REFERENCED = (NodeKind.COMPUTE, NodeKind.REWARD, NodeKind.ADVANTAGES, NodeKind.CREDIT)
_ENGINES_BUILT = ("transformers",)
_NAME = re.compile(r"[\w.-]+")
_NODE_ROLLOUT = ("sampling", "val_kwargs")
"""The part of `rollout` that a node may have for itself; the rest is for the whole run."""
_RUN_ALGORITHM = ("reward_mode", "update_order", "sequential_cap")
"""The part of `algorithm` that is for the whole run."""

SECTION_USERS: Mapping[str, tuple[NodeKind, ...]] = {
    "rollout": _SPEAKING,
    "actor": (NodeKind.OLD_LOGPROBS, NodeKind.REF_LOGPROBS, NodeKind.TRAIN_ACTOR),
    "critic": (NodeKind.VALUES, NodeKind.TRAIN_CRITIC),
    "algorithm": (NodeKind.ADVANTAGES, NodeKind.REWARD, NodeKind.TRAIN_ACTOR, NodeKind.TRAIN_CRITIC),
}


# The file alone


def options_on_their_kinds(outline: Outline) -> list[Finding]:
    findings = []
    for node in outline.spec.nodes:
        node_kind, options = kind(node), node.agent_options
        for name in options.model_fields_set & set(KINDS_OF_OPTION):
            default = type(options).model_fields[name].default
            if node_kind is None or node_kind in KINDS_OF_OPTION[name] or getattr(options, name) == default:
                continue
            findings.append(_misplaced(outline, node, name))
    return sorted(findings, key=lambda found: found.field or "")


def _misplaced(outline: Outline, node: NodeSpec, name: str) -> Finding:
    words = " and ".join(KINDS_OF_OPTION[name])
    code = "E209" if name == "env_path" else "E207"
    message = f"{name} does nothing on '{node.node_id}', a node of kind {kind(node)}"
    place = ("nodes", node.node_id, "agent_options", name)
    return outline.fault(code, message, place, hint=f"it works on {words} nodes", on_key=True)


def executable_refs(outline: Outline) -> list[Finding]:
    findings = []
    for node in outline.spec.nodes:
        place = ("nodes", node.node_id, "executable_ref")
        if kind(node) is NodeKind.COMPUTE and node.executable_ref is None:
            hint = "add executable_ref: path/to/file.py:function, or a node_role"
            message = f"COMPUTE node '{node.node_id}' has neither a function nor a role"
            findings.append(outline.fault("E207", message, place, hint=hint))
        elif node.executable_ref is not None and kind(node) not in (*_REFERENCED, None):
            words = ", ".join(_REFERENCED)
            message = f"executable_ref does nothing on '{node.node_id}', a node of kind {kind(node)}"
            findings.append(outline.fault("E207", message, place, hint=f"it works on {words} nodes", on_key=True))
    return findings


def sharing_of_critics_only(outline: Outline) -> list[Finding]:
    findings = []
    for node in outline.spec.nodes:
        if node.agent_options.share_instance is None or role_of(node) is NodeRole.CRITIC:
            continue
        message = f"sharing the model of a node of role {role_of(node)} is not built yet"
        place = ("nodes", node.node_id, "agent_options", "share_instance")
        hint = "critics can be shared; agents can share one frozen base through adapters"
        findings.append(outline.fault("E206", message, place, hint=hint, on_key=True))
    return findings


def group_names(outline: Outline) -> list[Finding]:
    findings = []
    seen: dict[str, int] = {}
    for index, group in sorted(outline.spec.agent_groups.items()):
        name = str(index) if group.name is None else group.name
        place = ("agent_groups", index, "name")
        if _NAME.fullmatch(name) is None:
            hint = "use letters, digits, '_', '-' and '.'"
            findings.append(outline.fault("E113", f"'{name}' cannot be the name of a folder", place, hint=hint))
        if name in seen:
            findings.append(outline.fault("E406", f"agent groups {seen[name]} and {index} have one name", place))
        seen.setdefault(name, index)
    return findings


def engine(outline: Outline) -> list[Finding]:
    name = outline.spec.config.rollout.engine
    if name in _ENGINES_BUILT:
        return []
    hint = f"built are: {', '.join(_ENGINES_BUILT)}"
    return [outline.fault("E206", f"engine '{name}' is not built yet", ("config", "rollout", "engine"), hint=hint)]


def server_addresses(outline: Outline) -> list[Finding]:
    findings = []
    for index, group in sorted(outline.spec.agent_groups.items()):
        fault = None if group.server is None else servers.fault_of(group.server.url)
        if fault is not None:
            place = ("agent_groups", index, "server", "url")
            findings.append(outline.fault("E113", f"the address {fault}", place, hint="http://host:port/v1"))
    return findings


# Resolved nodes


def environments_in_place(facts: Facts) -> list[Finding]:
    findings = []
    for node in facts.of_kind(NodeKind.ENV):
        if not node.options.env_path:
            place = ("nodes", node.node_id, "agent_options", "env_path")
            message = f"ENV node '{node.node_id}' names no environment"
            findings.append(facts.outline.fault("E209", message, place, hint="add env_path: [path.py:Class]"))
        above = [one for one in facts.of_kind(NodeKind.ROLLOUT) if one.node_id in facts.ancestors[node.node_id]]
        if not above:
            message = f"no agent acts on the environment of '{node.node_id}'"
            hint = "make it depend on a ROLLOUT node"
            findings.append(facts.outline.fault("E209", message, ("nodes", node.node_id, "dependencies"), hint=hint))
        for before in above:
            if before.options.env_path:
                place = ("nodes", before.node_id, "agent_options", "env_path")
                message = f"'{before.node_id}' steps an environment, and ENV node '{node.node_id}' comes after it"
                findings.append(facts.outline.fault("E209", message, place, hint="keep one of the two", on_key=True))
    return findings


def observations_from_an_environment(facts: Facts) -> list[Finding]:
    if facts.has_env:
        return []
    return [
        facts.outline.fault(
            "W403",
            f"obs_with_env does nothing on '{node.node_id}': no node has an environment",
            ("nodes", node.node_id, "agent_options", "obs_with_env"),
            on_key=True,
        )
        for node in facts.nodes
        if node.options.obs_with_env
    ]


def train_cycles_agree(facts: Facts) -> list[Finding]:
    return [*_unequal_cycles(facts), *_actors_without_cycle(facts), *_shared_critics_with_cycle(facts)]


def _unequal_cycles(facts: Facts) -> list[Finding]:
    told = [node for node in facts.written if node.options.train_cycle is not None]
    if len({node.options.train_cycle for node in told}) < 2:
        return []
    values = ", ".join(f"{node.node_id}: {node.options.train_cycle}" for node in told)
    odd = next(node for node in told if node.options.train_cycle != told[0].options.train_cycle)
    message = f"train_cycle values differ ({values}): agents would train at once or not at all"
    place = ("nodes", odd.node_id, "agent_options", "train_cycle")
    return [facts.outline.fault("E214", message, place, hint="give them all the same number")]


def _actors_without_cycle(facts: Facts) -> list[Finding]:
    actors = facts.of_kind(NodeKind.TRAIN_ACTOR)
    cycled = [node for node in actors if node.options.train_cycle is not None]
    if not cycled:
        return []
    return [
        facts.outline.fault(
            "E214",
            f"'{node.node_id}' has no train_cycle but '{cycled[0].node_id}' has: it would train in every step",
            ("nodes", node.node_id, "agent_options", "train_cycle"),
            hint=f"add train_cycle: {cycled[0].options.train_cycle}",
        )
        for node in actors
        if node.options.train_cycle is None
    ]


def _shared_critics_with_cycle(facts: Facts) -> list[Finding]:
    shared = {name for node in facts.nodes if len(node.merged_ids) > 1 for name in node.merged_ids}
    return [
        facts.outline.fault(
            "E214",
            f"'{node.node_id}' trains a shared critic in one joint update, which train_cycle cannot split",
            ("nodes", node.node_id, "agent_options", "train_cycle"),
            hint="take train_cycle away here",
            on_key=True,
        )
        for node in facts.written
        if node.node_id in shared and node.options.train_cycle is not None
    ]


def cycles_train_somebody(facts: Facts) -> list[Finding]:
    """A frozen agent's blocks of a train_cycle train nobody."""
    actors = facts.of_kind(NodeKind.TRAIN_ACTOR)
    cycle = next((node.options.train_cycle for node in actors if node.options.train_cycle is not None), None)
    if cycle is None:
        return []
    idle = sorted(set(range(len(facts.groups))) - {node.agent_group for node in actors})
    if not idle:
        return []
    first = next(s for s in range(cycle * len(facts.groups)) if trains_in_step(cycle, idle[0], s, len(facts.groups)))
    message = f"steps {first}-{first + cycle - 1} train nobody: no node trains the policy of agent group {idle[0]}"
    place = ("nodes", actors[0].node_id, "agent_options", "train_cycle")
    return [facts.outline.fault("W403", message, place)]


def one_model_per_group(facts: Facts) -> list[Finding]:
    findings = []
    said: dict[int, tuple[str, ModelSpec]] = {}
    for node in facts.written:
        config = facts.configs.get(node.node_id)
        if config is None or config.model is None:
            continue
        place = ("nodes", node.node_id, "config", "model")
        if node.kind in (NodeKind.ADVANTAGES, NodeKind.REWARD, NodeKind.ENV):
            message = f"config.model does nothing on '{node.node_id}', a node of kind {node.kind}"
            findings.append(facts.outline.fault("E207", message, place, on_key=True))
            continue
        first = said.setdefault(node.agent_group, (node.node_id, config.model))
        if given(first[1]) != given(config.model):
            message = f"'{first[0]}' and '{node.node_id}' give agent group {node.agent_group} different models"
            hint = f"set agent_groups.{node.agent_group}.model instead"
            findings.append(facts.outline.fault("E215", message, place, hint=hint, on_key=True))
    return findings


def one_way_to_update_a_critic(facts: Facts) -> list[Finding]:
    by_id = {node.node_id: node for node in facts.written}
    findings = []
    for merged in facts.of_kind(NodeKind.TRAIN_CRITIC):
        first, *others = [by_id[name] for name in merged.merged_ids] or [merged]
        for node in others:
            if node.critic != first.critic:
                message = f"'{first.node_id}' and '{node.node_id}' update one shared critic in different ways"
                place = ("nodes", node.node_id, "config")
                findings.append(facts.outline.fault("E215", message, place, hint="give both the same critic settings"))
    return findings


def critics_share_a_tokenizer(facts: Facts) -> list[Finding]:
    findings = []
    for group in facts.groups:
        owner = group.critic_owner
        if owner is None or owner == group.index:
            continue
        ours, theirs = _tokenizer(group.model), _tokenizer(facts.groups[owner].model)
        if ours != theirs:
            sharer = next(node for node in facts.written if node.agent_group == group.index and _is_critic(node))
            message = f"agent group {group.index} shares the critic of group {owner} but has another model or tokenizer"
            place = ("nodes", sharer.node_id, "agent_options", "share_instance")
            hint = f"group {owner}: {theirs[0]}; group {group.index}: {ours[0]}; give both the same 'tokenizer'"
            findings.append(facts.outline.fault("E213", message, place, hint=hint))
    return findings


def _is_critic(node: Node) -> bool:
    return node.kind in (NodeKind.VALUES, NodeKind.TRAIN_CRITIC)


def _tokenizer(model: ModelSpec) -> tuple[str | None, str]:
    if model.tokenizer is not None:
        return model.tokenizer, ""
    return model.path or model.recipe, "" if model.path is not None else repr(sorted(model.recipe_kwargs.items()))


def node_config_has_effect(facts: Facts) -> list[Finding]:
    """Sections of a node's `config` that its kind does not use, unless they say what holds anyway."""
    findings = []
    for node in facts.written:
        config = facts.configs.get(node.node_id)
        if config is None:
            continue
        for section, users in SECTION_USERS.items():
            told = getattr(config, section)
            if told is None or node.kind in users or _said_elsewhere(facts, node, section):
                continue
            message = f"config.{section} does nothing on '{node.node_id}', a node of kind {node.kind}"
            place = ("nodes", node.node_id, "config", section)
            findings.append(facts.outline.fault("W403", message, place, on_key=True))
        findings += _run_wide(facts, node, "rollout", config.rollout)
        findings += _run_wide(facts, node, "algorithm", config.algorithm)
    return findings


def _said_elsewhere(facts: Facts, node: Node, section: str) -> bool:
    """True where another node of the group, of a kind that uses it, says the same (siiRL's shared anchors)."""
    told = getattr(facts.configs[node.node_id], section)
    if section == "rollout" and not set(given(told)) & set(_NODE_ROLLOUT):
        return True
    users = [other for other in facts.written if other.kind in SECTION_USERS[section]]
    return any(
        getattr(facts.configs[other.node_id], section) == told
        for other in users
        if other.agent_group == node.agent_group and other.node_id in facts.configs
    )


def _run_wide(facts: Facts, node: Node, section: str, told: RolloutSpec | AlgorithmSpec | None) -> list[Finding]:
    """What a node says of `section` that holds for the whole run, and says otherwise."""
    whole = getattr(facts.spec.config, section)
    shared = [name for name in given(told) if (name in _RUN_ALGORITHM) == (section == "algorithm")]
    return [
        facts.outline.fault(
            "E207",
            f"{section}.{name} is for the whole run, not for '{node.node_id}' alone",
            ("nodes", node.node_id, "config", section, name),
            hint=f"set config.{section}.{name} (now {getattr(whole, name)})",
            on_key=True,
        )
        for name in shared
        if name not in _NODE_ROLLOUT and getattr(told, name) != getattr(whole, name)
    ]


def val_without_names_rollouts(facts: Facts) -> list[Finding]:
    ids = [node.node_id for node in facts.of_kind(NodeKind.ROLLOUT)]
    return [
        facts.outline.fault(
            "E406",
            f"val_without names '{name}', which is no ROLLOUT node",
            ("config", "trainer", "val_without", index),
            hint=did_you_mean(name, ids),
        )
        for index, name in enumerate(facts.spec.config.trainer.val_without)
        if name not in ids
    ]
