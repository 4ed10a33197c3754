"""What the page shows of several runs beside each other, as plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dagrl.report.comparison import (
    Curve,
    Group,
    Metric,
    Points,
    code_diff,
    compare_metrics,
    different_settings,
    different_versions,
    group_runs,
)
from dagrl.report.comparison_text import signed, verdict
from dagrl.report.curves import thinned
from dagrl.report.metric_guide import as_json
from dagrl.report.reader import RunReader


def comparison(runs: Mapping[str, RunReader]) -> dict[str, Any]:
    """Groups, curves with bands, ends, and what differs; `runs` by the names that the page knows them by."""
    groups = group_runs(list(runs.values()))
    names = {id(reader): name for name, reader in runs.items()}
    metrics = compare_metrics(groups, ["*"] if any(reader.metrics() for reader in runs.values()) else [])
    told = {metric.name for metric in compare_metrics(groups, [])}
    return {
        "groups": [_group(group, names) for group in groups],
        "agents": next(iter(runs.values())).agents,
        "curves": {metric.name: [_curve(curve) for curve in metric.curves] for metric in metrics},
        "guide": {metric.name: as_json(metric.name) for metric in metrics},
        "ends": [_ends(metric) for metric in sorted(metrics, key=_place) if metric.name in told],
        "settings": [asdict(one) for one in different_settings(groups)],
        "versions": [asdict(one) for one in different_versions(groups)],
        "code": [{"label": group.label, "lines": code_diff(groups[0], group)} for group in groups[1:]],
    }


def _place(metric: Metric) -> tuple[int, str]:
    return as_json(metric.name)["rank"], metric.name


def _group(group: Group, names: Mapping[int, str]) -> dict[str, Any]:
    runs = [{"name": names[id(run)], "seed": seed, "state": run.status().state, "step": run.status().step}
            for run, seed in zip(group.runs, group.seeds, strict=True)]  # fmt: skip
    return {"label": group.label, "runs": runs}


def _curve(curve: Curve) -> dict[str, Any]:
    mean = thinned(list(curve.mean.items()))
    low, high = ({step: value + sign * curve.margins[step] for step, value in curve.mean.items()
                  if step in curve.margins} for sign in (-1, 1))  # fmt: skip
    band = {"low": _values(low), "high": _values(high), "band_x": thinned(list(low.items()))["x"]}
    return {"label": curve.group.label, **mean, **band, "by_run": [thinned(list(own.items())) for own in curve.by_run]}


def _values(points: Points) -> list[float | None]:
    return thinned(list(points.items()))["y"]


def _ends(metric: Metric) -> dict[str, Any]:
    """Ends of the groups as texts, and the difference to the first one that has the metric."""
    told = {}
    for curve in metric.curves:
        gain = None if curve is metric.curves[0] else metric.gain(curve)
        told[curve.group.label] = {
            "end": str(curve.end),
            "by_run": list(curve.ends),
            "gain": None if gain is None else signed(gain),
            "verdict": "" if gain is None else verdict(gain),
            "is_clear": gain is not None and gain.excludes_zero,
        }
    return {"name": metric.name, "last_step": metric.last_step, "groups": told}
