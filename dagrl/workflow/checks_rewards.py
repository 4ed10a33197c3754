"""Checks of REWARD nodes: where rewards come from, what they are made of, and that each is counted once."""

from __future__ import annotations

from collections.abc import Iterator

from dagrl.errors import Finding
from dagrl.workflow.facts import Facts, only_one
from dagrl.workflow.kinds import Node, NodeKind, is_chained
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.outline import Outline, kind
from dagrl.workflow.plugins import is_reference
from dagrl.workflow.reward_options import REWARD_REFS
from dagrl.workflow.tree import Path


def rewards_come_from_somewhere(facts: Facts) -> list[Finding]:
    if not facts.spec.config.rollout.rewards_with_env or facts.has_env:
        return []
    message = "rewards_with_env takes the rewards from the environment, but no node has one"
    hint = "give a ROLLOUT node an env_path, or add an ENV node"
    return [facts.outline.fault("E402", message, ("config", "rollout", "rewards_with_env"), hint=hint, on_key=True)]


def reward_counted_once(facts: Facts) -> list[Finding]:
    findings = []
    for node in facts.of_kind(NodeKind.ADVANTAGES):
        algorithm = node.algorithm
        if is_chained(algorithm) and algorithm.reward_mode == "team":
            message = (
                f"reward_mode team gives every agent the team's reward, and {algorithm.adv_estimator} carries it from "
                "agent to agent as well: it would be counted once per agent"
            )
            place: Path = ("config", "algorithm", "reward_mode")
            findings.append(facts.outline.fault("E403", message, place, hint="use reward_mode: chained, or gae"))
    return findings


def reward_reaches_all(facts: Facts) -> list[Finding]:
    trained = [group for group in facts.groups if group.is_trained]
    nodes = [node for node in facts.of_kind(NodeKind.ADVANTAGES) if not is_reference(node.algorithm.adv_estimator)]
    if len(trained) < 2 or not any(n.algorithm.reward_mode == "chained" and not is_chained(n.algorithm) for n in nodes):
        return []
    message = (
        "reward_mode chained gives the reward to the last turn alone, and "
        f"{nodes[0].algorithm.adv_estimator} does not carry it to the agents before"
    )
    return [facts.outline.fault("W404", message, ("config", "algorithm", "reward_mode"), hint="use reward_mode: team")]


def reward_nodes_have_effect(facts: Facts) -> list[Finding]:
    from_env = facts.spec.config.rollout.rewards_with_env
    findings = []
    for node in (node for node in facts.written if node.kind is NodeKind.REWARD):
        adds = node.options.combine == "add"
        place: Path = ("nodes", node.node_id, "agent_options", "combine")
        if from_env and not adds:
            message = f"rewards_with_env is true, so '{node.node_id}' scores nothing: the environment's rewards stand"
            hint = "set agent_options.combine: add to add to them, or take the node away"
            findings.append(facts.outline.fault("W401", message, place, hint=hint))
        if adds and not from_env:
            message = f"'{node.node_id}' adds to the environment's rewards, but rewards_with_env is false"
            findings.append(facts.outline.fault("W403", message, place))
    return findings


def one_reward_node(facts: Facts) -> list[Finding]:
    """Several REWARD nodes would each take away what the others gave; unless all leave it to the environment."""
    from_env = facts.spec.config.rollout.rewards_with_env
    if from_env and not any(node.options.combine == "add" for node in facts.of_kind(NodeKind.REWARD)):
        return []
    hint = "keep one: its function may give {group: number} or {(group, turn): number}"
    return only_one(facts, NodeKind.REWARD, "scores for all agents", code="E406", hint=hint)


def known_rewards(outline: Outline) -> list[Finding]:
    findings = []
    for node in (node for node in outline.spec.nodes if kind(node) is NodeKind.REWARD):
        place: Path = ("nodes", node.node_id, "agent_options", "rewards")
        options = node.agent_options
        for index, part in enumerate(options.rewards):
            if part.fn not in REWARD_REFS and not is_reference(part.fn):
                hint = f"{did_you_mean(part.fn, REWARD_REFS)}; or file.py:function"
                message = f"unknown reward '{part.fn}'"
                findings.append(outline.fault("E401", message, (*place, index, "fn"), hint=hint))
        for name in ("executable_ref", "reward_kwargs"):
            said = node.executable_ref if name == "executable_ref" else options.reward_kwargs
            if options.rewards and said:
                message = f"'{node.node_id}' has both rewards and {name}"
                hint = "name the function as one of rewards"
                findings.append(outline.fault("E406", message, place, hint=hint, on_key=True))
        shown = [part.shown for part in options.rewards]
        for name in sorted({name for name in shown if shown.count(name) > 1}):
            message = f"two rewards of '{node.node_id}' have the name {name}"
            findings.append(outline.fault("E406", message, place, hint="give one a name", on_key=True))
    return findings


def reward_weights_name_rollouts(facts: Facts) -> list[Finding]:
    ids = [node.node_id for node in facts.of_kind(NodeKind.ROLLOUT)]
    return [
        facts.outline.fault(
            "E406",
            f"{key} names '{name}', which is no ROLLOUT node",
            ("nodes", node.node_id, "agent_options", key),
            hint=did_you_mean(name, ids),
        )
        for node in facts.of_kind(NodeKind.REWARD)
        for key, name in _named_nodes(node)
        if name not in ids
    ]


def _named_nodes(node: Node) -> Iterator[tuple[str, str]]:
    options = node.options
    if options.outcome_node is not None:
        yield "outcome_node", options.outcome_node
    weights = {
        "correct_reward_weight": options.correct_reward_weight,
        "incorrect_reward_weight": options.incorrect_reward_weight,
    }
    for key, weight in weights.items():
        yield from ((key, name) for name in (weight if isinstance(weight, dict) else ()))
