"""What a file of the user's code imports beside it: found by reading, without running anything."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path


def with_imports(files: Iterable[Path]) -> list[Path]:
    """`files` and everything that they import beside them, and that these import, each once and in order."""
    found: set[Path] = set()
    waiting = [file.resolve() for file in files]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += imported_beside(file)
    return sorted(found)


def imported_beside(file: Path) -> Iterator[Path]:
    """The modules and packages in the folder of `file` that it imports, anywhere in it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or alias.name for alias in node.names]
        else:
            continue
        for name in names:
            first = file.parent / name.partition(".")[0]
            if first.with_suffix(".py").is_file():
                yield first.with_suffix(".py")
            elif (first / "__init__.py").is_file():
                yield from first.rglob("*.py")
