"""Checks of CREDIT nodes: where they stand, what their rule needs, and that no reward is counted twice."""

from __future__ import annotations

from collections.abc import Iterator

from dagrl.errors import Finding
from dagrl.workflow.facts import Facts
from dagrl.workflow.kinds import Node, NodeKind, is_chained
from dagrl.workflow.tree import Path

USES = {
    "instead": ("difference", "leave_one_out", "shapley"),
    "text": ("difference", "leave_one_out", "shapley"),
    "samples": ("leave_one_out", "siblings"),
    "permutations": ("shapley",),
}
"""Rules that each option of `credit` is for; those that are not named are for all."""


def one_credit_node(facts: Facts) -> list[Finding]:
    nodes = facts.of_kind(NodeKind.CREDIT)
    if len(nodes) < 2:
        return []
    named = ", ".join(node.node_id for node in nodes)
    message = f"one CREDIT node shares the reward out, not {named}: it would be counted twice"
    return [facts.outline.fault("E403", message, ("nodes", nodes[1].node_id), hint="keep one of them")]


def credit_comes_between(facts: Facts) -> list[Finding]:
    """An ADVANTAGES node that did not wait would take its agents for worth nothing."""
    return [
        facts.outline.fault(
            "E210",
            f"'{node.node_id}' reads rewards that '{credit.node_id}' shares out, but is not among what waits for it",
            ("nodes", node.node_id, "dependencies"),
            hint=f"add '{credit.node_id}' to its dependencies",
        )
        for credit in facts.of_kind(NodeKind.CREDIT)
        for node in facts.of_kind(NodeKind.ADVANTAGES)
        if credit.node_id not in facts.ancestors[node.node_id]
    ]


def credit_counted_once(facts: Facts) -> list[Finding]:
    findings = []
    for credit in facts.of_kind(NodeKind.CREDIT):
        mode = facts.outline.spec.config.algorithm.reward_mode
        if mode in ("team", "chained"):
            message = f"reward_mode {mode} gives out the team's reward, and '{credit.node_id}' shares it out as well"
            place: Path = ("config", "algorithm", "reward_mode")
            findings.append(facts.outline.fault("E403", message, place, hint="take reward_mode away, or per_agent"))
        for node in facts.of_kind(NodeKind.ADVANTAGES):
            if is_chained(node.algorithm):
                message = f"'{credit.node_id}' gives every agent its credit, and {node.algorithm.adv_estimator} "
                message += "carries rewards from agent to agent as well: it would be counted once per agent"
                hint = "use an estimator that looks at each agent by itself, such as gae, grpo or reinforce_plus_plus"
                findings.append(facts.outline.fault("E403", message, ("nodes", credit.node_id), hint=hint))
    return findings


def credit_rules(facts: Facts) -> list[Finding]:
    return [
        facts.outline.fault(code, message, ("nodes", node.node_id, *place), hint=hint)
        for node in facts.of_kind(NodeKind.CREDIT)
        for code, message, place, hint in _of_rule(node, facts)
    ]


def _of_rule(node: Node, facts: Facts) -> Iterator[tuple[str, str, Path, str | None]]:
    credit, options = node.options.credit, ("agent_options", "credit")
    if (credit.rule == "judge") != (node.executable_ref is not None):
        if credit.rule == "judge":
            yield "E406", f"the judge of '{node.node_id}' is not named", options, "executable_ref: path.py:function"
        else:
            message = f"'{node.node_id}' names a judge, and its rule is {credit.rule}"
            yield "E406", message, ("executable_ref",), "set agent_options.credit.rule: judge"
    if (credit.instead == "text") != (credit.text is not None):
        message = "instead: text and text go together: the text stands in place of an agent's"
        yield "E406", message, (*options, "text" if credit.text is not None else "instead"), None
    if credit.rule == "leave_one_out" and credit.samples > facts.spec.config.rollout.n:
        message = f"leave_one_out wants {credit.samples} rollouts of a prompt, and rollout.n is "
        message += str(facts.spec.config.rollout.n)
        yield "E405", message, (*options, "samples"), "they go back to the samples of the prompt, one each"
    for key, rules in USES.items():
        if key in credit.model_fields_set and credit.rule not in rules:
            message = f"{key} does nothing: it belongs to the rules {', '.join(rules)}"
            yield "W403", message, (*options, key), None
