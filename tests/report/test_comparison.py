"""Runs of one workflow are grouped by seed; what is told of them is what a slower count gives."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path

import pytest

from dagrl.errors import DagrlError
from dagrl.report.comparison import (
    ABSENT,
    code_diff,
    compare_metrics,
    different_settings,
    different_versions,
    end_of,
    group_runs,
)
from dagrl.report.comparison_text import comparison_json, comparison_lines
from dagrl.report.comparison_view import comparison
from dagrl.report.reader import RunReader
from tests.run_builders import HOOK, NOON, make_run, write_metrics


def _run(root: Path, number: int, **changes) -> RunReader:
    return RunReader(make_run(root / "runs", now=NOON + timedelta(minutes=number), **changes).path)


def test_runs_that_differ_in_the_seed_alone_are_one_group(tmp_path: Path) -> None:
    runs = [
        _run(tmp_path, 0, seed=1),
        _run(tmp_path, 1, seed=1, lr=0.1),
        _run(tmp_path, 2, seed=2),
        _run(tmp_path, 3, seed=3, hook=HOOK + "# changed\n"),
    ]
    groups = group_runs(runs)
    assert [(group.label, group.seeds) for group in groups] == [("A", ("1", "2")), ("B", ("1",)), ("C", ("3",))]
    with pytest.raises(DagrlError, match="given twice"):
        group_runs([runs[0], RunReader(runs[0].path)])


def test_settings_and_code_that_differ_are_told_by_path_and_line(tmp_path: Path) -> None:
    groups = group_runs([_run(tmp_path, 0), _run(tmp_path, 1, seed=2, lr=0.1, hook=HOOK + "# changed\n")])
    told = different_settings(groups)
    assert [(one.path, one.values) for one in told] == [("config.actor.optim.lr", ("0.01", "0.1"))]
    changed = [line for line in code_diff(*groups) if line.startswith(("+", "-"))]
    assert changed == ["--- A/hook.py", "+++ B/hook.py", "+# changed"]
    assert different_versions(groups) == []


def test_a_node_that_only_one_workflow_has_stands_under_its_id(tmp_path: Path) -> None:
    runs = [_run(tmp_path, 0), _run(tmp_path, 1)]
    file = runs[1].path / "workflow.yaml"
    file.write_text(file.read_text() + "- node_id: judge\n  agent_group: 0\n")
    told = {one.path: one.values for one in different_settings(group_runs(runs))}
    assert told == {"nodes.judge.agent_group": (ABSENT, "0")}


def test_the_same_file_from_another_folder_is_the_same_code(tmp_path: Path) -> None:
    runs = [_run(tmp_path, number) for number in range(2)]
    for number, run in enumerate(runs):
        place = run.path / "code" / "elsewhere" / f"0000000{number}"
        place.mkdir(parents=True)
        (place / "env.py").write_text("x = 1\n")
    assert len(group_runs(runs)) == 1


def test_curves_are_means_over_seeds_up_to_the_last_step_that_all_have(tmp_path: Path) -> None:
    groups = group_runs([
        _run(tmp_path, 0, seed=1, rewards=[0.0, 1.0, 2.0, 9.0]),
        _run(tmp_path, 1, seed=2, rewards=[2.0, 3.0, 5.0]),
        _run(tmp_path, 2, seed=1, lr=0.1, rewards=[1.0, 1.0, 1.0]),
    ])  # fmt: skip
    (metric,) = compare_metrics(groups, ["reward/*"])
    first, second = metric.curves
    assert (metric.last_step, first.mean, first.ends) == (3, {1: 1.0, 2: 2.0, 3: 3.5}, (2.0, 5.0))
    assert first.end.mean == 3.5
    assert first.end.margin == pytest.approx(12.7062047 * math.sqrt(4.5 / 2), rel=1e-6)
    assert first.margins == pytest.approx({1: 12.7062047, 2: 12.7062047, 3: 12.7062047 * 1.5}, rel=1e-6)
    assert (second.end.mean, second.end.margin, second.margins) == (1.0, None, {})
    assert (metric.gain(second).mean, metric.gain(second).margin) == (-2.5, None)


def test_the_end_is_the_mean_of_the_last_tenth_or_the_last_value() -> None:
    assert end_of({step: float(step) for step in range(1, 41)}, 40) == (37 + 38 + 39 + 40) / 4
    assert end_of({0: 0.1, 20: 0.7}, 40) == 0.7
    assert end_of({0: 0.1}, 0) == 0.1


def test_a_metric_that_no_run_has_gets_the_nearest(tmp_path: Path) -> None:
    groups = group_runs([_run(tmp_path, 0, rewards=[1.0]), _run(tmp_path, 1, seed=2, rewards=[1.0])])
    with pytest.raises(DagrlError, match="did you mean 'reward/mean'"):
        compare_metrics(groups, ["reward/men"])


def test_runs_without_metrics_are_compared_by_their_settings(tmp_path: Path) -> None:
    groups = group_runs([_run(tmp_path, 0), _run(tmp_path, 1, lr=0.1)])
    metrics = compare_metrics(groups, [])
    assert metrics == []
    assert any("config.actor.optim.lr" in text for text, _ in comparison_lines(groups, metrics))
    assert comparison_json(groups, metrics)["settings"][0]["path"] == "config.actor.optim.lr"


def test_a_metric_that_one_group_lacks_is_shown_for_the_others(tmp_path: Path) -> None:
    runs = [_run(tmp_path, 0, rewards=[1.0, 1.0]), _run(tmp_path, 1, lr=0.1)]
    write_metrics(runs[1].path, [{"critic/loss": 2.0}])
    metrics = compare_metrics(group_runs(runs), ["*"])
    having = {metric.name: [curve.group.label for curve in metric.curves] for metric in metrics}
    assert having == {"critic/loss": ["B"], "reward/mean": ["A"]}


def test_the_page_gets_groups_with_bands_and_the_difference_of_settings_and_code(tmp_path: Path) -> None:
    runs = {
        "a": _run(tmp_path, 0, seed=1, rewards=[0.0, 1.0]),
        "b": _run(tmp_path, 1, seed=2, rewards=[2.0, 3.0]),
        "c": _run(tmp_path, 2, seed=1, lr=0.1, hook=HOOK + "# changed\n", rewards=[4.0, 4.0]),
    }
    told = comparison(runs)
    assert [[run["name"] for run in group["runs"]] for group in told["groups"]] == [["a", "b"], ["c"]]
    first, second = told["curves"]["reward/mean"]
    assert (first["x"], first["y"]) == ([1, 2], [1.0, 2.0])
    margin = 12.7062047 * math.sqrt(2 / 2)
    assert first["low"] == pytest.approx([1 - margin, 2 - margin], rel=1e-6)
    assert first["high"] == pytest.approx([1 + margin, 2 + margin], rel=1e-6)
    assert [one["y"] for one in first["by_run"]] == [[0.0, 1.0], [2.0, 3.0]]
    assert (second["y"], second["low"]) == ([4.0, 4.0], [])
    assert told["ends"][0]["groups"]["B"]["gain"] == "+2"
    assert [one["path"] for one in told["settings"]] == ["config.actor.optim.lr"]
    assert "+# changed" in told["code"][0]["lines"]
