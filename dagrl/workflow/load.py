"""The door to YAML: text into a tree of values with places, by the rules of YAML 1.2 and with limits on its size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from dagrl.errors import DagrlError, Finding, WorkflowError
from dagrl.workflow.tree import COMMAND_LINE, Item, Key, Mark, Reference, container, finding

MAX_DEPTH = 64
MAX_VALUES = 100_000
"""Values of one file with all aliases written out; a bomb of aliases has millions."""
MAX_BYTES = 1_000_000

_INT = re.compile(r"[-+]?[0-9]{1,300}")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,300}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_YAML_TAG = "tag:yaml.org,2002:"
_TYPE_OF_TAG = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "null": (type(None),),
}


@dataclass(frozen=True, slots=True)
class Source:
    """One file, composed."""

    root: Item
    reused_keys: frozenset[str]
    """Top-level keys that hold an anchor which an alias refers to."""
    findings: tuple[Finding, ...]
    """Duplicate keys and the like, with which the rest can still be read."""


def read_text(path: Path) -> str:
    """The text of a workflow file; every way in which it cannot be read is a `DagrlError`."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DagrlError(f"no such file: {path}", how=_neighbours(path)) from None
    except IsADirectoryError:
        raise DagrlError(f"{path} is a folder, not a workflow file", how=_neighbours(path / "workflow.yaml")) from None
    except (OSError, ValueError) as error:
        raise DagrlError(f"cannot read {path}: {error}") from None
    if len(data) > MAX_BYTES:
        raise DagrlError(f"{path} has {len(data)} bytes; a workflow file has at most {MAX_BYTES}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DagrlError(f"not UTF-8 text (byte {error.start})", f"{path}:{line}", "save it as UTF-8") from None


def _neighbours(path: Path) -> str | None:
    if not path.parent.is_dir():
        return None
    found = sorted(other.name for other in path.parent.iterdir() if other.suffix in (".yaml", ".yml"))
    return f"workflow files in {path.parent}: {', '.join(found[:8])}" if found else None


def compose(text: str, file: str) -> Source:
    """The tree of a file's text. Raises `WorkflowError` where the text is not YAML that we read."""
    composer = _Composer(file=file, lines=text.splitlines())
    try:
        composer.events = yaml.parse(text, Loader=yaml.SafeLoader)
        root = composer.document()
    except yaml.YAMLError as error:
        raise WorkflowError([_syntax_finding(error, text, composer)]) from None
    return Source(root, frozenset(composer.reused_keys), tuple(composer.findings))


def parse_value(text: str, mark: Mark) -> Item:
    """A value given on the command line, by the rules of the file. Raises `WorkflowError`."""
    try:
        source = compose(text, COMMAND_LINE)
        if source.findings:
            raise WorkflowError(source.findings)
    except WorkflowError as error:
        found = [replace(one, line=None, column=None, source=None) for one in error.findings]
        raise WorkflowError(found) from None
    return _moved(source.root, mark)


def _moved(item: Item, mark: Mark) -> Item:
    if isinstance(item.value, dict):
        members = {key: replace(_moved(member, mark), key=mark) for key, member in item.value.items()}
        return container(members, mark)
    if isinstance(item.value, list):
        return container([_moved(member, mark) for member in item.value], mark)
    return Item(item.value, mark)


def _syntax_finding(error: yaml.YAMLError, text: str, composer: _Composer) -> Finding:
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, yaml.reader.ReaderError):
        line, column = text.count("\n", 0, error.position), error.position - text.rfind("\n", 0, error.position) - 1
        place = Mark(composer.file, line + 1, column + 1)
        return finding("E101", f"not YAML: the control character {text[error.position]!r}", place, hint="remove it")
    if mark is None:
        return finding("E101", f"not YAML: {' '.join(str(error).split())}", Mark(composer.file))
    problem = getattr(error, "problem", None) or "cannot be read"
    context = getattr(error, "context", None)
    message = f"not YAML: {problem}" if context is None else f"not YAML: {problem} {context}"
    return finding("E101", message, composer.mark(mark), hint="look for a missing quote, colon or space of indent")


