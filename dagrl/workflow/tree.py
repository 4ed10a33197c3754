"""A workflow file as a tree of values that know where they stand: the file, the line, the column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagrl.errors import Finding

COMMAND_LINE = "command line"

Key = str | int
Path = tuple[Key, ...]
"""A place in the tree; nodes may be named by their id: `("nodes", "actor_train", "agent_options")`."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file."""

    file: str
    """The path as it is shown; `COMMAND_LINE` for overrides."""
    line: int | None = None
    """From 1."""
    column: int | None = None
    """From 1."""
    source: str | None = None
    """The text of the line."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The value of `!Ref path.to.value` before it is looked up."""

    path: str


@dataclass(frozen=True, slots=True)
class Item:
    """One value of the file."""

    value: Any
    """A scalar, a `Reference`, a list of items, or a dict from str or int to items."""
    mark: Mark
    key: Mark | None = None
    """Where its key stands; None for members of lists and the root."""
    size: int = 1
    """Values in it when all aliases are written out."""
    height: int = 0
    """Levels below it."""

    @property
    def children(self) -> dict[Key, Item]:
        """Its members by key or position; empty for a scalar."""
        if isinstance(self.value, dict):
            return self.value
        if isinstance(self.value, list):
            return dict(enumerate(self.value))
        return {}


def container(value: dict[Key, Item] | list[Item], mark: Mark, key: Mark | None = None) -> Item:
    """A dict or list with its size and height counted."""
    members = list(value.values()) if isinstance(value, dict) else value
    height = 1 + max((member.height for member in members), default=0)
    return Item(value, mark, key, 1 + sum(member.size for member in members), height)


def plain(item: Item) -> Any:
    """The bare Python value."""
    if isinstance(item.value, dict):
        return {key: plain(member) for key, member in item.value.items()}
    if isinstance(item.value, list):
        return [plain(member) for member in item.value]
    return item.value


def child(item: Item, part: Key) -> Item | None:
    """The member that `part` names: a key, a position, or the id of a node in a list of nodes."""
    if isinstance(item.value, dict):
        return next((member for key, member in item.value.items() if str(key) == str(part)), None)
    if not isinstance(item.value, list):
        return None
    if str(part).isdecimal() and int(part) < len(item.value):
        by_id = _node_named(item.value, part)
        return item.value[int(part)] if by_id is None else by_id
    return _node_named(item.value, part)


def _node_named(members: list[Item], part: Key) -> Item | None:
    return next((member for member in members if node_id_of(member) == str(part)), None)


def node_id_of(item: Item) -> str | None:
    """The `node_id` of a node of the file, if it has one that is a text."""
    if not isinstance(item.value, dict):
        return None
    named = item.value.get("node_id")
    return named.value if named is not None and isinstance(named.value, str) else None


def nearest_item(root: Item, path: Sequence[Key]) -> tuple[Item, int]:
    """The deepest item on the way to `path`, and how many parts of the path lead to it."""
    item = root
    for depth, part in enumerate(path):
        below = child(item, part)
        if below is None:
            return item, depth
        item = below
    return item, len(path)


def find(root: Item, path: Sequence[Key]) -> Item | None:
    """The item at `path`, or None."""
    item, depth = nearest_item(root, path)
    return item if depth == len(path) else None


def merge(base: Item, top: Item) -> Item:
    """`base` with `top` over it: mappings member by member, `nodes` by node_id, everything else replaced."""
    if not isinstance(base.value, dict) or not isinstance(top.value, dict):
        return top
    merged: dict[Key, Item] = dict(base.value)
    names: dict[str, Key] = {str(key): key for key in merged}
    for key, member in top.value.items():
        own = names.setdefault(str(key), key)
        if own not in merged:
            merged[own] = member
        elif key == "nodes":
            merged[own] = _merge_nodes(merged[own], member)
        else:
            merged[own] = merge(merged[own], member)
    return container(merged, top.mark, top.key)


def _merge_nodes(base: Item, top: Item) -> Item:
    if not isinstance(base.value, list) or not isinstance(top.value, list):
        return top
    ids = [node_id_of(node) for node in base.value]
    nodes: list[Item] = list(base.value)
    for node in top.value:
        name = node_id_of(node)
        if name is not None and name in ids:
            place = ids.index(name)
            nodes[place] = merge(nodes[place], node)
        else:
            nodes.append(node)
    return container(nodes, top.mark, top.key)


def without(item: Item, *keys: str) -> Item:
    """A mapping without some of its keys."""
    kept = {key: member for key, member in item.value.items() if key not in keys}
    return container(kept, item.mark, item.key)


def with_members(item: Item, **members: Item) -> Item:
    """A mapping with some members set."""
    merged: dict[Key, Item] = {**item.value}
    merged.update(members)
    return container(merged, item.mark, item.key)


def scalar_like(item: Item, value: Any) -> Item:
    """Another value in the place of a scalar."""
    return replace(item, value=value)


def finding(code: str, message: str, mark: Mark | None, field: str | None = None, hint: str | None = None) -> Finding:
    """A finding at a place of the file."""
    if mark is None:
        return Finding(code=code, message=message, field=field, hint=hint)
    return Finding(
        code=code,
        message=message,
        file=mark.file,
        line=mark.line,
        column=mark.column,
        field=field,
        hint=hint,
        source=mark.source,
    )


def dotted(path: Sequence[Key]) -> str:
    return ".".join(str(part) for part in path)
