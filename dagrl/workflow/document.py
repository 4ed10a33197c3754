"""One workflow with all its files: `!Ref` looked up, `extends` merged, siiRL's spelling turned into ours."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dagrl.errors import DagrlError, Finding, WorkflowError
from dagrl.workflow import dialects
from dagrl.workflow.load import MAX_DEPTH, MAX_VALUES, Source, compose, read_text
from dagrl.workflow.nearest import did_you_mean
from dagrl.workflow.tree import (
    COMMAND_LINE,
    Item,
    Key,
    Mark,
    Reference,
    child,
    container,
    dotted,
    finding,
    merge,
    nearest_item,
    scalar_like,
    without,
)

TOP_LEVEL = ("dag_id", "description", "extends", "agent_groups", "config", "nodes")


@dataclass(slots=True)
class Document:
    """The merged tree, and what was noticed on the way."""

    root: Item
    findings: list[Finding] = field(default_factory=list)
    ignored: list[tuple[str, Mark]] = field(default_factory=list)
    """siiRL's keys that mean nothing here, with their places."""


def load_document(path: Path) -> Document:
    """The file and what it extends, merged. Raises `DagrlError` where a file cannot be read at all."""
    return _load(path, ())


def _load(path: Path, inner: tuple[Path, ...]) -> Document:
    source = compose(read_text(path), str(path))
    findings = list(source.findings)
    root, referenced = _resolve_references(source.root, findings)
    if not isinstance(root.value, dict):
        got = "is empty" if root.value is None else "is not a mapping"
        message = f"the file {got}; a workflow is a mapping with dag_id, config and nodes"
        raise WorkflowError([*findings, finding("E104", message, root.mark)])
    own = _own_keys(root, source, referenced)
    document = Document(own, findings)
    document.root = dialects.normalise(own, document.findings, document.ignored)
    return _extended(document, path, (*inner, path))


def _own_keys(root: Item, source: Source, referenced: set[str]) -> Item:
    """Without the top-level keys that only hold values for use elsewhere."""
    spare = [
        str(key)
        for key in root.value
        if str(key) not in TOP_LEVEL
        and (str(key) in source.reused_keys | referenced or str(key).startswith("x-") or key == dialects.SHARED_VALUES)
    ]
    return without(root, *spare)


def _extended(document: Document, path: Path, chain: tuple[Path, ...]) -> Document:
    named = child(document.root, "extends")
    if named is None:
        return document
    document.root = without(document.root, "extends")
    place = named.key or named.mark
    if not isinstance(named.value, str):
        document.findings.append(finding("E106", "extends takes the path of one workflow file", place, "extends"))
        return document
    target = Path(os.path.normpath(path.parent / Path(named.value).expanduser()))
    if target.resolve() in [file.resolve() for file in chain]:
        ring = " → ".join(str(file) for file in (*chain, target))
        document.findings.append(finding("E106", f"files extend each other in a ring: {ring}", place, "extends"))
        return document
    try:
        base = _load(target, chain)
    except WorkflowError as error:
        document.findings.extend(error.findings)
        return document
    except DagrlError as error:
        document.findings.append(finding("E106", f"cannot extend: {error.what}", named.mark, "extends", error.how))
        return document
    root = merge(base.root, document.root)
    return Document(root, base.findings + document.findings, base.ignored + document.ignored)


# References


def _resolve_references(root: Item, findings: list[Finding]) -> tuple[Item, set[str]]:
    """The tree with every `!Ref` replaced, and the top-level keys that were referred to."""
    resolver = _Resolver(root, findings)
    return resolver.resolve(root, (), 0), resolver.top_keys


@dataclass(slots=True)
class _Resolver:
    root: Item
    findings: list[Finding]
    top_keys: set[str] = field(default_factory=set)
    num_values: int = 0

    def resolve(self, item: Item, pending: tuple[str, ...], depth: int) -> Item:
        self.num_values += 1
        if self.num_values > MAX_VALUES or depth > MAX_DEPTH:
            raise WorkflowError([*self.findings, finding("E101", "references grow without end", item.mark)])
        if isinstance(item.value, Reference):
            return self.target(item, pending, depth)
        if isinstance(item.value, dict):
            members = {key: self.resolve(member, pending, depth + 1) for key, member in item.value.items()}
            return container(members, item.mark, item.key)
        if isinstance(item.value, list):
            return container([self.resolve(member, pending, depth + 1) for member in item.value], item.mark, item.key)
        return item

    def target(self, item: Item, pending: tuple[str, ...], depth: int) -> Item:
        path = item.value.path.strip()
        if path in pending:
            ring = " → ".join((*pending, path))
            self.findings.append(finding("E105", f"references in a ring: {ring}", item.mark))
            return scalar_like(item, None)
        parts = _parts(path)
        found, known = nearest_item(self.root, parts)
        if not parts or known < len(parts):
            self.findings.append(_dangling(item, found, parts, known))
            return scalar_like(item, None)
        self.top_keys.add(str(parts[0]))
        return replace(self.resolve(found, (*pending, path), depth), key=item.key)


def _parts(path: str) -> tuple[Key, ...]:
    return tuple(part for part in path.split(".") if part)


def _dangling(item: Item, found: Item, parts: Sequence[Key], known: int) -> Finding:
    if not parts:
        return finding("E105", "!Ref names no path", item.mark, hint="write !Ref path.to.value")
    place = f"'{dotted(parts[:known])}'" if known else "the file"
    hint = did_you_mean(str(parts[known]), [str(key) for key in found.children])
    return finding("E105", f"!Ref {dotted(parts)}: {place} has no '{parts[known]}'", item.mark, hint=hint)


def anchor_paths(root: Item, main_file: str | None) -> Item:
    """File paths made absolute where the file exists beside the workflow file it was written in.

    Values written in `main_file` stay as they are: they are looked up from there anyway. None anchors them all.
    """
    return _anchored(root, main_file)


PATH_KEYS = ("process_path", "env_path", "executable_ref", "fn", "when", "recipe", "adv_estimator", "policy_loss",
             "train_files", "val_files", "files", "path", "tokenizer")  # fmt: skip
"""Keys whose texts may be paths of files."""


def _anchored(item: Item, main_file: str | None, key: Key | None = None) -> Item:
    if isinstance(item.value, dict):
        skip = ("pre_process_kwargs", "post_process_kwargs", "env_kwargs", "reward_kwargs", "recipe_kwargs", "kwargs")
        members = {
            name: member if name in skip else _anchored(member, main_file, name) for name, member in item.value.items()
        }
        return container(members, item.mark, item.key)
    if isinstance(item.value, list):
        return container([_anchored(member, main_file, key) for member in item.value], item.mark, item.key)
    if key not in PATH_KEYS or not isinstance(item.value, str) or item.mark.file in (main_file, COMMAND_LINE):
        return item
    return scalar_like(item, _absolute(item.value, Path(item.mark.file).parent))


def _absolute(reference: str, folder: Path) -> str:
    file, colon, name = reference.rpartition(":")
    if not colon:
        file, name = reference, ""
    beside = folder / file
    return f"{beside.resolve()}{colon}{name}" if file and os.path.exists(beside) else reference
