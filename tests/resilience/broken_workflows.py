"""A workflow file with every key of `config`, and more than 1,000 ways to break it, each with what must be said."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from dagrl.workflow.graph import load_workflow
from dagrl.workflow.load import dump
from dagrl.workflow.schema import model_at
from dagrl.workflow.spec import WorkflowSpec

MARFT = Path(__file__).resolve().parents[2] / "workflows" / "marft.yaml"
FREE = {"pre_process_kwargs", "post_process_kwargs", "recipe_kwargs", "columns"}
"""Mappings whose keys are the user's own."""
_NEVER = {"save_freq", "test_freq"}
"""Keys that take null for never, as siiRL's files have it."""
_KEY = re.compile(r"^(?P<lead>\s*(?:- )?)(?P<key>\w+):(?: (?P<value>.+))?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A broken file and what must be said of it."""

    kind: str
    text: str
    line: int | None
    """Where the first error must point, from 1; None where any line will do."""
    codes: tuple[str, ...] = ()
    """Codes that the first error may have; any, where empty."""
    words: tuple[str, ...] = ()
    """What the output must hold: the right word, the names of the nodes."""
    may_be_whole: bool = False
    """The file may be right all the same: then the exit code is 0 and no error is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A `key: value` line of the base file."""

    number: int
    """From 0."""
    lead: str
    key: str
    value: str | None
    path: tuple[str | int, ...]
    """Of keys and positions, the key itself last."""

    def with_key(self, key: str) -> str:
        return f"{self.lead}{key}:" + ("" if self.value is None else f" {self.value}")

    def with_value(self, value: str) -> str:
        return f"{self.lead}{self.key}: {value}"

    @property
    def is_free(self) -> bool:
        return any(part in FREE for part in self.path[:-1]) or self.path[0] == "agent_groups"


def base_text() -> str:
    """MARFT's file with every key of `config` written out, a key a line."""
    workflow = load_workflow(MARFT)
    whole: dict[str, Any] = dict(workflow.resolved)
    whole["config"] = workflow.spec.config.model_dump(mode="json")
    return dump(whole)


def mutants(text: str) -> Iterator[Mutant]:
    """All of them, always the same."""
    rows = text.splitlines()
    lines = list(_lines(rows))
    for line in lines:
        yield from _of_key(rows, line)
        if line.value is not None:
            yield from _of_value(rows, line)
    yield from _of_edges(rows)
    yield from _torn(text)


def _of_key(rows: list[str], line: _Line) -> Iterator[Mutant]:
    at = line.number + 1
    yield Mutant(kind="duplicated", text=_text(_doubled(rows, line)), line=None, codes=("E102",), words=(line.key,))
    if line.is_free:
        return
    for wrong in _misspelt(line.key):
        text = _text(_replaced(rows, line, line.with_key(wrong)))
        yield Mutant(kind="misspelt key", text=text, line=at, codes=("E110",), words=(f"'{line.key}'",))
    if line.key in ("node_id", "node_type"):
        left = [*rows[: line.number], *rows[line.number + 1 :]]
        if line.key == "node_id":
            left[line.number] = line.lead + left[line.number].lstrip()
        yield Mutant(kind="missing", text=_text(left), line=None, words=(line.key,))


def _of_value(rows: list[str], line: _Line) -> Iterator[Mutant]:
    at = line.number + 1
    if line.is_free:
        return
    wrong_type = _text(_replaced(rows, line, line.with_value("{wrong: type}")))
    may_be_whole = line.key in FREE
    yield Mutant(kind="wrong type", text=wrong_type, line=at, may_be_whole=may_be_whole)
    if line.value != "null":
        null = _text(_replaced(rows, line, line.with_value("null")))
        yield Mutant(kind="null", text=null, line=None if _takes_null(line) else at, may_be_whole=_takes_null(line))
    words = _words(line)
    if line.value in words:
        for wrong in _misspelt(str(line.value)):
            text = _text(_replaced(rows, line, line.with_value(wrong)))
            yield Mutant(kind="misspelt word", text=text, line=at, codes=("E114",), words=(f"'{line.value}'",))
    if re.fullmatch(r"-?[\d.e+-]+", line.value):
        text = _text(_replaced(rows, line, line.with_value("soon")))
        yield Mutant(kind="word for a number", text=text, line=at, words=("soon",))


def _of_edges(rows: list[str]) -> Iterator[Mutant]:
    node, starts, edges = "", {}, []
    for number, row in enumerate(rows):
        named = re.match(r"- node_id: (\w+)$", row)
        if named:
            node, starts[named[1]] = named[1], number
        entry = re.match(r"  - (\w+)$", row)
        if entry and node:
            edges.append((number, node, entry[1]))
    for number, _, other in edges:
        for wrong in _misspelt(other):
            text = _text([*rows[:number], f"  - {wrong}", *rows[number + 1 :]])
            yield Mutant(kind="dangling", text=text, line=number + 1, codes=("E202",), words=(f"'{other}'",))
    for _, node, other in edges:
        yield Mutant(kind="cycle", text=_with_edge(rows, starts[other], node), line=None, words=(node, other, "cycle"))


def _torn(text: str) -> Iterator[Mutant]:
    """The beginning of the file alone, and the file with a control character or a stray bracket in it."""
    for cut in range(40, len(text), len(text) // 60):
        yield Mutant(kind="cut off", text=text[:cut], line=None, may_be_whole=True)
    for number, stray in enumerate("\x00\x07{[}]!&*%@`\t\"'" * 6):
        at = (number + 1) * len(text) // 100
        yield Mutant(kind="stray", text=text[:at] + stray + text[at:], line=None, may_be_whole=True)


def _lines(rows: list[str]) -> Iterator[_Line]:
    """The lines that hold a key, each with its path."""
    stack: list[tuple[int, str | int]] = []
    positions: dict[int, int] = {}
    for number, row in enumerate(rows):
        found = _KEY.match(row)
        if found is None:
            continue
        lead = found["lead"]
        indent = len(lead)
        while stack and stack[-1][0] >= indent:
            stack.pop()
        if lead.endswith("- "):
            while stack and stack[-1][0] >= indent - 1:
                stack.pop()
            positions[indent] = positions.get(indent, -1) + 1
            stack.append((indent - 1, positions[indent]))
        path = (*(part for _, part in stack), found["key"])
        stack.append((indent, found["key"]))
        yield _Line(number=number, lead=lead, key=found["key"], value=found["value"], path=path)


def _annotation(line: _Line) -> Any:
    """The type that the specs give to a key; None where they know no such key."""
    model: type[BaseModel] | None = model_at(WorkflowSpec, line.path[:-1])
    if model is None or line.key not in model.model_fields:
        return None
    return model.model_fields[line.key].annotation


def _takes_null(line: _Line) -> bool:
    annotation = _annotation(line)
    is_union = get_origin(annotation) in (Union, types.UnionType)
    return line.key in _NEVER or (is_union and type(None) in get_args(annotation))


def _words(line: _Line) -> tuple[str, ...]:
    annotation = _annotation(line)
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return tuple(str(word) for part in parts if get_origin(part) is Literal for word in get_args(part))


def _misspelt(word: str) -> list[str]:
    """A letter left out in the middle, and one doubled."""
    middle = len(word) // 2
    if len(word) < 3:
        return []
    return [word[:middle] + word[middle + 1 :], word[:middle] + word[middle] + word[middle:]]


def _doubled(rows: list[str], line: _Line) -> list[str]:
    """The key given once more, at the end of what it holds."""
    indent = len(line.lead)
    end = line.number + 1
    while end < len(rows) and _is_inside(rows[end], indent):
        end += 1
    again = " " * indent + line.key + ": " + (line.value or "null")
    return [*rows[:end], again, *rows[end:]]


def _is_inside(row: str, indent: int) -> bool:
    lead = len(row) - len(row.lstrip())
    return lead > indent or (lead == indent and row.lstrip().startswith("- "))


def _with_edge(rows: list[str], start: int, other: str) -> str:
    """The file in which the node that begins at row `start` depends on `other` too."""
    end = start + 1
    while end < len(rows) and rows[end].startswith("  "):
        if rows[end] == "  dependencies:":
            return _text([*rows[: end + 1], f"  - {other}", *rows[end + 1 :]])
        end += 1
    return _text([*rows[: start + 1], "  dependencies:", f"  - {other}", *rows[start + 1 :]])


def _replaced(rows: list[str], line: _Line, row: str) -> list[str]:
    return [*rows[: line.number], row, *rows[line.number + 1 :]]


def _text(rows: list[str]) -> str:
    return "\n".join(rows) + "\n"
