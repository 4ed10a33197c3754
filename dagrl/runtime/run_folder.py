"""The run folder: made once, locked, never overwritten; what was run, with what code and versions."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from dagrl.errors import DagrlError, StorageError
from dagrl.runtime.storage import make_folder, replacing, storage, write_json, write_text

LOCK_FILE = ".lock"
SOURCE_FILE = "source.json"
"""Where the workflow was read from and with which overrides; for a resumed run."""
RECORDED_PACKAGES = ("dagrl", "torch", "transformers", "peft", "safetensors", "networkx", "numpy", "pyarrow",
                     "datasets", "math-verify", "tensorboard", "pydantic")  # fmt: skip
_FOLDER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@=-]*")
_NO_SYMLINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class RunFolder:
    """An existing run folder, locked for this process until `close`."""

    def __init__(self, path: Path) -> None:
        """Raises DagrlError where another process holds it."""
        self.path = path
        self._status: dict[str, Any] = {}
        self._doing: dict[str, Any] | None = None
        self._status_lock = threading.Lock()
        lock = path / LOCK_FILE
        with storage(lock):
            self._lock = lock.open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise DagrlError(
                "another process is writing to this run folder",
                where=str(path),
                how="wait for it, or choose another folder with --run-dir",
            ) from None
        except OSError as error:
            raise StorageError(f"cannot be locked: {error.strerror}", where=str(lock)) from error

    @property
    def trajectories(self) -> Path:
        return self.path / "trajectories"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def failures(self) -> Path:
        """Trajectories that user code broke, a small file each."""
        return self.path / "failures"

    def record_workflow(
        self, original: Path, *, resolved: str, overrides: Sequence[str], origins: Mapping[str, str]
    ) -> None:
        """Keeps the resolved workflow's text, where each of its values was set, the file as the user wrote it with its
        hash, and the overrides."""
        with storage(original):
            content = original.read_bytes()
        write_text(self.path / "workflow.yaml", resolved)
        with replacing(self.path / "workflow.original.yaml") as temp:
            temp.write_bytes(content)
        write_text(self.path / "workflow.original.yaml.sha256", hashlib.sha256(content).hexdigest() + "\n")
        write_json(self.path / "origins.json", origins)
        write_text(self.path / "overrides.txt", "".join(f"{override}\n" for override in overrides))
        write_json(self.path / SOURCE_FILE, {"workflow": str(original.resolve()), "overrides": list(overrides)})

    def keep_old_workflow(self, step: int) -> None:
        """Before a resumed run is recorded anew with changes: what held until `step` stays beside it."""
        write_text(self.path / f"workflow.until_step_{step}.yaml", (self.path / "workflow.yaml").read_text("utf-8"))

    def record_code(self, files: Iterable[Path], base: Path) -> None:
        """Copies the hook, environment, reward and recipe files that are used to `code/`, with their hashes.

        Files in `base` (the workflow's folder) keep their place below it, others stand in `code/elsewhere/`.
        """
        hashes: dict[str, str] = {}
        for file in sorted({file.resolve() for file in files}):
            with storage(file):
                content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            place = code_place(file, base)
            make_folder((self.path / "code" / place).parent)
            with replacing(self.path / "code" / place) as temp:
                temp.write_bytes(content)
            hashes[place.as_posix()] = digest
        make_folder(self.path / "code")
        write_json(self.path / "code" / "hashes.json", hashes)

    def record_versions(self, *, seed: int, argv: Sequence[str]) -> None:
        """Keeps versions, machine, seed and command line; neither the host's nor the user's name."""
        write_json(self.path / "versions.json", versions() | {"seed": seed, "argv": [nameless(word) for word in argv]})

    def write_status(self, state: str, step: int, **details: Any) -> None:
        """Replaces status.json: `state` (running, done, interrupted, failed), step, pid, and now as the heartbeat."""
        with self._status_lock:
            self._status = {"state": state, "step": step, "pid": os.getpid(), "heartbeat": time.time(), **details}
            self._write_status()

    def write_doing(self, phase: str, since: float, nodes: Mapping[str, float], *, heartbeat: float) -> None:
        """Adds to the status of a running run what goes on since when; may be called from a thread."""
        with self._status_lock:
            self._doing = {"phase": phase, "since": since, "nodes": dict(nodes)}
            self._status["heartbeat"] = max(heartbeat, self._status["heartbeat"])
            self._write_status()

    def _write_status(self) -> None:
        is_told = self._status["state"] == "running" and self._doing is not None
        write_json(self.path / "status.json", self._status | ({"doing": self._doing} if is_told else {}))

    def close(self) -> None:
        """Lets go of the lock."""
        self._lock.close()


def create_run_folder(
    runs_dir: Path, dag_id: str, *, run_dir: Path | None = None, now: datetime | None = None
) -> RunFolder:
    """Makes and locks `<runs_dir>/<dag_id>/<YYYYmmdd-HHMMSS>[-k]/` and points `latest` at it; or takes `run_dir`.

    Raises DagrlError where `run_dir` is not new or empty, or `dag_id` cannot name a folder.
    """
    if run_dir is not None:
        return RunFolder(_given_folder(run_dir))
    if _FOLDER_NAME.fullmatch(dag_id) is None:
        raise DagrlError(f"'{dag_id}' cannot name a folder", where="dag_id", how="use letters, digits, _ . + @ = -")
    parent = make_folder(runs_dir / dag_id)
    path = _new_folder(parent, (datetime.now() if now is None else now).strftime("%Y%m%d-%H%M%S"))
    folder = RunFolder(path)
    _point_latest(parent, path.name)
    return folder


def read_source(path: Path) -> tuple[Path, list[str]]:
    """The workflow file that a run was started with, or the run's own copy where that is gone; and the overrides."""
    with storage(path / SOURCE_FILE):
        source = json.loads((path / SOURCE_FILE).read_text(encoding="utf-8"))
    original = Path(source["workflow"])
    if original.exists():
        return original, list(source["overrides"])
    return path / "workflow.yaml", []


def read_status(path: Path) -> dict[str, Any]:
    """The content of a run folder's status.json."""
    with storage(path / "status.json"):
        text = (path / "status.json").read_text(encoding="utf-8")
    status: dict[str, Any] = json.loads(text)
    return status


def _given_folder(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise DagrlError("is a file, not a folder", where=str(path), how="give --run-dir a new or empty folder")
    make_folder(path)
    with storage(path):
        used = any(path.iterdir())
    if used:
        raise DagrlError("is not empty", where=str(path), how="runs are never overwritten: give --run-dir a new folder")
    return path


def _new_folder(parent: Path, stamp: str) -> Path:
    number = 1
    while True:
        path = parent / (stamp if number == 1 else f"{stamp}-{number}")
        with storage(path), suppress(FileExistsError):
            path.mkdir()
            return path
        number += 1


def _point_latest(parent: Path, name: str) -> None:
    """Replaces the link `latest`; file systems without links do without it."""
    temp = parent / f".latest-{os.getpid()}"
    with storage(parent / "latest"):
        try:
            temp.unlink(missing_ok=True)
            temp.symlink_to(name, target_is_directory=True)
            os.replace(temp, parent / "latest")
        except OSError as error:
            if error.errno not in _NO_SYMLINKS:
                raise


def code_place(file: Path, base: Path) -> Path:
    """Where a file of code is kept below `code/`, the workflow's folder being `base`; files that lie side by side stay
    so, since they may import each other."""
    file, base, home = file.resolve(), base.resolve(), Path.home().resolve()
    if file.is_relative_to(base):
        return file.relative_to(base)
    if file.is_relative_to(home) and not base.is_relative_to(home):
        return Path("elsewhere", "home") / file.relative_to(home)
    parts = Path(os.path.relpath(file, base)).parts
    num_up = parts.count(os.pardir)
    return Path("elsewhere", f"up{num_up}", *parts[num_up:])


def versions() -> dict[str, Any]:
    """Of everything that numbers may depend on: Python, packages, processor, threads, GPUs."""
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in RECORDED_PACKAGES},
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "num_cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "num_threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    """As the system names it; the architecture where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def nameless(word: str) -> str:
    """`word` with the user's home folder as `~`."""
    return word.replace(str(Path.home()), "~")
