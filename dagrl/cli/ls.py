"""`dagrl ls`: what ships with dagrl."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import Annotated

import typer

from dagrl.errors import DagrlError
from dagrl.workflow.nearest import did_you_mean

_INDENT = 2
_NARROWEST = 60
"""Columns: lines are not broken shorter than this."""
_WIDEST = 120


def ls(
    kind: Annotated[str | None, typer.Argument(help="Only this kind: workflows, envs, rewards, …")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List what ships: workflows, environments, rewards, estimators, losses, engines, templates; a line each."""
    from dagrl.scaffold.catalogue import KINDS, USED_BY

    if kind is not None and kind not in KINDS:
        raise DagrlError(f"there are no '{kind}'", how=did_you_mean(kind, KINDS))
    listed = {name: KINDS[name]() for name in KINDS if kind in (None, name)}
    if as_json:
        print(json.dumps(listed, indent=2, ensure_ascii=False))
        return
    width = min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST) if sys.stdout.isatty() else _WIDEST
    for name, entries in listed.items():
        print(f"{name} ({USED_BY[name]})")
        longest = max(map(len, entries), default=0)
        for entry, line in entries.items():
            print(_entry(entry, line, longest, width))


def _entry(name: str, line: str, longest: int, width: int) -> str:
    head = f"{' ' * _INDENT}{name:<{longest}}  "
    return textwrap.fill(line or "-", width, initial_indent=head, subsequent_indent=" " * len(head))
