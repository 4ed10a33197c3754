"""Runs side by side: runs of one workflow that differ in the seed are one group; curves, ends, settings, code."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from string import ascii_uppercase
from typing import Any

from dagrl.errors import DagrlError
from dagrl.report.intervals import Estimate, difference, mean_over_seeds
from dagrl.report.metrics import merged, names, series
from dagrl.report.reader import RunReader
from dagrl.workflow.nearest import did_you_mean

DEFAULT_METRICS = (
    "reward/mean",
    "val/accuracy",
    "agent_*/policy/entropy",
    "agent_*/actor/kl",
    "agent_*/response_tokens",
    "perf/tokens_per_second",
)
END_SHARE = 10
"""The end of a curve is the mean over the last 1/END_SHARE of the steps."""
ABSENT = "(absent)"
_ELSEWHERE = "elsewhere/"

Points = dict[int, float]
"""Step to value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs of the same workflow and code, apart from the seed."""

    label: str
    """A, B, C …"""
    runs: tuple[RunReader, ...]

    @property
    def seeds(self) -> tuple[str, ...]:
        """As the runs recorded them; a workflow need not name its seed."""
        return tuple(str(run.versions().get("seed", "unknown")) for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One metric of one group, up to the last step that all compared runs have."""

    group: Group
    by_run: tuple[Points, ...]
    """Of the runs that have the metric."""
    mean: Points
    """Over the runs that have a value at the step."""
    margins: Points
    """Half the width of the mean's 95 % confidence interval, at the steps where several runs have a value."""
    first: float
    """The mean at the first step."""
    end: Estimate
    """Of the ends of the runs."""
    ends: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of all groups that have it."""

    name: str
    last_step: int
    curves: tuple[Curve, ...]

    def gain(self, curve: Curve) -> Estimate:
        """End of `curve` less end of the first one."""
        return difference(self.curves[0].ends, curve.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting that is not the same in all groups."""

    path: str
    """Dotted, nodes by id."""
    values: tuple[str, ...]
    """As JSON, one per group; `ABSENT` where the group does not have it."""


def group_runs(runs: Sequence[RunReader]) -> list[Group]:
    """Groups in the order of their first runs. Raises DagrlError where a folder is given twice."""
    places = [run.path.resolve() for run in runs]
    if twice := [place for place in places if places.count(place) > 1]:
        raise DagrlError(f"{twice[0]} is given twice")
    by_key: dict[str, list[RunReader]] = {}
    for run in runs:
        by_key.setdefault(_key(run), []).append(run)
    labels = [_label(number) for number in range(len(by_key))]
    return [Group(label=label, runs=tuple(own)) for label, own in zip(labels, by_key.values(), strict=True)]


def compare_metrics(groups: Sequence[Group], patterns: Sequence[str]) -> list[Metric]:
    """The metrics that fit `patterns` (`*` stands for anything; DEFAULT_METRICS if empty) and some run has.

    Raises DagrlError for a pattern that nothing fits.
    """
    rows = {id(run): merged(run.metrics()) for group in groups for run in group.runs}
    known = sorted({name for own in rows.values() for name in names(own)})
    found: dict[str, None] = {}
    for pattern in patterns or DEFAULT_METRICS:
        fitting = [name for name in known if fnmatchcase(name, pattern)]
        if patterns and not fitting:
            raise DagrlError(f"no run has a metric '{pattern}'", how=did_you_mean(pattern, known))
        found.update(dict.fromkeys(fitting))
    return [_metric(name, groups, {key: series(own, name) for key, own in rows.items()}) for name in found]


def different_settings(groups: Sequence[Group]) -> list[Difference]:
    """Of the resolved workflows, the seed apart; each group is told by its first run."""
    return _differences([_without_seed(group.runs[0].workflow) for group in groups])


def different_versions(groups: Sequence[Group]) -> list[Difference]:
    """Of Python, packages and devices."""
    keys = ("python", "packages", "machine", "devices", "num_threads")
    versions = [group.runs[0].versions() for group in groups]
    return _differences([{key: own[key] for key in keys if key in own} for own in versions])


