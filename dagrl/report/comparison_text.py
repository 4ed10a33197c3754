"""A comparison of runs as lines for the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dagrl.report.comparison import (
    Curve,
    Difference,
    Group,
    Metric,
    code_diff,
    different_settings,
    different_versions,
)
from dagrl.report.intervals import Estimate
from dagrl.report.screen import BAD, DIM, GOOD, HEAD, Line, table
from dagrl.report.sparkline import resample, sparkline

CURVE_WIDTH = 40
_DIFF_STYLES = {"+": GOOD, "-": BAD, "@": DIM}


def group_lines(groups: Sequence[Group]) -> list[Line]:
    rows = []
    for group in groups:
        for number, run in enumerate(group.runs):
            label = group.label if number == 0 else ""
            status = run.status()
            rows.append([label, str(run.path), group.seeds[number], f"{status.step}", status.state])
    return table(("", "RUN", "SEED", "STEP", "STATE"), rows, right=("SEED", "STEP"))


def metric_lines(metric: Metric) -> list[Line]:
    """A row per group; of a single group also a row per seed."""
    values = [value for curve in metric.curves for own in (curve.mean, *curve.by_run) for value in own.values()]
    low, high = min(values), max(values)
    first = min(step for curve in metric.curves for step in curve.mean)
    width = min(CURVE_WIDTH, metric.last_step - first + 1)

    def drawn(points: dict[int, float]) -> str:
        return sparkline(resample(points, first, metric.last_step, width), low, high)

    rows = [[curve.group.label, drawn(curve.mean), f"{curve.first:.4g}", str(curve.end), _gain(metric, curve)]
            for curve in metric.curves]  # fmt: skip
    if len(metric.curves) == 1 and len(metric.curves[0].by_run) > 1:
        curve = metric.curves[0]
        for number, (points, end) in enumerate(zip(curve.by_run, curve.ends, strict=True), start=1):
            rows.append([f"{curve.group.label}{number}", drawn(points), f"{points[min(points)]:.4g}", f"{end:.4g}", ""])
    against = f"less {metric.curves[0].group.label}" if len(metric.curves) > 1 else ""
    head = (metric.name, f"steps {first} to {metric.last_step}", "first", "end", against)
    return table(head, rows, right=("first",))


def difference_lines(title: str, groups: Sequence[Group], found: Sequence[Difference]) -> list[Line]:
    if not found:
        return [(f"{title}: the same", DIM)]
    head = (title, *(group.label for group in groups))
    return table(head, [[one.path, *one.values] for one in found])


def code_lines(groups: Sequence[Group]) -> list[Line]:
    """The code of each group beside that of the first."""
    lines: list[Line] = []
    for group in groups[1:]:
        diff = code_diff(groups[0], group)
        if diff:
            lines.append((f"code of {groups[0].label} and {group.label}", HEAD))
            lines += [(line, _DIFF_STYLES.get(line[:1], "")) for line in diff]
        else:
            lines.append((f"code of {groups[0].label} and {group.label}: the same", DIM))
    return lines


def comparison_lines(groups: Sequence[Group], metrics: Sequence[Metric]) -> list[Line]:
    lines = [*group_lines(groups), ("", "")]
    several = any(len(group.runs) > 1 for group in groups)
    note = "end: mean over the last tenth of the steps that all runs have"
    lines.append((f"{note}, over seeds ± its 95 % confidence interval" if several else note, DIM))
    for metric in metrics:
        lines += [("", ""), *metric_lines(metric)]
    if len(groups) > 1:
        lines += [("", ""), *difference_lines("settings", groups, different_settings(groups))]
        lines += [("", ""), *difference_lines("versions", groups, different_versions(groups))]
        lines += [("", ""), *code_lines(groups)]
    return lines


def comparison_json(groups: Sequence[Group], metrics: Sequence[Metric]) -> dict[str, Any]:
    """`{"groups", "metrics", "settings", "versions", "code"}`."""
    return {
        "groups": [
            {"label": group.label, "runs": [str(run.path) for run in group.runs], "seeds": list(group.seeds)}
            for group in groups
        ],
        "metrics": [
            {"name": metric.name, "last_step": metric.last_step, "curves": [_as_json(metric, c) for c in metric.curves]}
            for metric in metrics
        ],
        "settings": [asdict(one) for one in different_settings(groups)],
        "versions": [asdict(one) for one in different_versions(groups)],
        "code": {group.label: code_diff(groups[0], group) for group in groups[1:]},
    }


def _as_json(metric: Metric, curve: Curve) -> dict[str, Any]:
    return {
        "label": curve.group.label,
        "steps": list(curve.mean),
        "mean": list(curve.mean.values()),
        "margins": [curve.margins.get(step) for step in curve.mean],
        "ends": list(curve.ends),
        "end": asdict(curve.end),
        "difference": asdict(metric.gain(curve)),
    }


def _gain(metric: Metric, curve: Curve) -> str:
    if curve is metric.curves[0]:
        return ""
    gain = metric.gain(curve)
    return f"{signed(gain)}  {verdict(gain)}"


def signed(gain: Estimate) -> str:
    return f"{'+' if gain.mean >= 0 else ''}{gain}"


def verdict(gain: Estimate) -> str:
    if gain.margin is None:
        return "(one seed: no interval)"
    return "" if gain.excludes_zero else "no clear difference"
