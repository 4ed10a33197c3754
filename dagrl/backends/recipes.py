"""Models made on first use: `file.py:function` writes a model folder once, and it is kept in a cache.

The folder is made beside its place and renamed when it is whole, so it is whole or absent; a lock keeps two processes
from making the same one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from dagrl.cache import cache_folder
from dagrl.errors import DagrlError, boundary
from dagrl.workflow.imports import with_imports
from dagrl.workflow.plugins import load, resolve_path

Progress = Callable[[float, str], None]
"""(share done in [0, 1], what is being done)."""


def recipe_folder(recipe: str, kwargs: Mapping[str, Any], base: Path) -> Path:
    """Where the model of `recipe` is kept.

    The name is a hash of the recipe's file and those that it imports beside it, its keyword arguments, and major.minor
    of torch and transformers: a change of any of them makes the model anew.
    """
    file, function = _split(recipe)
    parts = [function, json.dumps(dict(kwargs), sort_keys=True, default=str), _short(torch), _short(transformers)]
    code = b"".join(one.read_bytes() for one in with_imports([resolve_path(file, base)]))
    digest = hashlib.sha256(code + "\x1f".join(parts).encode()).hexdigest()
    return cache_folder() / "models" / digest


def ensure_model(recipe: str, kwargs: Mapping[str, Any], base: Path, progress: Progress) -> Path:
    """The folder of `recipe`'s model, made now if it is not in the cache.

    `recipe` is `file.py:function`, relative to `base` (the workflow's folder), called as
    `function(folder, progress, **kwargs)`.
    """
    folder = recipe_folder(recipe, kwargs, base)
    if folder.is_dir():
        return folder
    make = load(recipe, base)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            _make(make, folder, recipe, kwargs, progress)
    return folder


def _make(make: Any, folder: Path, recipe: str, kwargs: Mapping[str, Any], progress: Progress) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name[:16]}.", dir=folder.parent))
    try:
        with boundary(f"recipe {recipe}"):
            make(unfinished, progress, **kwargs)
        if not (unfinished / "config.json").is_file():
            raise DagrlError(
                "the recipe wrote no config.json",
                where=recipe,
                how="end it with model.save_pretrained(folder) and tokenizer.save_pretrained(folder)",
            )
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _split(recipe: str) -> tuple[str, str]:
    file, colon, function = recipe.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise DagrlError(f"'{recipe}' is not `file.py:function`", where="model.recipe")
    return file, function


def _short(module: Any) -> str:
    return ".".join(str(module.__version__).split(".")[:2])
