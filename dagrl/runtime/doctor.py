"""What this machine is ready for and what is missing: for `dagrl doctor`. Works without torch; touches no network."""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from dagrl.cache import cache_folder
from dagrl.rewards.sandbox import missing_walls

MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 1 << 30
"""Memory, and disk under runs/ and the cache: the demo takes less, a model of half a billion weights more."""
DISTRIBUTION = "dagrl"
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)\s*\(?(?P<range>[^;)]*)\)?\s*(?:;(?P<marker>.*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"](\w+)['\"]")
_BOUND = re.compile(r"(>=|<)\s*([\d.]+)")
_DEVELOPING = "dev"
"""The extra for work on dagrl itself; users do without it."""


class Level(StrEnum):
    GOOD = "ok"
    OPTIONAL = "--"
    """Missing, and only some things need it."""
    BAD = "NO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    level: Level
    text: str
    how: str | None = None
    """The way out."""


@dataclass(slots=True)
class Diagnosis:
    """Everything that was looked at, and what follows."""

    checks: list[Check] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)
    not_ready: list[str] = field(default_factory=list)
    """What, and in brackets why."""

    @property
    def is_well(self) -> bool:
        """True if the demo can run."""
        return not any(check.level is Level.BAD for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One package that dagrl's installation names."""

    name: str
    range: str
    """`>=2.11,<2.14`; empty where any version will do."""
    extra: str | None
    """None for packages that every run needs."""

    def admits(self, version: str) -> bool:
        """False below a `>=` or at or above a `<`; other kinds of bounds are pip's business."""
        release = _release(version)
        return all((release < _release(bound)) != (sign == ">=") for sign, bound in _BOUND.findall(self.range))


VersionOf = Callable[[str], str | None]
"""Version of an installed package, or None."""


def diagnose(runs: Path) -> Diagnosis:
    """Looks at Python, packages, device, folders, memory and the walls for model-written code."""
    return diagnose_with(runs, version_of=installed_version, requirements=own_requirements())


def diagnose_with(runs: Path, *, version_of: VersionOf, requirements: Sequence[Requirement] | None) -> Diagnosis:
    """The same with given packages; `requirements` is None where dagrl is not installed."""
    found = Diagnosis()
    found.checks.append(_python())
    found.checks += _packages(version_of, requirements)
    has_gpu = _device(found, version_of("torch") is not None)
    found.checks += [_folder("runs folder", runs, "config.trainer.runs_dir=FOLDER"), _cache(), _memory(), _offline()]
    _code_rewards(found)
    training = ["the demo (make demo)", "training on the CPU"]
    (found.ready if found.is_well else found.not_ready)[:0] = training
    if has_gpu and found.is_well:
        found.ready.append("training on the GPU")
    elif not has_gpu:
        found.not_ready.append("training on a GPU (torch sees none)")
    return found


def installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def own_requirements() -> list[Requirement] | None:
    """What dagrl's own metadata names; None where dagrl is not installed but run from its source."""
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return None
    return [requirement for line in lines if (requirement := read_requirement(line)) is not None]


def read_requirement(line: str) -> Requirement | None:
    """`torch<2.14,>=2.11` or `ray>=2.47; extra == "ray"`."""
    match = _REQUIREMENT.fullmatch(line.strip())
    if match is None:
        return None
    extra = _EXTRA.search(match["marker"] or "")
    return Requirement(name=match["name"], range=match["range"].strip(), extra=None if extra is None else extra[1])


def _release(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` -> (2, 13), without zeros at the end: 3.0 and 3 are one."""
    numbers = [int(part) for part in re.findall(r"\d+", re.split(r"[+a-z]", version, maxsplit=1)[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < MIN_PYTHON:
        how = "make a virtual environment with a newer Python"
        return Check(level=Level.BAD, text=f"python {version}: dagrl needs 3.11 or later", how=how)
    return Check(level=Level.GOOD, text=f"python {version} ({sys.prefix})")


def _packages(version_of: VersionOf, requirements: Sequence[Requirement] | None) -> list[Check]:
    """One line for all packages that are right, one for each that must be mended, one for each extra not there."""
    if requirements is None:
        text = "dagrl is run from its source and not installed: versions of packages are not checked"
        return [Check(level=Level.OPTIONAL, text=text, how="pip install -e . in its folder")]
    right: list[str] = []
    wrong: list[Check] = []
    absent: dict[str, list[str]] = {}
    for one in requirements:
        version = version_of(one.name)
        state = "is not installed" if version is None else f"{version} does not fit {one.range}"
        if one.extra == _DEVELOPING:
            continue
        if version is not None and one.admits(version):
            right.append(f"{one.name} {version}")
        elif one.extra is None:
            how = f"pip install '{one.name}{one.range}'"
            wrong.append(Check(level=Level.BAD, text=f"{one.name} {state}", how=how))
        else:
            absent.setdefault(one.extra, []).append(f"{one.name} {state}")
    optional = [
        Check(level=Level.OPTIONAL, text=f"optional: {', '.join(states)}", how=f'pip install "{DISTRIBUTION}[{extra}]"')
        for extra, states in absent.items()
    ]
    return [Check(level=Level.GOOD, text="packages: " + (", ".join(right) or "none")), *wrong, *optional]


def _device(found: Diagnosis, is_installed: bool) -> bool:
    """Notes what torch computes on; True if that is a GPU."""
    if not is_installed:
        return False
    try:
        torch = importlib.import_module("torch")
        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    except (ImportError, OSError, RuntimeError) as error:
        text = f"torch cannot be used: {' '.join(str(error).split())}"
        found.checks.append(Check(level=Level.BAD, text=text, how="install a build of torch that fits this machine"))
        return False
    cores = f"{len(os.sched_getaffinity(0))} CPU cores, {torch.get_num_threads()} threads"
    found.checks.append(Check(level=Level.GOOD, text=f"device: {', '.join(names) if names else 'no GPU'}; {cores}"))
    return bool(names)


def _folder(what: str, folder: Path, choose: str) -> Check:
    """Whether files can be written, locked and renamed there, and how much room there is. Leaves nothing behind."""
    place = _existing(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".dagrl-doctor-", dir=place) as trial:
            with (Path(trial) / "one").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.write("trial")
                os.fsync(file.fileno())
            (Path(trial) / "one").rename(Path(trial) / "other")
    except OSError as error:
        text = f"{what} {folder}: cannot write, lock and rename there: {error.strerror}"
        return Check(level=Level.BAD, text=text, how=f"choose another: {choose}")
    free = shutil.disk_usage(place).free
    if free < MIN_FREE_BYTES:
        return Check(level=Level.BAD, text=f"{what} {folder}: only {_size(free)} free", how=f"make room, or {choose}")
    return Check(level=Level.GOOD, text=f"{what} {folder}: can be written, {_size(free)} free")


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists: there it would be made."""
    return next((one for one in (folder.absolute(), *folder.absolute().parents) if one.is_dir()), Path("/"))


def _cache() -> Check:
    return _folder("cache", cache_folder(), "DAGRL_CACHE=FOLDER")


def _memory() -> Check:
    available = _available_memory()
    if available is None:
        return Check(level=Level.OPTIONAL, text="memory: unknown on this machine")
    if available < MIN_FREE_BYTES:
        return Check(level=Level.BAD, text=f"memory: only {_size(available)} available", how="end other programs")
    return Check(level=Level.GOOD, text=f"memory: {_size(available)} available")


def _available_memory() -> int | None:
    """Bytes that new programs can have, within the limit of a container; None where Linux does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)
    room = _container_room()
    return available if available is None or room is None else min(available, room)


def _container_room() -> int | None:
    """What a limit of control groups (version 2) leaves; None without one."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return int(limit) - used if limit.isdecimal() else None


def _offline() -> Check:
    """Nothing is asked of the network; only Hugging Face names that are not in the cache would need it."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cached = len(list((home / "hub").glob("models--*")))
    setting = ", HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else ""
    text = f"network: not needed and not tried; {cached} Hugging Face models in the cache{setting}"
    return Check(level=Level.GOOD, text=text)


def _code_rewards(found: Diagnosis) -> None:
    """Whether programs that models write can be run behind all walls."""
    missing = missing_walls()
    what = "rewards that run model-written code"
    if not missing:
        found.ready.append(what)
        return
    why = "; ".join(f"{wall}: {reason}" for wall, reason in missing.items())
    found.checks.append(Check(level=Level.OPTIONAL, text=f"sandbox: this kernel does not give all walls ({why})"))
    found.not_ready.append(f"{what} (see sandbox)")


def _size(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 30):.1f} GiB"
