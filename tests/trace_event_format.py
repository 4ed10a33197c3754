"""Chrome's trace event format as its specification says it, read without any of dagrl's code: faults of a file.

By "Trace Event Format" (Google, public document): JSON array of events with `name`, `ph`, `ts`, `pid`, `tid`; complete
events (`X`) with a duration, which on one thread must nest; begins (`B`) with their ends (`E`); flows (`s`, `t`, `f`)
whose ids begin and end; instants (`i`) with a scope; metadata (`M`), which names processes and threads.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

PHASES = {"X", "B", "E", "i", "M", "s", "t", "f", "C", "b", "n", "e"}
MAX_NUMBER = 2**31 - 1
"""Processes and threads are 32-bit numbers where they are read."""


def faults(text: str) -> list[str]:
    """What a reader that goes by the specification cannot take, or would draw otherwise than it was."""
    events = json.loads(text, parse_constant=lambda word: f"not JSON: {word}")
    if not isinstance(events, list):
        return ["is no array"]
    found = [f"event {place}: {fault}" for place, event in enumerate(events) for fault in _of_event(event)]
    return found or [*_nesting(events), *_begins(events), *_flows(events), *_names(events)]


def _of_event(event: Any) -> Iterator[str]:
    if not isinstance(event, dict):
        yield "is no object"
        return
    if not isinstance(event.get("name"), str) or not event["name"]:
        yield "has no name"
    if event.get("ph") not in PHASES:
        yield f"is of an unknown phase {event.get('ph')!r}"
    for key in ("pid", "tid"):
        if type(event.get(key)) is not int or not 0 <= event[key] <= MAX_NUMBER:
            yield f"has no 32-bit '{key}'"
    for key in ("ts", *(["dur"] if event.get("ph") == "X" else [])):
        if type(event.get(key)) not in (int, float) or not event[key] >= 0:
            yield f"has no '{key}'"
    if not isinstance(event.get("args", {}), dict):
        yield "has arguments that are no object"
    if not isinstance(event.get("cat", ""), str):
        yield "has a category that is no text"
    if event.get("ph") == "i" and event.get("s", "t") not in ("g", "p", "t"):
        yield "has an unknown scope"
    if event.get("ph") == "M" and not isinstance(event.get("args", {}).get("name"), str):
        yield "names nothing"


def _nesting(events: list[dict[str, Any]]) -> Iterator[str]:
    """Read as Perfetto does: by time, of equal ones the longest first, with a stack for each thread."""
    stacks: dict[tuple[int, int], list[tuple[float, str]]] = {}
    spans = [event for event in events if event["ph"] == "X"]
    for span in sorted(spans, key=lambda one: (one["ts"], -one["dur"])):
        stack, end = stacks.setdefault((span["pid"], span["tid"]), []), span["ts"] + span["dur"]
        while stack and stack[-1][0] <= span["ts"]:
            stack.pop()
        if stack and stack[-1][0] < end:
            yield f"'{span['name']}' goes on after '{stack[-1][1]}', in which it began"
        stack.append((end, span["name"]))


def _begins(events: list[dict[str, Any]]) -> Iterator[str]:
    open_ones: Counter[tuple[int, int]] = Counter()
    for event in sorted((one for one in events if one["ph"] in "BE"), key=lambda one: one["ts"]):
        place = event["pid"], event["tid"]
        open_ones[place] += 1 if event["ph"] == "B" else -1
        if open_ones[place] < 0:
            yield f"'{event['name']}' ends and never began"
    yield from (f"thread {place} has {count} begins without an end" for place, count in open_ones.items() if count > 0)


def _flows(events: list[dict[str, Any]]) -> Iterator[str]:
    ids = {phase: {event.get("id") for event in events if event["ph"] == phase} for phase in "stf"}
    for number in ids["s"] ^ ids["f"]:
        yield f"flow {number} begins and never ends, or ends and never began"
    yield from (f"flow {number} goes through nothing" for number in ids["t"] - ids["s"])


def _names(events: list[dict[str, Any]]) -> Iterator[str]:
    """Every process and thread that is drawn is named, and by one name."""
    names: dict[tuple[str, int, int], set[str]] = {}
    for event in events:
        if event["ph"] == "M":
            thread = event["tid"] if event["name"] == "thread_name" else 0
            names.setdefault((event["name"], event["pid"], thread), set()).add(event["args"]["name"])
    yield from (f"{place} has the names {sorted(own)}" for place, own in names.items() if len(own) > 1)
    for process, thread in sorted({(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}):
        if ("process_name", process, 0) not in names:
            yield f"process {process} has no name"
        if ("thread_name", process, thread) not in names:
            yield f"thread {thread} of process {process} has no name"
