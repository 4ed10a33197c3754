"""The user's code that a workflow uses: the files that it names, and what these import beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dagrl.workflow.graph import Workflow
from dagrl.workflow.imports import with_imports
from dagrl.workflow.plugins import resolve_path

CODE_KEYS = ("process_path", "env_path", "executable_ref", "fn", "when", "recipe", "adv_estimator", "policy_loss")
"""Keys of a workflow whose texts may name files of code."""


def code_files(workflow: Workflow) -> list[Path]:
    """Every file of the user's code, named or imported, each once and in order."""
    return with_imports(named_files(workflow).values())


def named_files(workflow: Workflow) -> dict[str, Path]:
    """The files that the resolved workflow names, by the text that names them."""
    names: dict[str, Path] = {}

    def take(reference: str) -> str:
        file = _file_of(reference)
        if file.endswith(".py"):
            names[file] = resolve_path(file, workflow.path.parent)
        return reference

    with_references(workflow.resolved, CODE_KEYS, take)
    return dict(sorted(names.items()))


def with_references(value: Any, keys: tuple[str, ...], change: Callable[[str], str], key: str = "") -> Any:
    """A copy of a resolved workflow with `change` made to every text under one of `keys`; not in what is handed to
    user code as it stands."""
    if isinstance(value, Mapping):
        return {
            name: part
            if str(name).endswith("kwargs")
            else with_references(part, keys, change, str(name).rpartition(".")[2])
            for name, part in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [with_references(part, keys, change, key) for part in value]
    return change(value) if key in keys and isinstance(value, str) else value


def renamed(reference: str, places: Mapping[str, str]) -> str:
    """`file.py:Name` with the file that `places` gives for it."""
    file = _file_of(reference)
    return places[file] + reference[len(file) :] if file in places else reference


def _file_of(reference: str) -> str:
    return reference.rpartition(":")[0] if ":" in reference else reference
