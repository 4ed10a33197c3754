"""Run folders are found by name, read while they grow, and what is broken in them is told by place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from dagrl.errors import DagrlError, StorageError
from dagrl.report.metrics import merged, series
from dagrl.report.reader import RunReader, find_runs, is_alive, open_run
from dagrl.runtime import checkpoint
from tests.run_builders import AGENTS, HOOK, NOON, make_run, trajectory, write_metrics, write_trajectories


def _runs(root: Path, count: int) -> list[Path]:
    return [make_run(root, now=NOON + timedelta(minutes=number)).path for number in range(count)]


def test_runs_are_found_oldest_first_and_the_link_to_the_latest_is_none(tmp_path: Path) -> None:
    made = _runs(tmp_path / "runs", 3)
    assert find_runs(tmp_path / "runs") == made
    assert find_runs(made[0]) == [made[0]]
    assert find_runs(tmp_path / "nothing") == []


def test_the_eleventh_run_of_a_second_comes_after_the_tenth(tmp_path: Path) -> None:
    made = [make_run(tmp_path / "runs").path for _ in range(11)]
    assert find_runs(tmp_path / "runs") == made


def test_a_run_is_opened_by_path_folder_latest_dag_id_and_time(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    first, last = _runs(root, 2)
    assert open_run(first).path == first
    assert open_run(root).path == last
    assert open_run("latest", root).path == last
    assert open_run("team", root).path == last
    assert open_run("20260102-1200", root).path == first
    assert open_run(root / "team" / "latest").path.resolve() == last.resolve()


def test_a_name_that_is_no_run_gets_the_nearest(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    with pytest.raises(DagrlError, match="there are no runs in"):
        open_run("team", root)
    _runs(root, 2)
    with pytest.raises(DagrlError, match="did you mean 'team'"):
        open_run("taem", root)
    with pytest.raises(DagrlError, match="is the beginning of 2 runs"):
        open_run("2026", root)


def test_a_run_tells_its_workflow_agents_code_and_versions(tmp_path: Path) -> None:
    run = RunReader(make_run(tmp_path / "runs", seed=3).path)
    assert run.workflow["config"]["trainer"] == {"total_steps": 10, "seed": 3}
    assert (run.total_steps, run.agents, run.overrides()) == (10, AGENTS, ["a=1"])
    assert run.code() == {"hook.py": HOOK}
    assert run.versions()["seed"] == 3


def test_metrics_are_read_on_while_they_are_written(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs", rewards=(0.1, 0.2))
    run = RunReader(folder.path)
    assert series(run.metrics(), "reward/mean") == {1: 0.1, 2: 0.2}
    assert all(row["time"] > 0 for row in run.metrics())
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "reward/me')
        file.flush()
        assert len(run.metrics()) == 2
        file.write('an": 0.3}\n')
    assert series(run.metrics(), "reward/mean") == {1: 0.1, 2: 0.2, 3: 0.3}


@pytest.mark.parametrize("kept", [1, 2])
def test_a_run_that_was_cut_back_and_went_on_is_read_anew(tmp_path: Path, kept: int) -> None:
    path = make_run(tmp_path / "runs", rewards=(0.1, 0.2)).path
    run = RunReader(path)
    assert len(run.metrics()) == 2
    for name in ("metrics.jsonl", "timings.jsonl"):
        lines = (path / name).read_bytes().splitlines(keepends=True)
        (path / name).write_bytes(b"".join(lines[: kept - 1]))
    write_metrics(path, [{"reward/mean": 0.7}, {"reward/mean": 0.8}, {"reward/mean": 0.9}], first_step=kept)
    expected = dict(zip(range(1, kept + 3), [*[0.1, 0.2][: kept - 1], 0.7, 0.8, 0.9], strict=True))
    assert series(run.metrics(), "reward/mean") == expected


def test_a_step_with_training_and_held_out_rows_is_one_when_merged() -> None:
    rows = [{"step": 2, "reward/mean": 1.0}, {"step": 1, "x": None}, {"step": 2, "val/accuracy": 0.5}]
    assert merged(rows) == [{"step": 1, "x": None}, {"step": 2, "reward/mean": 1.0, "val/accuracy": 0.5}]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{nonsense", "is not JSON"),
        ("[1]", "not a row"),
        ('{"step": 1.5}', "not a row"),
        ('{"step": 1, "a": "b"}', "'a'"),
    ],
)
def test_a_broken_line_of_metrics_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = make_run(tmp_path / "runs").path
    (path / "metrics.jsonl").write_text('{"step": 0}\n' + line + "\n")
    with pytest.raises(StorageError, match=told) as caught:
        RunReader(path).metrics()
    assert caught.value.where == f"{path / 'metrics.jsonl'}:2"


def test_a_run_without_status_is_unknown_and_one_with_a_broken_one_is_an_error(tmp_path: Path) -> None:
    path = make_run(tmp_path / "runs", rewards=(0.1,), state=None).path
    status = RunReader(path).status()
    assert (status.state, status.step, status.age_s()) == ("unknown", 1, None)
    for content in ("{", "[]", '{"state": "done"}'):
        (path / "status.json").write_text(content)
        with pytest.raises(StorageError, match=r"status\.json"):
            RunReader(path).status()


def test_a_running_run_whose_process_is_gone_is_dead(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs", state="running")
    run = RunReader(folder.path)
    assert run.status().state == "running"
    folder.close()
    assert run.status().state == "dead", "this process lives, but it no longer holds the run's lock"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    status = json.loads((folder.path / "status.json").read_text())
    (folder.path / "status.json").write_text(json.dumps({**status, "pid": ended.pid}))
    assert run.status().state == "dead"
    assert not is_alive(None, folder.path / ".lock")


def test_trajectory_files_are_listed_by_step_and_kind(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs")
    run = RunReader(folder.path)
    with pytest.raises(DagrlError, match="has not written any"):
        run.trajectory_file(1)
    for step in (1, 2, 3, 7):
        write_trajectories(folder, step, [trajectory("t:0", 1.0)], [0.0])
    for name in ("eval_000002", "eval_000002_without_think"):
        for end in (".parquet", ".timings.parquet"):
            (folder.trajectories / f"{name}{end}").write_text("")
    for name in (".tmp-step_000009.parquet-1", "notes"):
        (folder.trajectories / name).write_text("")
    found = [(file.step, file.kind, file.without) for file in run.trajectory_files()]
    assert found == [(1, "step", ""), (2, "eval", ""), (2, "eval", "think"), (2, "step", ""), (3, "step", ""),
                     (7, "step", "")]  # fmt: skip
    assert run.trajectory_file(2, "eval", "think").path.name == "eval_000002_without_think.parquet"
    with pytest.raises(DagrlError, match="there are steps 1-3, 7"):
        run.trajectory_file(4)


def test_checkpoints_are_listed_with_their_size_and_whether_they_are_complete(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs")
    for step in (5, 10):
        parts = checkpoint.CheckpointParts(agents={"a": lambda place: (place / "w").write_bytes(b"1234") and None})
        checkpoint.save(folder.checkpoints, step, parts)
    os.truncate(folder.checkpoints / "step_000010" / "agent_a" / "w", 3)
    (folder.checkpoints / ".tmp-step_000015-1").mkdir()
    found = RunReader(folder.path).checkpoints()
    assert [(one.step, one.is_complete) for one in found] == [(5, True), (10, False)]
    files = [path for path in (folder.checkpoints / "step_000005").rglob("*") if path.is_file()]
    manifest_free = [path for path in files if path.name != "MANIFEST.json"]
    assert found[0].num_bytes == sum(path.stat().st_size for path in manifest_free)


def test_failures_are_read_and_a_broken_one_is_named(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs")
    assert RunReader(folder.path).failures() == []
    folder.failures.mkdir()
    (folder.failures / "step1_t-0_0.json").write_text('{"kind": "raised"}')
    assert [one["kind"] for one in RunReader(folder.path).failures()] == ["raised"]
    (folder.failures / "step2_t-0_0.json").write_text("")
    with pytest.raises(StorageError, match=r"step2_t-0_0\.json"):
        RunReader(folder.path).failures()


def test_a_missing_workflow_is_told(tmp_path: Path) -> None:
    path = make_run(tmp_path / "runs").path
    (path / "workflow.yaml").unlink()
    with pytest.raises(DagrlError, match=r"workflow\.yaml"):
        _ = RunReader(path).workflow