def code_diff(before: Group, after: Group) -> list[str]:
    """Lines of a unified diff of the users' files of two groups; empty where they are the same."""
    old, new = (_code(group.runs[0]) for group in (before, after))
    lines: list[str] = []
    for place in sorted(old.keys() | new.keys()):
        texts = [own.get(place, "").splitlines() for own in (old, new)]
        names_shown = [f"{group.label}/{place}" for group in (before, after)]
        lines += difflib.unified_diff(texts[0], texts[1], names_shown[0], names_shown[1], lineterm="")
    return lines


def _metric(name: str, groups: Sequence[Group], points: Mapping[int, Points]) -> Metric:
    having = [[points[id(run)] for run in group.runs if points[id(run)]] for group in groups]
    last_step = min(max(one) for own in having for one in own)
    curves = [_curve(group, own, last_step) for group, own in zip(groups, having, strict=True) if own]
    return Metric(name=name, last_step=last_step, curves=tuple(curve for curve in curves if curve is not None))


def _curve(group: Group, by_run: Sequence[Points], last_step: int) -> Curve | None:
    """None where every value came after `last_step`."""
    cut = [{step: value for step, value in own.items() if step <= last_step} for own in by_run]
    cut = [own for own in cut if own]
    if not cut:
        return None
    steps = sorted({step for own in cut for step in own})
    at = {step: mean_over_seeds([own[step] for own in cut if step in own]) for step in steps}
    ends = tuple(end_of(own, last_step) for own in cut)
    return Curve(
        group=group,
        by_run=tuple(cut),
        mean={step: one.mean for step, one in at.items()},
        margins={step: one.margin for step, one in at.items() if one.margin is not None},
        first=at[steps[0]].mean,
        end=mean_over_seeds(ends),
        ends=ends,
    )


def end_of(points: Points, last_step: int) -> float:
    """Mean over the last tenth of the steps to `last_step`; the last value where none was measured there."""
    begin = last_step - max(1, last_step // END_SHARE)
    return _mean([value for step, value in points.items() if step > begin] or [points[max(points)]])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _key(run: RunReader) -> str:
    return json.dumps([_without_seed(run.workflow), _code(run)], sort_keys=True, default=str)


def _without_seed(workflow: Mapping[str, Any]) -> dict[str, Any]:
    """Without what may differ between runs of a group: the seed and where the runs are kept."""
    config = workflow.get("config")
    if not isinstance(config, Mapping) or not isinstance(config.get("trainer"), Mapping):
        return dict(workflow)
    trainer = {key: value for key, value in config["trainer"].items() if key not in ("seed", "runs_dir")}
    return {**workflow, "config": {**config, "trainer": trainer}}


def _code(run: RunReader) -> dict[str, str]:
    """File to text; the digest in the place of a file from elsewhere is left out, it changes with the text."""
    code: dict[str, str] = {}
    for place, text in run.code().items():
        short = _ELSEWHERE + place.split("/", 2)[2] if place.startswith(_ELSEWHERE) and place.count("/") > 1 else place
        code[place if short in code else short] = text
    return code


def _differences(contents: Sequence[Any]) -> list[Difference]:
    flat = [dict(_flat(content, "")) for content in contents]
    paths = dict.fromkeys(path for own in flat for path in own)
    told = [Difference(path=path, values=tuple(own.get(path, ABSENT) for own in flat)) for path in paths]
    return sorted((one for one in told if len(set(one.values)) > 1), key=lambda one: one.path)


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Dotted paths to JSON texts; members of lists of nodes stand under their `node_id`, other lists are one value."""
    if isinstance(value, list) and value and all(isinstance(one, Mapping) and "node_id" in one for one in value):
        value = {one["node_id"]: {key: inner for key, inner in one.items() if key != "node_id"} for one in value}
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, json.dumps(value, default=str, ensure_ascii=False)


def _label(number: int) -> str:
    return ascii_uppercase[number] if number < len(ascii_uppercase) else f"G{number + 1}"
