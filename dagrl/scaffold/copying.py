"""`dagrl cp`: a shipped workflow with every file it needs, laid out so that it runs from where it is copied to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dagrl.scaffold.files import shipped_folder, shipped_workflow
from dagrl.scaffold.writing import write_new
from dagrl.workflow.imports import imported_beside
from dagrl.workflow.json_schema import SCHEMA_FILE, SCHEMA_LINE
from dagrl.workflow.load import compose, read_text
from dagrl.workflow.tree import Item, child

_SCRIPT = re.compile(r"\bdata_preprocess/\w+\.py\b")
"""A data script that a workflow's comments tell to run."""
_DATA = (".parquet", ".jsonl", ".json")


@dataclass(slots=True)
class Copied:
    """What was copied."""

    workflow: Path
    """The new workflow file."""
    files: list[Path] = field(default_factory=list)
    """Every file that is new."""
    absent: list[str] = field(default_factory=list)
    """Data that the workflow names and that does not ship; its comments say how to make it."""


def copy_workflow(name: str, to: Path) -> Copied:
    """Copies the shipped workflow `name` to the file `to`, or into it if it is a folder or does not end in .yaml.

    Paths that lead out of the workflow's folder (`../envs/x.py`) become paths inside the new one (`envs/x.py`); what
    it extends comes along under its own name. Raises DagrlError for an unknown name or files that are there already.
    """
    source = shipped_workflow(name)
    goal = to if to.suffix in (".yaml", ".yml") else to / source.name
    copy = _Copy(source.parent, goal)
    copy.workflow(source, goal)
    copy.take(SCHEMA_FILE, goal.parent / SCHEMA_FILE.name)
    return Copied(workflow=goal, files=write_new(copy.files), absent=copy.absent)


class _Copy:
    """Gathers what one copy consists of."""

    def __init__(self, source: Path, goal: Path) -> None:
        self._source = source
        self._folder = goal.parent
        self.files: dict[Path, bytes] = {}
        self.absent: list[str] = []

    def workflow(self, file: Path, goal: Path) -> None:
        """`file` with its paths and what they name; a workflow that it extends is copied beside it."""
        text = read_text(file)
        root = compose(text, str(file)).root
        for named in _texts(root):
            text = self._needed(named, text)
        extended = child(root, "extends")
        if extended is not None:
            base = file.parent / str(extended.value)
            self.workflow(base, self._folder / base.name)
        self._data_scripts(text)
        text = re.sub(f"^{re.escape(SCHEMA_LINE)}.*$", f"{SCHEMA_LINE}{SCHEMA_FILE.name}", text, flags=re.MULTILINE)
        self.files[goal] = text.replace(f"workflows/{file.name}", goal.name).encode()

    def _needed(self, named: str, text: str) -> str:
        """Takes the file that a value names (`path` or `path:name`); gives `text` with the path it has from now on."""
        path = named if os.path.isfile(self._source / named) else named.rpartition(":")[0]
        file = self._source / path
        if not path or not os.path.isfile(file) or file.suffix in (".yaml", ".yml"):
            if Path(named).suffix in _DATA and not os.path.isfile(file):
                self.absent.append(named)
            return text
        inside = "/".join(part for part in Path(path).parts if part != "..")
        self.take(file, self._folder / inside)
        return text.replace(path, inside) if inside != path else text

    def take(self, file: Path, goal: Path) -> None:
        """The file, and of Python files what they import from beside them."""
        if goal in self.files:
            return
        self.files[goal] = file.read_bytes()
        if file.suffix == ".py":
            for other in imported_beside(file):
                self.take(other, goal.parent / other.relative_to(file.parent))

    def _data_scripts(self, text: str) -> None:
        for script in sorted(set(_SCRIPT.findall(text))):
            self.take(shipped_folder() / script, self._folder / script)


def _texts(item: Item) -> Iterator[str]:
    """Every text value of a file."""
    if isinstance(item.value, str):
        yield item.value
    for member in item.children.values():
        yield from _texts(member)