def scalar(text: str) -> Any:
    """The value of a plain scalar: null, bool, int, float or text (YAML 1.2: `yes`, `on`, `12:30` are texts)."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _HEX.fullmatch(text):
        return int(text, 16)
    return float(text) if _FLOAT.fullmatch(text) else text


@dataclass(slots=True)
class _Composer:
    """Builds items from the events of the parser, so that depth and aliases are bounded while it reads."""

    file: str
    lines: list[str]
    events: Iterator[Any] = field(default_factory=lambda: iter(()))
    findings: list[Finding] = field(default_factory=list)
    reused_keys: set[str] = field(default_factory=set)
    anchors: dict[str, Item | None] = field(default_factory=dict)
    """None while the anchored value is still being read."""
    owner_of: dict[str, str] = field(default_factory=dict)
    """The top-level key that an anchor stands under."""
    owner: str = ""

    def mark(self, mark: Any) -> Mark:
        line = self.lines[mark.line] if mark.line < len(self.lines) else ""
        return Mark(self.file, mark.line + 1, mark.column + 1, line)

    def document(self) -> Item:
        root: Item | None = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    self.refuse("a second YAML document: a file holds one workflow", self.mark(event.start_mark))
                root = self.node(next(self.events), 0)
        return Item(None, Mark(self.file, 1, 1, self.lines[0] if self.lines else "")) if root is None else root

    def refuse(self, message: str, mark: Mark, hint: str | None = None) -> None:
        raise WorkflowError([*self.findings, finding("E101", message, mark, hint=hint)])

    def node(self, event: Any, depth: int) -> Item:
        mark = self.mark(event.start_mark)
        if depth > MAX_DEPTH:
            self.refuse(f"nested deeper than {MAX_DEPTH} levels", mark)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(str(event.anchor), mark, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
            self.owner_of[event.anchor] = self.owner
        if isinstance(event, yaml.ScalarEvent):
            item = Item(self.scalar(event, mark), mark)
        elif isinstance(event, yaml.SequenceStartEvent):
            item = self.sequence(event, mark, depth)
        else:
            item = self.mapping(event, mark, depth)
        if item.size > MAX_VALUES:
            self.refuse(f"more than {MAX_VALUES} values once aliases are written out", mark)
        if event.anchor is not None:
            self.anchors[event.anchor] = item
        return item

    def alias(self, name: str, mark: Mark, depth: int) -> Item:
        if name not in self.anchors:
            self.refuse(f"alias *{name} has no anchor before it", mark, f"write &{name} before the value it means")
        item = self.anchors[name]
        if item is None:
            self.refuse(f"alias *{name} stands inside its own value", mark)
        assert item is not None
        if depth + item.height > MAX_DEPTH:
            self.refuse(f"nested deeper than {MAX_DEPTH} levels", mark)
        self.reused_keys.add(self.owner_of[name])
        return item

    def scalar(self, event: Any, mark: Mark) -> Any:
        if event.tag is None:
            return scalar(event.value) if event.style is None else event.value
        if event.tag == "!":
            return event.value
        if event.tag == "!Ref":
            return Reference(event.value)
        return self.tagged(event, mark)

    def tagged(self, event: Any, mark: Mark) -> Any:
        name = event.tag.removeprefix(_YAML_TAG)
        if name == "str":
            return event.value
        value = scalar(event.value)
        if name not in _TYPE_OF_TAG or not event.tag.startswith(_YAML_TAG):
            self.refuse(f"tag {_shown_tag(event.tag)} is not read", mark, "plain values, anchors and !Ref are")
        if not isinstance(value, _TYPE_OF_TAG[name]):
            self.findings.append(finding("E101", f"{event.value!r} is not of the type that !!{name} says", mark))
        return value

    def sequence(self, event: Any, mark: Mark, depth: int) -> Item:
        self.check_tag(event, "seq", mark)
        members = []
        while not isinstance(inner := next(self.events), yaml.SequenceEndEvent):
            members.append(self.node(inner, depth + 1))
        return container(members, mark)

    def check_tag(self, event: Any, name: str, mark: Mark) -> None:
        if event.tag not in (None, "!", _YAML_TAG + name):
            self.refuse(f"tag {_shown_tag(event.tag)} is not read", mark, "plain values, anchors and !Ref are")

    def mapping(self, event: Any, mark: Mark, depth: int) -> Item:
        self.check_tag(event, "map", mark)
        members: dict[Key, Item] = {}
        merged: dict[Key, Item] = {}
        while not isinstance(inner := next(self.events), yaml.MappingEndEvent):
            key, place = self.key(inner, depth)
            if depth == 0:
                self.owner = str(key)
            value = replace(self.node(next(self.events), depth + 1), key=place)
            if _is_merge_key(inner):
                merged = {**self.merged_members(value), **merged}
            elif any(str(key) == str(other) for other in members):
                first = next(other.key for name, other in members.items() if str(name) == str(key))
                assert first is not None
                self.findings.append(finding("E102", f"key '{key}' is given twice (first on line {first.line})", place))
            else:
                members[key] = value
        names = {str(key) for key in members}
        inherited = {key: member for key, member in merged.items() if str(key) not in names}
        return container({**inherited, **members}, mark)

    def key(self, event: Any, depth: int) -> tuple[Key, Mark]:
        mark = self.mark(event.start_mark)
        item = self.node(event, depth + 1)
        if isinstance(item.value, (dict, list, Reference)) or item.value is None:
            self.refuse("a key must be a text or a whole number", mark)
        is_whole = isinstance(item.value, int) and not isinstance(item.value, bool)
        return (item.value if is_whole else str(getattr(event, "value", item.value))), mark

    def merged_members(self, item: Item) -> dict[Key, Item]:
        """The members that `<<` brings: of one mapping, or of several of which the first goes before the others."""
        sources = item.value if isinstance(item.value, list) else [item]
        merged: dict[Key, Item] = {}
        for source in sources:
            if not isinstance(source.value, dict):
                self.refuse("'<<' takes a mapping or a list of mappings", item.mark, "write <<: *name_of_an_anchor")
            merged = {**source.value, **merged}
        return merged


def _is_merge_key(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.style is None


def _shown_tag(tag: str) -> str:
    return f"!!{tag.removeprefix(_YAML_TAG)}" if tag.startswith(_YAML_TAG) else tag


class _Dumper(yaml.SafeDumper):
    """Writes texts in quotes where `scalar` would read them as something else."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if isinstance(scalar(text), str) else "'"
    return dumper.represent_scalar(_YAML_TAG + "str", text, style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]


def dump(value: Any) -> str:
    """YAML text that `compose` reads as the same value; keys stay in their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
