"""Checks that load the user's code: hooks, environments, functions, and their signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from dagrl.errors import DagrlError, Finding
from dagrl.workflow import plugins, signatures
from dagrl.workflow.facts import Facts
from dagrl.workflow.kinds import Node, NodeKind
from dagrl.workflow.reward_options import JUDGE, REWARD_REFS
from dagrl.workflow.tree import Key, find


def hooks(facts: Facts) -> list[Finding]:
    findings = []
    for node in facts.nodes:
        if node.options.process_path is not None:
            place = ("nodes", node.node_id, "agent_options")
            findings += _caught(facts, (*place, "process_path"), partial(_hooks, facts, node.options))
    return findings


def _hooks(facts: Facts, options: Any) -> None:
    module = plugins.load_module(options.process_path, facts.base)
    pre, post = getattr(module, "pre_process", None), getattr(module, "post_process", None)
    if pre is None and post is None:
        known = ", ".join(name for name in vars(module) if not name.startswith("_"))
        raise DagrlError("has neither pre_process nor post_process", where=str(module.__file__), how=f"it has {known}")
    if pre is not None:
        signatures.check_pre_process(pre, options.pre_process_kwargs)
    if post is not None:
        signatures.check_post_process(post, options.post_process_kwargs)


def environments(facts: Facts) -> list[Finding]:
    findings = []
    for node in facts.nodes:
        for index, ref in enumerate(node.options.env_path):
            place: tuple[Key, ...] = ("nodes", node.node_id, "agent_options", "env_path", index)
            check = partial(signatures.check_env_class, kwargs=node.options.env_kwargs)
            findings += _caught(facts, place, partial(_load, facts, ref, check))
    return findings


def functions(facts: Facts) -> list[Finding]:
    findings = []
    for place, ref, check in _references(facts):
        findings += _caught(facts, place, partial(_load, facts, ref, check))
    return findings


def _references(facts: Facts) -> Iterator[tuple[tuple[Key, ...], str, Callable[[Any], None]]]:
    """Every function that the workflow names, where it does, and what its signature must be."""
    for node in facts.nodes:
        place: tuple[Key, ...] = ("nodes", node.node_id)
        if node.kind in (NodeKind.REWARD, NodeKind.CREDIT) and node.executable_ref is not None:
            reward = partial(signatures.check_reward, kwargs=node.options.reward_kwargs)
            yield (*place, "executable_ref"), node.executable_ref, reward
        for index, part in enumerate(node.options.rewards):
            check = signatures.check_judge if part.fn == JUDGE else signatures.check_reward
            at: tuple[Key, ...] = (*place, "agent_options", "rewards", index, "fn")
            yield at, REWARD_REFS.get(part.fn, part.fn), partial(check, kwargs=part.kwargs)
        if node.kind is NodeKind.COMPUTE and node.executable_ref is not None:
            yield (*place, "executable_ref"), node.executable_ref, signatures.check_compute
        if node.kind is NodeKind.ADVANTAGES and plugins.is_reference(node.algorithm.adv_estimator):
            yield _place_of(facts, node, "adv_estimator"), node.algorithm.adv_estimator, signatures.check_estimator
        if node.kind is NodeKind.TRAIN_ACTOR and plugins.is_reference(node.algorithm.policy_loss):
            yield _place_of(facts, node, "policy_loss"), node.algorithm.policy_loss, signatures.check_policy_loss
        if node.options.when is not None:
            yield (*place, "agent_options", "when"), node.options.when, signatures.check_when
    for group in facts.groups:
        if group.model.recipe is not None:
            recipe = partial(signatures.check_recipe, kwargs=group.model.recipe_kwargs)
            yield ("config", "model", "recipe"), group.model.recipe, recipe


def _place_of(facts: Facts, node: Node, key: str) -> tuple[Key, ...]:
    """Where the function that an ADVANTAGES or TRAIN_ACTOR node uses is named."""
    own: tuple[Key, ...] = ("nodes", node.node_id, "config", "algorithm", key)
    if node.executable_ref is not None:
        return ("nodes", node.node_id, "executable_ref")
    return own if find(facts.outline.tree, own) is not None else ("config", "algorithm", key)


def _load(facts: Facts, ref: str, check: Callable[[Any], None]) -> None:
    check(plugins.load(ref, facts.base))


def _caught(facts: Facts, place: tuple[Key, ...], check: Callable[[], None]) -> list[Finding]:
    try:
        check()
    except DagrlError as error:
        item = find(facts.outline.tree, place)
        named = "" if item is None or not isinstance(item.value, str) else f"'{item.value}': "
        where = "" if error.where is None else f" ({error.where})"
        code = "E302" if "cannot be called" in error.what or "no method" in error.what else "E301"
        return [facts.outline.fault(code, f"{named}{error.what}{where}", place, hint=error.how)]
    return []
