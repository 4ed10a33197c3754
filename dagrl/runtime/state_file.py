"""Nested state (tensors, numbers, texts, lists, tuples, dicts, None) as safetensors and JSON: nothing is unpickled."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from dagrl.errors import StorageError
from dagrl.runtime.storage import storage

TENSORS_FILE = "tensors.safetensors"
STRUCTURE_FILE = "structure.json"


def save_state(folder: Path, state: Any) -> None:
    """Writes `state` into `folder`. Raises TypeError, naming the place, for a value that cannot be given back."""
    tensors: dict[str, Tensor] = {}
    structure = _encode(state, "state", tensors)
    with storage(folder):
        (folder / STRUCTURE_FILE).write_text(json.dumps(structure, allow_nan=False), encoding="utf-8")
        save_file(tensors, folder / TENSORS_FILE)


def load_state(folder: Path) -> Any:
    """What `save_state` wrote, equal in every value and type; tensors on the CPU, every mapping a dict."""
    try:
        structure = json.loads((folder / STRUCTURE_FILE).read_text(encoding="utf-8"))
        tensors = load_file(folder / TENSORS_FILE)
        return _decode(structure, tensors)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise StorageError(f"the saved state cannot be read: {error}", where=str(folder)) from error


def first_nonfinite(file: Path) -> str | None:
    """The name of the first tensor in a safetensors file that holds NaN or infinity; None where there is none."""
    try:
        with safe_open(file, framework="pt") as tensors:
            names = tensors.keys()
            return next((name for name in names if not _is_finite(tensors.get_tensor(name))), None)
    except SafetensorError as error:
        raise StorageError(f"cannot be read: {error}", where=str(file)) from error


def _is_finite(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    low, high = torch.aminmax(tensor)  # either is NaN where any element is
    return math.isfinite(low) and math.isfinite(high)


def _encode(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """JSON of `value`: null, bool, int, finite float and text as they are, all else as `{kind: content}`."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, Tensor):
        name = f"{len(tensors):06d}.{place}"
        # A copy: safetensors refuses tensors that share memory.
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": name}
    if kind in (list, tuple):
        return {kind.__name__: [_encode(part, f"{place}.{index}", tensors) for index, part in enumerate(value)]}
    if isinstance(value, Mapping):
        pairs = [[_key(key, place), _encode(part, f"{place}.{key}", tensors)] for key, part in value.items()]
        return {"dict": pairs}
    raise TypeError(f"{place}: a {kind.__name__} cannot be saved; use tensors, numbers, texts, lists, tuples, dicts")


def _key(key: Any, place: str) -> str | int:
    if type(key) is str or type(key) is int:
        return key
    raise TypeError(f"{place}: the key {key!r} is a {type(key).__name__}, not a text or a whole number")


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "float":
        return float(content)
    if kind == "dict":
        return {key: _decode(part, tensors) for key, part in content}
    parts = [_decode(part, tensors) for part in content]
    if kind == "list":
        return parts
    if kind == "tuple":
        return tuple(parts)
    raise ValueError(f"unknown kind '{kind}'")
