"""Checks of CREDIT nodes: where they stand, what their rule needs, and that no reward is counted twice."""

from __future__ import annotations

from collections.abc import Iterator

from dagrl.errors import Finding
from dagrl.workflow.facts import Facts, only_one
from dagrl.workflow.kinds import Node, NodeKind, is_chained
from dagrl.workflow.tree import Path

USES = {
    "instead": ("difference", "leave_one_out", "shapley"),
    "text": ("difference", "leave_one_out", "shapley"),
    "samples": ("leave_one_out", "siblings"),
    "permutations": ("shapley",),
}
"""Rules that each option of `credit` is for; those that are not named are for all."""
MODEL_JUDGE = ("url", "model", "prompt", "scale", "max_tokens", "timeout_s", "budget_s")
"""`reward_kwargs` of a model as a judge, as `rewards.judge.Rubric` has them; the first two are needed."""


def one_credit_node(facts: Facts) -> list[Finding]:
    hint = "keep one of them, or the reward is counted twice"
    return only_one(facts, NodeKind.CREDIT, "shares the reward out", code="E403", hint=hint)


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
        for node in facts.of_kind(NodeKind.REWARD):
            for key in ("correct_reward_weight", "incorrect_reward_weight"):
                if getattr(node.options, key) != 1.0:
                    message = f"{key} weighs what '{node.node_id}' gives out; '{credit.node_id}' gives it out instead"
                    place = ("nodes", node.node_id, "agent_options", key)
                    findings.append(facts.outline.fault("E406", message, place, hint="take one of the two away"))
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
    yield from _of_judge(node)
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


def _of_judge(node: Node) -> Iterator[tuple[str, str, Path, str | None]]:
    """A judge is a function, or a model whose address stands in `reward_kwargs`."""
    kwargs, place = node.options.reward_kwargs, ("agent_options", "reward_kwargs")
    if node.options.credit.rule != "judge":
        if node.executable_ref is not None or kwargs:
            message = f"'{node.node_id}' names a judge, and its rule is {node.options.credit.rule}"
            yield "E406", message, ("executable_ref",), "set agent_options.credit.rule: judge"
    elif node.executable_ref is None:
        if missing := [key for key in MODEL_JUDGE[:2] if key not in kwargs]:
            hint = "executable_ref: path.py:function, or reward_kwargs: {url: http://host:port/v1, model: name}"
            yield "E406", f"the judge of '{node.node_id}' is not named: no {' and no '.join(missing)}", place, hint
        for key in sorted(set(kwargs) - set(MODEL_JUDGE)):
            yield "E406", f"a model as a judge has no {key}", place, f"it has {', '.join(MODEL_JUDGE)}"
