"""Values as JSON that every reader takes: it has neither NaN nor infinity."""

from __future__ import annotations

import math
from typing import Any


def finite(value: Any) -> Any:
    """`value` with None for numbers that are not finite, in mappings and sequences too.

    >>> finite({"mean": float("nan"), "bounds": (0.0, float("inf"))})
    {'mean': None, 'bounds': [0.0, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(member) for member in value]
    return value
