"""`dagrl verify` and `dagrl rerun`: flipped bytes and changed numbers are named, a whole run comes out again."""

from __future__ import annotations

import fcntl
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagrl.cli import exit_code
from dagrl.runtime import manifest, run_difference
from dagrl.runtime.hashes import entry_of, sealed
from dagrl.runtime.verify import verify
from tests.small_teams import one_process
from tests.tiny_project import write_project

pytestmark = pytest.mark.resilience

SECRET = "hf_never_to_be_written"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with a run of four steps in `out`; its folder stands in the user's home."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "project"
    folder.mkdir()
    write_project(folder, total_steps=4, max_rounds=2)
    with one_process(folder / "cache"), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HOME", str(home))
        patch.setenv("HF_TOKEN", SECRET)
        options = ("trainer.save_freq=2", "trainer.test_freq=2")
        assert exit_code(["run", "--workflow", "calling.yaml", "--run-dir", "out", *options]) == 0
        yield folder


@pytest.fixture
def run(project, tmp_path):
    """A copy to be damaged."""
    return Path(shutil.copytree(project / "out", tmp_path / "run"))


@pytest.fixture(scope="module")
def repeated(project):
    """`out` made again, although the code beside the workflow is no longer what it was."""
    hooks = project / "hooks.py"
    before = hooks.read_text()
    hooks.write_text("raise RuntimeError('not the code that ran')\n")
    try:
        ended = exit_code(["rerun", "out", "--run-dir", "again"])
    finally:
        hooks.write_text(before)
    assert ended == 0
    return project / "again"


def files_of(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock")


def reseal(run: Path, *changed: str) -> None:
    """What a forger would do: the manifest agrees with the changed files."""
    content = manifest.read(run)
    for name in changed:
        content["files"][name] = entry_of(run / name)
    (run / manifest.MANIFEST).write_text(json.dumps(sealed(content, manifest.FORMAT)))


def change_metric(run: Path, step: int, name: str, amount: float) -> None:
    path = run / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if row["step"] == step and name in row:
            row[name] += amount
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reseal(run, "metrics.jsonl")


def test_a_whole_run_is_whole_and_all_its_numbers_come_out_again(project, capsys):
    assert exit_code(["verify", "out", "--deep"]) == 0
    assert capsys.readouterr().out.endswith("whole\n")
    verdict = verify(project / "out", None)
    assert (verdict.damaged, verdict.notes, verdict.steps) == ([], [], [0, 1, 2, 3, 4])
    assert verdict.num_numbers > 1000


def test_a_flipped_byte_in_any_file_is_found_and_the_file_is_named(run):
    unnamed = []
    for path in files_of(run):
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[len(content) // 2] ^= 1
        path.write_bytes(damaged)
        name = path.relative_to(run).as_posix()
        if not any(name in line for line in verify(run, 1).damaged):
            unnamed.append(name)
        path.write_bytes(content)
    assert unnamed == []
    assert verify(run, 1).damaged == [], "all is as it was"


def test_a_file_that_is_gone_or_was_slipped_in_is_named(run):
    for path in files_of(run):
        if path.name == manifest.MANIFEST:
            continue
        name, content = path.relative_to(run).as_posix(), path.read_bytes()
        path.unlink()
        assert any(f"{name}: is missing" in line for line in verify(run, 1).damaged), name
        path.write_bytes(content)
    for name in ("trajectories/step_000009.parquet", "code/more.py", "checkpoints/step_000004/agent_scout/more.bin"):
        (run / name).write_bytes(b"x")
        assert any(name in line for line in verify(run, 1).damaged), name
        (run / name).unlink()


def test_the_command_ends_with_5_and_a_line_for_every_damaged_part(run, capsys):
    (run / "code" / "hooks.py").write_text("pass\n")
    (run / "trajectories" / "step_000002.parquet").write_bytes(b"PAR1")
    assert exit_code(["verify", str(run)]) == 5
    lines = capsys.readouterr().out.splitlines()
    assert "damaged: code/hooks.py: is not what the run wrote" in lines
    assert any(line.startswith("damaged: trajectories/step_000002.parquet: is not a readable") for line in lines)
    assert "whole" not in lines


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (2, "reward/mean"), (3, "reward/std"), (1, "trajectory/turns"), (1, "trajectory/count"),
        (2, "agent_scout/reward"), (4, "agent_caller/cut"), (3, "advantage/mean"), (3, "advantage/returns_mean"),
        (1, "agent_scout/policy/sampler_gap_mean"), (2, "val/accuracy"), (4, "val/letters/reward"),
    ],
)  # fmt: skip
def test_a_changed_number_is_named_though_the_hashes_were_made_to_fit(run, step, name):
    change_metric(run, step, name, 0.25)
    damaged = verify(run, None).damaged
    assert len(damaged) >= 1
    assert damaged[0].startswith(f"metrics.jsonl step {step}: {name} is "), damaged


