"""Where each value of a workflow was set: by which line of which file, or on the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dagrl.workflow.tree import COMMAND_LINE, Item, Key, dotted, node_id_of


def origins(root: Item, folder: Path) -> dict[str, str]:
    """Dotted path (nodes by id) → `file:line`, the file as seen from `folder`, or `command line`.

    What is not there stands in no file: it is a default.
    """
    return {dotted(path): _place(item, folder) for path, item in _items((), root)}


def _items(path: tuple[Key, ...], item: Item) -> Iterator[tuple[tuple[Key, ...], Item]]:
    for key, member in item.children.items():
        named = node_id_of(member) if isinstance(item.value, list) else None
        place = (*path, key if named is None else named)
        yield place, member
        yield from _items(place, member)


def _place(item: Item, folder: Path) -> str:
    mark = item.mark
    if mark.file == COMMAND_LINE:
        return COMMAND_LINE
    return f"{Path(os.path.relpath(mark.file, folder)).as_posix()}:{mark.line}"
