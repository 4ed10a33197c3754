"""User code named in a workflow: found, loaded once as a real module, and a good message where that fails."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from dagrl.errors import DagrlError, PluginError
from dagrl.workflow.nearest import did_you_mean, nearest

_SHIMS = {"siirl": "dagrl.siirl_compat"}
"""Packages that files written for other frameworks import, and our module whose `install` stands in for them."""

_loading = threading.RLock()


def load(ref: str, base: Path) -> Any:
    """What `path/file.py:Name`, `package.module:Name` or `package.module.name` names.

    `base` is the folder of the workflow file. Raises `PluginError`.
    """
    where, name = _split(ref)
    module = load_module(where, base) if _is_file(where) else _import(where, ref, base)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise _no_name(module, name, ref)
        value = getattr(value, part)
    return value


def load_module(path: str, base: Path) -> ModuleType:
    """The module of a file, loaded once per process. Raises `PluginError`."""
    file = resolve_path(path, base).resolve()
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    with _loading:
        return sys.modules[name] if name in sys.modules else _execute(name, file)


def resolve_path(path: str, base: Path) -> Path:
    """The file that `path` names: relative to `base`, to the working directory, or to a folder above `base`.

    Raises `PluginError` that lists where it was looked for.
    """
    wanted = Path(path).expanduser()
    tried = candidates(wanted, base)
    for candidate in tried:
        if os.path.isfile(candidate):
            return candidate
    looked = ", ".join(str(one.parent) for one in tried[:4]) + (", …" if len(tried) > 4 else "")
    known = [other.name for one in tried if os.path.isdir(one.parent) for other in one.parent.glob("*.py")]
    close = nearest(wanted.name, known)
    raise PluginError(f"no file '{path}'", how=f"looked in {looked}" + (f"; did you mean '{close}'?" if close else ""))


def candidates(wanted: Path, base: Path) -> list[Path]:
    """Where a file may be, in the order in which it is looked for."""
    if wanted.is_absolute():
        return [wanted]
    folder = base.resolve()
    return [one / wanted for one in dict.fromkeys((folder, Path.cwd(), *folder.parents))]


def _split(ref: str) -> tuple[str, str]:
    where, colon, name = ref.rpartition(":")
    if colon and where and name:
        return where, name
    if not colon and ref.endswith(".py"):
        raise PluginError(f"'{ref}' names a file but nothing in it", how=f"write {ref}:Name")
    where, dot, name = ref.rpartition(".")
    if colon or not dot or not where or not name:
        raise PluginError(f"'{ref}' is not path/file.py:Name or package.module:Name")
    return where, name


def _is_file(where: str) -> bool:
    return where.endswith(".py") or "/" in where


def is_reference(word: str) -> bool:
    """True where a word names a function of the user's rather than a built-in one."""
    return ":" in word or "." in word


def _execute(name: str, file: Path) -> ModuleType:
    _install_shims(file)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PluginError(f"'{file}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _first_on_path(file.parent), _blaming(str(file), file):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _install_shims(file: Path) -> None:
    """Stands in for packages that the file imports and that are not installed.

    The module is named in a table and imported here, because what it stands in for lives on a higher floor.
    """
    text = file.read_bytes()
    for package, shim in _SHIMS.items():
        if package.encode() in text:
            importlib.import_module(shim).install()


def _import(where: str, ref: str, base: Path) -> ModuleType:
    with _loading, _first_on_path(base.resolve(), Path.cwd()), _blaming(where, None):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{where}.".startswith(f"{error.name}."):
                raise
            hint = f"looked in {base.resolve()}, {Path.cwd()} and the installed packages"
            raise PluginError(f"no module '{error.name}' for '{ref}'", how=hint) from error


@contextmanager
def _first_on_path(*folders: Path) -> Iterator[None]:
    """The folders are searched first while a module is loaded, and last from then on, for imports inside functions."""
    added = [str(folder) for folder in folders if str(folder) not in sys.path]
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)
            sys.path.append(folder)


@contextmanager
def _blaming(name: str, file: Path | None) -> Iterator[None]:
    """What user code raises while it is loaded becomes a `PluginError` that says where."""
    try:
        yield
    except DagrlError:
        raise
    except SyntaxError as error:
        raise PluginError(f"syntax error: {error.msg}", where=f"{error.filename}:{error.lineno}") from error
    except (Exception, SystemExit) as error:
        message = f"{name} raised {type(error).__name__} while it was loaded: {error}"
        raise PluginError(message, where=_place(error, file)) from error


def _place(error: BaseException, file: Path | None) -> str | None:
    """The last line of the user's file on the way to the error, else the last line at all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if file is not None and frame.filename == str(file)] or frames
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def _no_name(module: ModuleType, name: str, ref: str) -> PluginError:
    defined = [
        known
        for known, value in vars(module).items()
        if callable(value) and not known.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    where = str(getattr(module, "__file__", module.__name__))
    hint = did_you_mean(name, defined) or "the file defines no class or function"
    return PluginError(f"no '{name}' in '{ref.rpartition(':')[0] or where}'", where=where, how=hint)
