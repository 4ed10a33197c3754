"""Checkpoints: whole or absent, every byte accounted for by a manifest of hashes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagrl.errors import NumericError, StorageError
from dagrl.runtime.hashes import entry_of, read_sealed, sealed
from dagrl.runtime.retention import KEEP_ALL, Retention
from dagrl.runtime.state_file import first_nonfinite, save_state
from dagrl.runtime.state_file import load_state as load_state_file
from dagrl.runtime.storage import TEMP_PREFIX, fsync, make_folder, remove, storage

MANIFEST_FILE = "MANIFEST.json"
STATE_FOLDER = "trainer_state"
FORMAT = 3
_DOOMED_PREFIX = f"{TEMP_PREFIX}old-"
"""Of a checkpoint on its way out."""
_ASIDE_PREFIX = f"{TEMP_PREFIX}aside-"
"""Of a checkpoint that is not whole, until the whole one that replaces it has its name."""
_STEP_NAME = re.compile(r"step_(\d{6}|[1-9]\d{6,})")

Save = Callable[[Path], None]
"""Writes one model into an existing empty folder, such as `PolicyModel.save`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointParts:
    """All that a checkpoint holds."""

    agents: Mapping[str, Save]
    """Agent's name to the `save` of its policy."""
    critics: Mapping[str, Save] = field(default_factory=dict)
    """Name of the agent that owns the critic to its `save`; a shared critic stands here once."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """`state_dict()` of everything else, nested as one likes; its tensors are finite."""
    identity: Mapping[str, Any] = field(default_factory=dict)
    """What the models are, as JSON: only equal ones can take the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest checkpoint that is whole."""

    path: Path | None
    """None where there is none."""
    skipped: tuple[str, ...] = ()
    """A line for each newer one that is not whole, with what is wrong with it."""


def save(folder: Path, step: int, parts: CheckpointParts, retention: Retention = KEEP_ALL) -> Path:
    """Writes `folder/step_000040/`: `agent_<name>/`, `critic_<name>/`, `trainer_state/` and MANIFEST.json.

    It is made in a temporary folder, flushed to disk and renamed, so that it is whole or absent whatever happens. A
    whole checkpoint of this step that is there already is kept. Only then those go that `retention` does not keep.
    Raises StorageError, or NumericError where a tensor is not finite; older checkpoints are then as they were.
    """
    make_folder(folder)
    target = folder / f"step_{step:06d}"
    with storage(target):
        remove_leftovers(folder)
        if verify(target):
            temp = _temporary(target)
            try:
                _write_parts(temp, step, parts)
                _publish(temp, target)
            finally:
                shutil.rmtree(temp, ignore_errors=True)
        _prune(folder, retention)
    return target


def verify(checkpoint: Path) -> tuple[str, ...]:
    """What is wrong with a checkpoint: a line per missing, changed or unknown file; empty where it is whole."""
    try:
        return _faults(checkpoint)
    except StorageError as error:  # a bad sector as well: it must not keep an older one from being found
        return (str(error),)


def load_state(checkpoint: Path) -> dict[str, Any]:
    """The `state` that `checkpoint` was saved with."""
    state: dict[str, Any] = load_state_file(checkpoint / STATE_FOLDER)
    return state


def step_of(checkpoint: Path) -> int:
    """The step that a checkpoint was saved after."""
    step: int = _manifest(checkpoint)["step"]
    return step


def identity_of(checkpoint: Path) -> dict[str, Any]:
    """The `identity` that `checkpoint` was saved with."""
    identity: dict[str, Any] = _manifest(checkpoint)["identity"]
    return identity


def newest(folder: Path, *, at_most: int | None = None) -> Newest:
    """The newest checkpoint in `folder` whose every file has the hash it was saved with; none after `at_most` steps."""
    skipped: list[str] = []
    for path in reversed(_steps(folder, at_most)):
        faults = verify(path)
        if not faults:
            return Newest(path=path, skipped=tuple(skipped))
        skipped.append(f"{path.name} is not whole and was left out: {faults[0]}")
    return Newest(path=None, skipped=tuple(skipped))


def remove_leftovers(folder: Path) -> None:
    """Removes what saves that were cut short left. Only for who holds the run folder's lock."""
    for path in sorted(folder.glob(f"{TEMP_PREFIX}*")):
        with storage(path):
            replaced = folder / path.name.removeprefix(_ASIDE_PREFIX)
            if path.name.startswith(_ASIDE_PREFIX) and not os.path.lexists(replaced):
                os.rename(path, replaced)
            else:
                remove(path)


def _temporary(target: Path) -> Path:
    return target.with_name(f"{TEMP_PREFIX}{target.name}-{os.getpid()}")


def differing(checkpoint: Path, folder: Path) -> tuple[str, ...]:
    """The files of weights below `folder` that are not, byte for byte, what `checkpoint` holds under their names."""
    files = _manifest(checkpoint)["files"]
    names = {path: path.relative_to(folder).as_posix() for path in _files(folder) if path.suffix == ".safetensors"}
    return tuple(name for path, name in names.items() if files.get(name) != entry_of(path))


