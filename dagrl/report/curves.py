"""Every metric of a run as a curve with its guide, thinned to what a screen can show; as plain JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagrl.report.metric_guide import as_json
from dagrl.report.metrics import Row, merged, names

MAX_POINTS = 500
"""Of one curve; a longer run is shown as means of neighbouring steps."""
_HEADLINES = ("val/accuracy", "val/reward", "reward/mean")
"""What a run is told by in a list, the first that it has."""


def curves(rows: Sequence[Row], max_points: int = MAX_POINTS) -> dict[str, Any]:
    """Every metric as `{"x": steps, "y": values}` with its guide; values that were not finite are null."""
    by_step = merged(rows)
    found = {}
    for name in names(by_step):
        points = [(row["step"], row[name]) for row in by_step if name in row]
        found[name] = thinned(points, max_points)
    return {"series": found, "guide": {name: as_json(name) for name in found}, "num_rows": len(rows)}


def headline(rows: Sequence[Row], max_points: int = 60) -> dict[str, Any] | None:
    """The metric that tells most about a run, its last value and a short curve of the reward."""
    known = set(names(rows))
    name = next((name for name in _HEADLINES if name in known), None)
    if name is None:
        return None
    last = next(row[name] for row in reversed(rows) if row.get(name) is not None)
    spark = "reward/mean" if "reward/mean" in known else name
    points = [(row["step"], row[spark]) for row in merged(rows) if row.get(spark) is not None]
    return {"name": name, "title": as_json(name)["title"], "value": last, "spark": thinned(points, max_points)}


def thinned(points: Sequence[tuple[int, float | None]], max_points: int = MAX_POINTS) -> dict[str, list[Any]]:
    """Points as `{"x": steps, "y": values}`; of too many the means of neighbours, each at its last step."""
    if len(points) <= max_points:
        return {"x": [step for step, _ in points], "y": [value for _, value in points]}
    xs, ys = [], []
    for bucket in range(max_points):
        part = points[bucket * len(points) // max_points : (bucket + 1) * len(points) // max_points]
        values = [value for _, value in part if value is not None]
        xs.append(part[-1][0])
        ys.append(sum(values) / len(values) if values else None)
    return {"x": xs, "y": ys}
