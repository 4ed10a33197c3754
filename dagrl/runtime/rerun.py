"""A run made again from its folder: the kept workflow and code, the same data and weights; then, what came out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagrl.errors import DagrlError, StorageError
from dagrl.runtime import manifest
from dagrl.runtime.code_files import CODE_KEYS, renamed, with_references
from dagrl.runtime.hashes import entry_of
from dagrl.runtime.run_folder import nameless, read_source, versions
from dagrl.runtime.storage import make_folder, write_text
from dagrl.workflow.graph import Workflow
from dagrl.workflow.load import compose, dump, read_text
from dagrl.workflow.tree import plain

SOURCE = "source"
"""In the folder of a run that repeats another: the workflow and the code that it runs from."""
_MODEL_KEYS = ("path", "tokenizer")
_DATA_KEYS = ("train_files", "val_files", "files")


def run_of(reference: str) -> Path:
    """The run folder of a manifest or of a path. Raises DagrlError where there is no manifest."""
    path = Path(reference)
    run = path.parent if path.name == manifest.MANIFEST else path
    if not (run / manifest.MANIFEST).is_file():
        raise DagrlError(
            "has no manifest.json, so nothing says what the run was made of",
            where=str(run),
            how="give a run folder, or the manifest.json in one; runs of older versions have none",
        )
    return run.resolve()


def lay_out(run: Path, folder: Path) -> Path:
    """Writes the workflow of `run` with its own copy of the code to `folder/source`, and gives the workflow's path.

    Raises StorageError where the copies are not what ran, DagrlError where the run was resumed with changes.
    """
    content = manifest.read(run)
    _refuse_changed_on_the_way(content, run)
    code = content["inputs"]["code"]
    now = {name: entry_of(run / "code" / name) for name in code if (run / "code" / name).is_file()}
    if changes := manifest.changed_files(code, now):
        raise StorageError(f"the code in it is not what ran: {'; '.join(changes)}", where=str(run / "code"))
    source = make_folder(folder / SOURCE)
    for name in code:
        make_folder((source / name).parent)
        shutil.copyfile(run / "code" / name, source / name)
    write_text(source / "workflow.yaml", dump(_document(run, content, source)))
    return source / "workflow.yaml"


def check_inputs(run: Path, workflow: Workflow) -> None:
    """Raises DagrlError, with each difference, where data or weights are not those that `run` was made with."""
    before = manifest.read(run)["inputs"]
    now = manifest.inputs_of(workflow, lambda share, text: None)
    lines = []
    for (name, old), new in zip(before["data"].items(), now["data"].values(), strict=True):
        lines += [f"data {name}, {line}" for line in manifest.changed_files(old, new)]
    for role in sorted({*before["models"], *now["models"]}):
        files = before["models"].get(role, {}), now["models"].get(role, {})
        lines += [f"{role}, {line}" for line in manifest.changed_files(*files)]
    if lines:
        raise DagrlError(
            "data or weights are not those of the run, so it cannot be made again:\n  " + "\n  ".join(lines),
            where=str(run),
            how="put back what the run was made with; manifest.json has the hash of every file",
        )


def other_surroundings(run: Path) -> list[str]:
    """What differs between the machine and the packages of the run's last session and those here."""
    session = manifest.read(run)["sessions"][-1]
    here = versions()
    return [f"{name}: {session.get(name)} then, {here[name]} here" for name in here if session.get(name) != here[name]]


def _refuse_changed_on_the_way(content: Mapping[str, Any], run: Path) -> None:
    if len({session["inputs_sha256"] for session in content["sessions"]}) > 1:
        raise DagrlError(
            "the run was resumed with a changed workflow, code or data, so no single workflow repeats it",
            where=str(run),
            how="the workflow.until_step_*.yaml in it are what held before",
        )


def _document(run: Path, content: Mapping[str, Any], source: Path) -> Any:
    """The run's resolved workflow: code from `source`, data and models from where they were, threads as they were."""
    base = read_source(run)[0].parent
    places = {name: str(source / place) for name, place in content["inputs"]["code_names"].items()}
    document = plain(compose(read_text(run / "workflow.yaml"), str(run / "workflow.yaml")).root)
    document = with_references(document, CODE_KEYS, lambda text: renamed(nameless(text), places))
    document = with_references(document, (*_MODEL_KEYS, *_DATA_KEYS), lambda text: _found(text, base))
    executor = document.setdefault("config", {}).setdefault("executor", {})
    executor["num_threads"] = content["sessions"][-1]["num_threads"]
    return document


def _found(text: str, base: Path) -> str:
    for start in (base, Path.cwd()):
        if os.path.exists(start / text):
            return str((start / text).resolve())
    return text