def test_a_changed_advantage_is_named_by_row_and_token(run):
    name = "trajectories/step_000003.parquet"
    table = pq.read_table(run / name)
    rows = table["advantages"].to_pylist()
    rows[5][0] += 0.5
    at = table.column_names.index("advantages")
    pq.write_table(table.set_column(at, "advantages", pa.array(rows, pa.list_(pa.float32()))), run / name)
    reseal(run, name)
    (line,) = verify(run, None).damaged
    assert line.startswith(f"{name} row 5 (task train:") and "token 0: advantages is" in line


def test_a_step_that_was_cut_out_is_missed(run):
    for file in ("metrics.jsonl", "timings.jsonl"):
        lines = (run / file).read_text().splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["step"] != 3]
        assert len(kept) < len(lines)
        (run / file).write_text("".join(kept))
    reseal(run, "metrics.jsonl", "timings.jsonl")
    assert "metrics.jsonl: step 4 comes after step 2" in verify(run, 1).damaged


def test_a_run_that_was_killed_is_checked_by_what_there_is(run):
    content = manifest.read(run) | {"files": None}
    (run / manifest.MANIFEST).write_text(json.dumps(sealed(content, manifest.FORMAT)))
    verdict = verify(run, 1)
    assert verdict.damaged == []
    assert any("did not come to its end" in note for note in verdict.notes)
    (run / "code" / "hooks.py").write_text("pass\n")
    assert verify(run, 1).damaged == ["code/hooks.py: is not what the run wrote"]


def test_a_run_that_is_being_written_is_not_judged(run, capsys):
    with (run / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert exit_code(["verify", str(run)]) == 2
    assert "another process is writing" in capsys.readouterr().err


def test_a_rerun_comes_out_byte_for_byte_from_the_code_in_the_folder(project, repeated):
    assert run_difference.differences(project / "out", repeated) == []
    rows, trajectories, weights = run_difference.num_compared(project / "out", repeated)
    assert (rows, trajectories, weights) == (7, 8, 8)
    assert verify(repeated, 1).damaged == []


def test_the_first_difference_is_named_in_metrics_trajectories_and_weights(run, repeated):
    change_metric(run, 3, "reward/mean", 0.25)
    name = "trajectories/step_000002.parquet"
    table = pq.read_table(run / name)
    texts = table["response"].to_pylist()
    texts[7] = "other"
    at = table.column_names.index("response")
    pq.write_table(table.set_column(at, "response", pa.array(texts)), run / name)
    weights = run / "checkpoints" / "step_000004" / "agent_caller" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    metrics, trajectories, checkpoints = run_difference.differences(run, repeated)
    assert metrics.startswith("metrics.jsonl line 5 (step 3): reward/mean was")
    assert trajectories.startswith(f"{name}: row 7 (task train:") and "column response: was 'other'" in trajectories
    assert checkpoints.startswith("checkpoints/step_000004/agent_caller/model.safetensors: tensor model.")


def test_other_data_or_weights_are_refused_with_the_difference(project, capsys):
    data = project / "train.jsonl"
    model = next((project / "cache" / "models").glob("*/model.safetensors"))
    for path, named in ((data, "data ~/project/train.jsonl"), (model, "policy_scout, model.safetensors")):
        before = path.read_bytes()
        path.write_bytes(before.replace(before[-4:], before[-4:][::-1]))
        try:
            assert exit_code(["rerun", "out", "--run-dir", "refused"]) == 2
        finally:
            path.write_bytes(before)
        told = capsys.readouterr().err
        assert named in told or named.replace("~/project/", "") in told
        assert "then, sha256" in told
    assert not (project / "refused").exists()


def test_the_manifest_holds_neither_the_environment_nor_the_home_folder(project):
    text = (project / "out" / manifest.MANIFEST).read_text()
    assert SECRET not in text
    assert str(project.parent) not in text
    content = json.loads(text)["content"]
    assert set(content["inputs"]["code"]) == {"hooks.py", "environment.py", "recipe.py"}
    (session,) = content["sessions"]
    assert (session["first_step"], session["last_step"], session["state"]) == (0, 4, "done")
    assert {"python", "packages", "cpu", "num_cpus", "memory_bytes", "num_threads", "devices"} <= set(session)


def test_a_resumed_run_has_a_session_for_each_part_and_is_not_repeated_where_it_was_changed(project, run, capsys):
    changed = ["run", "--resume", str(run), "trainer.total_steps=5", "--allow-changes"]
    assert exit_code(changed) == 0
    sessions = manifest.read(run)["sessions"]
    assert [(one["first_step"], one["last_step"], one["state"]) for one in sessions] == [(0, 4, "done"), (4, 5, "done")]
    assert verify(run, None).damaged == []
    capsys.readouterr()
    assert exit_code(["rerun", str(run), "--run-dir", "never"]) == 2
    assert "resumed with a changed workflow" in capsys.readouterr().err