def _write_parts(temp: Path, step: int, parts: CheckpointParts) -> None:
    temp.mkdir()
    models = {f"agent_{name}": save for name, save in parts.agents.items()}
    models |= {f"critic_{name}": save for name, save in parts.critics.items()}
    for name, save_model in models.items():
        (temp / name).mkdir()
        save_model(temp / name)
    (temp / STATE_FOLDER).mkdir()
    save_state(temp / STATE_FOLDER, dict(parts.state))
    files = {}
    for path in _files(temp):
        _refuse_nonfinite(path, path.relative_to(temp), step)
        fsync(path)
        files[path.relative_to(temp).as_posix()] = entry_of(path)
    content = {"step": step, "identity": dict(parts.identity), "files": files}
    (temp / MANIFEST_FILE).write_text(json.dumps(sealed(content, FORMAT), indent=1), encoding="utf-8")
    fsync(temp / MANIFEST_FILE)
    for inner in _folders(temp):
        fsync(inner)


def _refuse_nonfinite(file: Path, name: Path, step: int) -> None:
    """Raises NumericError for a file of tensors with NaN or infinity in it. What is asked is what was written."""
    tensor = first_nonfinite(file) if file.suffix == ".safetensors" else None
    if tensor is not None:
        raise NumericError(
            f"the checkpoint of step {step} is not saved: '{tensor}' in {name.as_posix()} holds NaN or infinity",
            how="earlier checkpoints are as they were: go on from the newest with what keeps numbers finite, such as "
            "--allow-changes and a lower optim.lr",
        )


def _publish(temp: Path, target: Path) -> None:
    """Gives `temp` its name, on disk when this returns. One that has it and is not whole stands aside until then."""
    aside = target.with_name(f"{_ASIDE_PREFIX}{target.name}")
    has_old = os.path.lexists(target)
    if has_old:
        os.rename(target, aside)
    try:
        os.rename(temp, target)
    except OSError:
        if has_old:
            os.rename(aside, target)
        raise
    fsync(target.parent)
    if has_old:
        remove(aside)


def _faults(checkpoint: Path) -> tuple[str, ...]:
    manifest = _manifest(checkpoint)
    with storage(checkpoint):
        present = {path.relative_to(checkpoint).as_posix() for path in _files(checkpoint)} - {MANIFEST_FILE}
    faults = []
    for name, entry in sorted(manifest["files"].items()):
        if name not in present:
            faults.append(f"{checkpoint / name}: is missing")
        elif entry_of(checkpoint / name) != entry:
            faults.append(f"{checkpoint / name}: is not what was saved")
    faults += [f"{checkpoint / name}: was not saved with it" for name in sorted(present - set(manifest["files"]))]
    return tuple(faults)


def _manifest(checkpoint: Path) -> dict[str, Any]:
    return read_sealed(checkpoint / MANIFEST_FILE, FORMAT)


def _steps(folder: Path, at_most: int | None = None) -> list[Path]:
    """Folders named like checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    with storage(folder):
        found = [(int(name[1]), path) for path in folder.iterdir() if (name := _STEP_NAME.fullmatch(path.name))]
    return [path for step, path in sorted(found) if at_most is None or step <= at_most]


def _prune(folder: Path, retention: Retention) -> None:
    """Removes what `retention` does not keep. One that is not complete does not count and is left."""
    complete = {int(path.name.removeprefix("step_")): path for path in _steps(folder) if _has_all_files(path)}
    kept = retention.kept(list(complete))
    doomed = [path for step, path in complete.items() if step not in kept]
    if not doomed:
        return
    if retention.spares_an_older:
        # Complete is not whole: should the newest be lost too, one that is whole must be there to fall back on.
        older = [complete[step] for step in sorted(kept)[:-1]]
        if not any(not verify(path) for path in reversed(older)):
            spared = next((path for path in reversed(doomed) if not verify(path)), None)
            doomed = [path for path in doomed if path != spared]
    # Renamed first, and that on disk: a removal that is cut short must not leave half a checkpoint under its name.
    for path in doomed:
        with storage(path):
            os.rename(path, path.with_name(f"{_DOOMED_PREFIX}{path.name}"))
    with storage(folder):
        fsync(folder)
    for path in doomed:
        with storage(path):
            remove(path.with_name(f"{_DOOMED_PREFIX}{path.name}"))


def _has_all_files(checkpoint: Path) -> bool:
    """True if every file of a sound manifest is there with its size; hashing all of every save would take minutes."""
    try:
        files = _manifest(checkpoint)["files"]
        return all((checkpoint / name).stat().st_size == entry["size"] for name, entry in files.items())
    except (StorageError, OSError):
        return False


def _files(folder: Path) -> list[Path]:
    """All files below `folder`, sorted. A folder that cannot be read is an OSError; `Path.rglob` would leave it out."""
    return sorted(path for above, _, names in _walk(folder) for name in names if (path := Path(above, name)).is_file())


def _folders(folder: Path) -> list[Path]:
    """`folder` and all folders below it, inner ones first."""
    return [Path(above) for above, _, _ in reversed(list(_walk(folder)))]


def _walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    def refuse(error: OSError) -> None:
        raise error

    return os.walk(folder, onerror=refuse)
