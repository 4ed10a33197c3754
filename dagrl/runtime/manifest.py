"""manifest.json: by which a run can be proved. What went in, how it was made, and the hash of all that came out."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagrl.backends.hub import cached_model
from dagrl.backends.loading import locate, tokenizer_place
from dagrl.backends.recipes import Progress
from dagrl.runtime.checkpoint import MANIFEST_FILE
from dagrl.runtime.code_files import code_files, named_files
from dagrl.runtime.hashes import Entry, entry_of, read_sealed, sealed, sha256_of
from dagrl.runtime.run_folder import LOCK_FILE, RunFolder, code_place, nameless, versions
from dagrl.runtime.storage import TEMP_PREFIX, write_json
from dagrl.workflow.graph import Workflow
from dagrl.workflow.held_out import held_out_sets
from dagrl.workflow.sections import ModelSpec

MANIFEST = "manifest.json"
FORMAT = 1
CHECKPOINTS = "checkpoints"
_MADE_LATER = (MANIFEST, LOCK_FILE, "evaluations", "report.html")
"""In a run folder, but not what came out of the run."""

Files = dict[str, Entry]


def begin_session(workflow: Workflow, folder: RunFolder, first_step: int, progress: Progress) -> None:
    """Writes what the run goes in with; a resumed run adds a session. What came out is unknown until the end."""
    path = folder.path / MANIFEST
    sessions = read(folder.path)["sessions"] if path.exists() else []
    inputs = inputs_of(workflow, progress)
    session = {
        "first_step": first_step,
        "state": "running",
        "command": [nameless(word) for word in sys.argv],
        "inputs_sha256": sha256_of(inputs),
        **versions(),
    }
    seed = workflow.spec.config.trainer.seed
    _write(folder.path, {"dag_id": workflow.spec.dag_id, "seed": seed, "inputs": inputs, "files": None,
                         "sessions": [*sessions, session]})  # fmt: skip


def end_session(folder: RunFolder, state: str, last_step: int) -> None:
    """Adds the hashes of everything that the run wrote; nothing of it may be written afterwards."""
    if not (folder.path / MANIFEST).exists():
        return  # it failed before it began
    content = read(folder.path)
    content["sessions"][-1] |= {"state": state, "last_step": last_step}
    content["files"] = {name: entry_of(folder.path / name) for name in written_files(folder.path)}
    _write(folder.path, content)


def inputs_of(workflow: Workflow, progress: Progress) -> dict[str, Any]:
    """Hashes of the resolved workflow, code, data, models and tokenizers. Paths in the user's home begin with `~`."""
    base = workflow.path.parent
    files = {code_place(file, base).as_posix(): entry_of(file) for file in code_files(workflow)}
    names = {
        nameless(name): code_place(path.resolve(), base).as_posix() for name, path in named_files(workflow).items()
    }
    data = workflow.spec.config.data
    held_out = [name for one in held_out_sets(workflow.spec.config) for name in one.files]
    resolved = json.dumps(workflow.resolved, sort_keys=True, default=str)
    return {
        "workflow": hashlib.sha256(resolved.encode()).hexdigest(),
        "code": files,
        "code_names": names,
        "data": {nameless(name): data_files(name, base) for name in (*data.train_files, *held_out)},
        "models": model_files(workflow, progress),
    }


def data_files(name: str, base: Path) -> Files:
    """A data file, or every file of a folder of data; none for a data set of the hub."""
    for start in (base, Path.cwd()):
        if os.path.isfile(start / name):
            return {"": entry_of(start / name)}
        if os.path.isdir(start / name):
            return folder_files(start / name)
    return {}


def model_files(workflow: Workflow, progress: Progress) -> dict[str, Files]:
    """Initial weights and tokenizers: `policy_<agent>`, `critic_<agent>`, `tokenizer_<agent>` to their files.

    Nothing is told of an agent that a server speaks for.
    """
    base = workflow.path.resolve().parent
    known: dict[str, Files] = {}

    def hashed(place: str) -> Files:
        if place not in known:
            folder = Path(place) if Path(place).is_dir() else cached_model(place)
            known[place] = {} if folder is None else folder_files(folder)
        return known[place]

    found: dict[str, Files] = {}
    for group in workflow.groups:
        if group.server is not None:
            continue
        location = locate(group.model, base, progress)
        found[f"policy_{group.name}"] = hashed(location)
        if group.model.tokenizer is not None:
            found[f"tokenizer_{group.name}"] = hashed(tokenizer_place(group.model, location, base))
        critic: ModelSpec | None = group.critic_model if group.critic is not None else None
        if critic is not None:
            found[f"critic_{group.name}"] = hashed(locate(critic, base, progress))
    return found


def folder_files(folder: Path) -> Files:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and ".cache" not in path.parts[-3:])
    return {path.relative_to(folder).as_posix(): entry_of(path) for path in files}


def written_files(run: Path) -> list[str]:
    """What the run wrote, by path in its folder; of a checkpoint its manifest, which has the hashes of the rest."""
    return sorted(name for name in _walk(run) if not name.startswith(_MADE_LATER) and not _is_in_checkpoint(name))


def _walk(run: Path) -> Iterator[str]:
    for path in run.rglob("*"):
        name = path.relative_to(run).as_posix()
        is_passing = "__pycache__" in path.parts or any(part.startswith(TEMP_PREFIX) for part in path.parts)
        if path.is_file() and not is_passing:
            yield name


def _is_in_checkpoint(name: str) -> bool:
    return name.startswith(f"{CHECKPOINTS}/") and not name.endswith(f"/{MANIFEST_FILE}")


def read(run: Path) -> dict[str, Any]:
    """The content of a run's manifest. Raises StorageError where it is not there or not what was written."""
    return read_sealed(run / MANIFEST, FORMAT)


def changed_files(before: Mapping[str, Entry], now: Mapping[str, Entry]) -> Sequence[str]:
    """A line for each file that is not what it was."""
    lines = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old != new:
            lines.append(f"{name or 'the file'}: {_shown(old)} then, {_shown(new)} now")
    return lines


def _shown(entry: Entry | None) -> str:
    return "absent" if entry is None else f"sha256 {entry['sha256'][:12]}… ({entry['size']:,} bytes)"


def _write(run: Path, content: Mapping[str, Any]) -> None:
    write_json(run / MANIFEST, sealed(content, FORMAT))
