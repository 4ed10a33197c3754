"""The tree into the typed specs; what does not fit becomes findings with places and nearest words, all at once."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dagrl.errors import Finding
from dagrl.workflow.fields import Spec
from dagrl.workflow.nearest import did_you_mean, nearest
from dagrl.workflow.spec import NodeSpec, WorkflowSpec
from dagrl.workflow.tree import Item, Key, Path, child, container, dotted, finding, nearest_item, node_id_of, plain

_WHOLE = "must be a whole number"
_MESSAGES: dict[str, tuple[str, str]] = {
    "bool_parsing": ("E112", "must be true or false"),
    "bool_type": ("E112", "must be true or false"),
    "int_parsing": ("E112", _WHOLE),
    "int_type": ("E112", _WHOLE),
    "int_from_float": ("E112", _WHOLE),
    "int_parsing_size": ("E113", "is too large"),
    "float_parsing": ("E112", "must be a number"),
    "float_type": ("E112", "must be a number"),
    "finite_number": ("E113", "must be a finite number"),
    "string_type": ("E112", "must be a text"),
    "value_error": ("E406", "{error}"),
    "string_too_short": ("E113", "must not be empty"),
    "tuple_type": ("E112", "must be a list"),
    "list_type": ("E112", "must be a list"),
    "dict_type": ("E112", "must be a mapping"),
    "model_type": ("E112", "must be a mapping"),
    "model_attributes_type": ("E112", "must be a mapping"),
    "too_short": ("E113", "must have at least {min_length} member"),
    "too_long": ("E113", "has too many members"),
    "missing": ("E111", "is missing"),
    "extra_forbidden": ("E110", "unknown key"),
    "enum": ("E114", "is not one of the known words"),
    "literal_error": ("E114", "is not one of the known words"),
    "greater_than": ("E113", "must be greater than {gt}"),
    "greater_than_equal": ("E113", "must be at least {ge}"),
    "less_than": ("E113", "must be less than {lt}"),
    "less_than_equal": ("E113", "must be at most {le}"),
}
"""pydantic's kind of error → our code and words."""

_MAX_SHOWN = 60
"""Characters of a wrong value that a message shows."""
_KIND_KEYS = {"node_type", "node_role", "only_forward_compute"}
"""What says which kind a node is: with one of them wrong nothing else can be said of the node."""


def validate(model: type[Spec], tree: Item, prefix: Path = ()) -> tuple[Spec | None, list[Finding], list[Path]]:
    """The spec of `tree`, or None; the findings; and where in `tree` they stand.

    `prefix` is the path of `tree` in the whole file, for the field names.
    """
    try:
        return model.model_validate(plain(tree)), [], []
    except ValidationError as error:
        faults = _without_misspelt(model, _one_per_place(error.errors(include_url=False), tree))
    found = [_finding(model, tree, path, details, prefix) for path, details in faults]
    return None, found, [path for path, _ in faults]


def validate_workflow(tree: Item) -> tuple[WorkflowSpec | None, list[Finding], frozenset[str]]:
    """The whole file. Where only some keys are wrong the rest is given too, so that the graph is checked as well.

    Last come the ids of nodes that had to be left out of the spec.
    """
    spec, findings, paths = validate(WorkflowSpec, tree)
    left_out: set[str] = set()
    kindless = [path[:2] for path in paths if _hides_kind(path)]
    if spec is None:
        tree = _without_paths(tree, [path for path in paths if path[:2] not in kindless])
        spec, _, paths = validate(WorkflowSpec, tree)
    if spec is None:
        broken = kindless + [path[:2] for path in paths if path[:1] == ("nodes",) and len(path) > 1]
        left_out = {name for path in broken if (name := node_id_of(nearest_item(tree, path)[0])) is not None}
        spec, _, _ = validate(WorkflowSpec, _without_paths(tree, list(set(broken))))
    assert spec is None or isinstance(spec, WorkflowSpec)
    return spec, findings, frozenset(left_out)


def _hides_kind(path: Path) -> bool:
    """Whether a fault at `path` leaves open which kind a node is."""
    is_of_node = path[:1] == ("nodes",) and len(path) > 2
    return is_of_node and nearest(str(path[2]), NodeSpec.model_fields) in _KIND_KEYS


def _one_per_place(errors: Iterable[ErrorDetails], tree: Item) -> list[tuple[Path, ErrorDetails]]:
    """The first error of each place; the members of a union complain one by one."""
    first: dict[Path, ErrorDetails] = {}
    for details in errors:
        place = _place(tree, details)
        if not _is_emptied(tree, place, details):
            first.setdefault(place, details)
    return list(first.items())


def _is_emptied(tree: Item, place: Path, details: ErrorDetails) -> bool:
    """True for a list that pydantic calls too short because its members are wrong, which is told of each of them."""
    item, _ = nearest_item(tree, place)
    return details["type"] == "too_short" and isinstance(item.value, list) and bool(item.value)


