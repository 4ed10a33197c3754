"""`key=value` of the command line as small documents that extend the file."""

from __future__ import annotations

from collections.abc import Sequence

from dagrl.errors import Finding, WorkflowError
from dagrl.workflow import dialects
from dagrl.workflow.load import parse_value
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.tree import (
    COMMAND_LINE,
    Item,
    Key,
    Mark,
    child,
    container,
    find,
    finding,
    merge,
    node_id_of,
)

_TOP_KEYS = ("dag_id", "description", "agent_groups", "config", "nodes")
_SIIRL_ROOTS = ("actor_rollout_ref", "reward_model", "custom_reward_function", "dag")
"""First parts of siiRL's flags besides our own sections."""


def apply(root: Item, overrides: Sequence[str], findings: list[Finding], ignored: dialects.Ignored) -> Item:
    """`root` with every override over it, in their order; what cannot be applied becomes a finding."""
    for override in overrides:
        try:
            patch = _patch(root, override, ignored)
        except WorkflowError as error:
            findings.extend(error.findings)
        else:
            patch_findings: list[Finding] = []
            root = merge(root, dialects.normalise(patch, patch_findings, ignored))
            findings.extend(patch_findings)
    return root


def _patch(root: Item, override: str, ignored: dialects.Ignored) -> Item:
    mark = Mark(COMMAND_LINE)
    name, equals, text = override.partition("=")
    name = name.strip()
    parts = tuple(part for part in name.split(".") if part)
    if not equals or not parts:
        raise WorkflowError(
            [finding("E107", f"'{override}' is not key=value", mark, hint="for example trainer.total_steps=5")]
        )
    value = parse_value(text, mark)
    if parts[0] not in _TOP_KEYS:
        parts = ("config", *_known_root(name, parts, mark))
    if parts[0] == "nodes":
        return _node_patch(root, name, parts[1:], value, mark)
    return _nested(_listed(root, (), parts, value), mark)


def _known_root(name: str, parts: tuple[str, ...], mark: Mark) -> tuple[str, ...]:
    roots = (*dialects.SECTIONS, *_SIIRL_ROOTS)
    if parts[0] not in roots:
        hint = did_you_mean(parts[0], (*_TOP_KEYS, *dialects.SECTIONS))
        raise WorkflowError([finding("E107", f"no key '{parts[0]}'", mark, name, hint)])
    return parts


def _nested(path_and_value: tuple[tuple[Key, ...], Item], mark: Mark) -> Item:
    path, item = path_and_value
    for part in reversed(path):
        item = container({part: Item(item.value, item.mark, mark, item.size, item.height)}, mark)
    return item


def _node_patch(root: Item, name: str, parts: tuple[str, ...], value: Item, mark: Mark) -> Item:
    nodes = child(root, "nodes")
    found = [] if nodes is None or not isinstance(nodes.value, list) else nodes.value
    ids = [known for node in found if (known := node_id_of(node)) is not None]
    node, rest = _named_node(found, parts)
    if node is None or not rest or rest == ("node_id",):
        wanted = parts[0] if parts else ""
        message = f"no node '{wanted}'" if node is None else "names a node but no key of it that can be set"
        raise WorkflowError([finding("E107", message, mark, name, did_you_mean(wanted, ids))])
    inner = _nested(_listed(node, (), rest, value), mark)
    told: dict[Key, Item] = {key: node.value[key] for key in ("node_id", "node_type", "node_role") if key in node.value}
    patched = container({**told, **inner.value}, mark)
    return container({"nodes": container([patched], mark, mark)}, mark)


def _named_node(nodes: Sequence[Item], parts: tuple[str, ...]) -> tuple[Item | None, tuple[str, ...]]:
    """The node that the first parts name (an id may have dots in it), or the one at that position."""
    for end in range(len(parts), 0, -1):
        for node in nodes:
            if node_id_of(node) == ".".join(parts[:end]):
                return node, parts[end:]
    if parts and parts[0].isdecimal() and int(parts[0]) < len(nodes) and node_id_of(nodes[int(parts[0])]) is not None:
        return nodes[int(parts[0])], parts[1:]
    return None, parts


def _listed(base: Item, done: tuple[Key, ...], rest: tuple[str, ...], value: Item) -> tuple[tuple[Key, ...], Item]:
    """The path up to the first list of `base` on the way, and what to set there: the list with one member replaced."""
    for depth in range(1, len(rest)):
        there = find(base, rest[:depth])
        if there is not None and isinstance(there.value, list) and rest[depth].isdecimal():
            members = list(there.value)
            position, deeper = int(rest[depth]), rest[depth + 1 :]
            if position >= len(members):
                message = f"'{'.'.join(rest[:depth])}' has {len(members)} members, no member {position}"
                raise WorkflowError([finding("E107", message, value.mark, ".".join(rest))])
            path, inner = _listed(members[position], (), deeper, value) if deeper else ((), value)
            patch = _nested((path, inner), value.mark)
            members[position] = merge(members[position], patch) if deeper else patch
            return (*done, *rest[:depth]), container(members, value.mark, value.mark)
    return (*done, *rest), value
