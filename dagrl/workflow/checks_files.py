"""Whether the user's files and the names in them exist, found by reading and not by running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from dagrl.errors import Finding, PluginError
from dagrl.workflow import plugins
from dagrl.workflow.facts import Facts
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.tree import Path as Place
from dagrl.workflow.tree import find

_HOOKS = ("pre_process", "post_process")


def named_code_exists(facts: Facts) -> list[Finding]:
    """Every file that the workflow names is there and says the name; modules of packages are not looked for."""
    findings = []
    for place, ref in _references(facts):
        file, _, name = ref.rpartition(":")
        if file.endswith(".py"):
            findings += _look(facts, place, file, (name,))
    for node in facts.nodes:
        if node.options.process_path is not None:
            place = ("nodes", node.node_id, "agent_options", "process_path")
            findings += _look(facts, place, node.options.process_path, _HOOKS)
    return findings


def _references(facts: Facts) -> Iterator[tuple[Place, str]]:
    for node in facts.nodes:
        for index, ref in enumerate(node.options.env_path):
            yield ("nodes", node.node_id, "agent_options", "env_path", index), ref
        if node.options.when is not None:
            yield ("nodes", node.node_id, "agent_options", "when"), node.options.when
        for index, part in enumerate(node.options.rewards):
            yield ("nodes", node.node_id, "agent_options", "rewards", index, "fn"), part.fn
        if node.executable_ref is not None:
            yield ("nodes", node.node_id, "executable_ref"), node.executable_ref
    for key in ("adv_estimator", "policy_loss"):
        yield ("config", "algorithm", key), getattr(facts.spec.config.algorithm, key)
    for recipe in sorted({group.model.recipe for group in facts.groups if group.model.recipe is not None}):
        yield ("config", "model", "recipe"), recipe


def _look(facts: Facts, place: Place, file: str, wanted: tuple[str, ...]) -> list[Finding]:
    """A finding where the file is missing, is not Python, or has none of the wanted names."""
    item = find(facts.outline.tree, place)
    at = place if item is not None else place[:-1]
    try:
        found = plugins.resolve_path(file, facts.base)
        names = _names(found)
    except PluginError as error:
        where = "" if error.where is None else f" ({error.where})"
        return [facts.outline.fault("E301", error.what + where, at, hint=error.how)]
    if names is None or any(name.split(".")[0] in names for name in wanted):
        return []
    hint = did_you_mean(wanted[0], names) or "the file defines no class or function"
    return [facts.outline.fault("E301", f"no '{' or '.join(wanted)}' in {file}", at, hint=hint)]


def _names(file: Path) -> set[str] | None:
    """The public names that a file sets at its top level; None where that cannot be told by reading."""
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise PluginError(f"syntax error: {error}", where=f"{file}:{line}" if line else str(file)) from error
    names: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(statement.name)
        elif isinstance(statement, ast.Assign):
            names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name.split(".")[0] for alias in statement.names}
        elif not isinstance(statement, (ast.Expr, ast.AnnAssign)):
            return None
    return None if "*" in names else names