def _without_misspelt(
    model: type[Spec], faults: Sequence[tuple[Path, ErrorDetails]]
) -> list[tuple[Path, ErrorDetails]]:
    """Leaves out a missing key where an unknown one beside it was meant to be it: that one says so."""
    meant = set()
    for path, details in faults:
        owner = model_at(model, path[:-1]) if details["type"] == "extra_forbidden" else None
        if owner is not None:
            meant.add((*path[:-1], nearest(str(path[-1]), owner.model_fields)))
    return [(path, details) for path, details in faults if details["type"] != "missing" or path not in meant]


def _place(tree: Item, details: ErrorDetails) -> Path:
    """The part of pydantic's location that exists in the file, and the name of a missing key."""
    item, path = tree, []
    for part in details["loc"]:
        below = child(item, part)
        if below is None:
            break
        item = below
        path.append(part)
    if details["type"] == "missing":
        path.append(details["loc"][-1])
    return tuple(path)


def _finding(model: type[Spec], tree: Item, path: Path, details: ErrorDetails, prefix: Path) -> Finding:
    kind = details["type"]
    code, words = _MESSAGES.get(kind, ("E112", details["msg"][:1].lower() + details["msg"][1:]))
    words = words.format(**details.get("ctx", {}))
    item, _ = nearest_item(tree, path)
    field = field_name(tree, path, prefix)
    name = str(path[-1]) if path else "the file"
    owner = model_at(model, path[:-1])
    if kind == "extra_forbidden":
        return finding(code, f"unknown key '{name}'", item.key or item.mark, field, _keys_hint(owner, name))
    if kind == "missing":
        return finding(code, f"'{name}' is missing", item.key or item.mark, field, f"add '{name}:' here")
    hint = _words_hint(owner, name, item.value) if code == "E114" else None
    if details.get("loc", ())[-1:] == ("[key]",):
        return finding("E112", f"key '{name}' must be a whole number", item.key or item.mark, field)
    return finding(code, f"{words}, got {shown(plain(item))}", item.mark, field, hint)


def shown(value: Any) -> str:
    """A value as a message shows it."""
    text = "nothing (null)" if value is None else repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def field_name(tree: Item, path: Path, prefix: Path = ()) -> str:
    """The dotted path with nodes by their id."""
    parts: list[Key] = list(prefix)
    item: Item | None = tree
    for part in path:
        item = None if item is None else child(item, part)
        name = None if item is None or parts != ["nodes"] else node_id_of(item)
        parts.append(part if name is None else name)
    return dotted(parts)


def _keys_hint(owner: type[BaseModel] | None, name: str) -> str | None:
    return None if owner is None else did_you_mean(name, owner.model_fields)


def _words_hint(owner: type[BaseModel] | None, name: str, value: Any) -> str | None:
    if owner is None or name not in owner.model_fields:
        return None
    return did_you_mean(str(value), [str(word) for word in _words(owner.model_fields[name].annotation)])


def _words(annotation: Any) -> list[str]:
    """The words that a field's type admits."""
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return [member.value for member in annotation]
    if get_origin(annotation) in (Union, types.UnionType):
        return [word for option in get_args(annotation) for word in _words(option)]
    arguments = get_args(annotation)
    return [str(word) for word in arguments] if arguments and all(isinstance(word, str) for word in arguments) else []


def model_at(model: type[BaseModel], path: Sequence[Key]) -> type[BaseModel] | None:
    """The spec class that the mapping at `path` belongs to."""
    current: Any = model
    for part in path:
        inner = _model_in(current)
        if inner is not None:
            if str(part) not in inner.model_fields:
                return None
            current = inner.model_fields[str(part)].annotation
        elif get_args(current):
            current = get_args(current)[1] if get_origin(current) is dict else get_args(current)[0]
        else:
            return None
    return _model_in(current)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return next((found for option in get_args(annotation) if (found := _model_in(option)) is not None), None)
    return _model_in(get_args(annotation)[0]) if get_origin(annotation) is Annotated else None


def _without_paths(tree: Item, paths: Sequence[Path]) -> Item:
    """The tree without the values at `paths`; later members of a list go first, so that positions stay right."""
    for path in sorted(paths, key=_position, reverse=True):
        if path:
            tree = _without_path(tree, path)
    return tree


def _position(path: Path) -> list[int]:
    return [int(part) if str(part).isdecimal() else -1 for part in path]


def _without_path(item: Item, path: Path) -> Item:
    first, *rest = path
    below = child(item, first)
    if below is None:
        return item
    if isinstance(item.value, list):
        kept = [_without_path(one, tuple(rest)) if one is below and rest else one for one in item.value]
        return container([one for one in kept if rest or one is not below], item.mark, item.key)
    members = {key: one for key, one in item.value.items() if one is not below}
    if rest:
        members = {key: _without_path(one, tuple(rest)) if one is below else one for key, one in item.value.items()}
    return container(members, item.mark, item.key)
