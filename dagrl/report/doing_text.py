"""What a run is doing now, as words."""

from __future__ import annotations

from dagrl.plain_text import duration
from dagrl.report.reader import Doing

MAX_NAMES = 3


def doing_text(doing: Doing | None, now: float | None = None) -> str:
    """`learn: actor_train`, with `now` also for how long: `learn: actor_train (12s)`; empty for None."""
    if doing is None:
        return ""
    names = sorted(doing.nodes, key=lambda name: (doing.nodes[name], name))
    shown = ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")
    text = f"{doing.phase}: {shown}" if names else doing.phase
    if now is None:
        return text
    since = min(doing.nodes.values(), default=doing.since)
    return f"{text} ({duration(max(0.0, now - since))})"
