"""Where dagrl keeps what it has made once and can make again: models by recipe."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$DAGRL_CACHE`, or ~/.cache/dagrl."""
    given = os.environ.get("DAGRL_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "dagrl"
