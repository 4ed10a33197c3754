"""`dagrl ls`, `dagrl cp` and `dagrl new`: what ships is listed, copies run from where they are, templates pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dagrl.cli import exit_code
from dagrl.rewards import REWARDS
from dagrl.workflow.algorithm_section import ADV_ESTIMATORS, POLICY_LOSSES
from dagrl.workflow.graph import load_workflow
from tests.command import dagrl, environment

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted(file.stem for file in (ROOT / "workflows").glob("*.yaml"))


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    assert exit_code(["ls", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_everything_that_ships_is_listed_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys)
    assert list(found["workflows"]) == WORKFLOWS
    assert set(found["estimators"]) == set(ADV_ESTIMATORS)
    assert set(found["losses"]) == set(POLICY_LOSSES)
    assert set(found["rewards"]) == {*REWARDS, "judge"}
    assert "envs/math_env.py:MathEnv" in found["envs"]
    assert "transformers" in found["engines"] and "scripted" not in found["engines"]
    assert list(found["templates"]) == ["project", "env", "hook", "reward"]
    assert [name for entries in found.values() for name, line in entries.items() if len(line) < 10] == []


def test_one_kind_is_listed_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["ls", "workflows"]) == 0
    told = capsys.readouterr().out
    assert "Reasoner → Actor → MathEnv" in told and "engines" not in told


def test_an_unknown_kind_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["ls", "reward"]) == 2
    assert "did you mean 'rewards'" in capsys.readouterr().err


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_copy_loads_and_needs_nothing_of_the_original(name: str, tmp_path: Path) -> None:
    assert exit_code(["cp", name, "own/my.yaml"]) == 0
    workflow = load_workflow(tmp_path / "own" / "my.yaml", load_plugins=True)
    named = [ref for node in workflow.play for ref in (*node.options.env_path, node.options.process_path) if ref]
    assert named
    assert [ref for ref in named if not (tmp_path / "own" / ref.partition(":")[0]).is_file()] == []
    assert (tmp_path / "own" / "workflow.schema.json").is_file()


def test_a_copy_is_the_same_workflow(tmp_path: Path) -> None:
    assert exit_code(["cp", "marft"]) == 0
    copied, shipped = load_workflow(tmp_path / "marft.yaml"), load_workflow(ROOT / "workflows" / "marft.yaml")
    assert copied.spec.config == shipped.spec.config
    assert [node.node_id for node in copied.nodes] == [node.node_id for node in shipped.nodes]
    assert (tmp_path / "envs/math_env.py").read_bytes() == (ROOT / "envs/math_env.py").read_bytes()


def test_a_copy_tells_of_data_that_does_not_ship_and_brings_its_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["cp", "marft_deepscaler", "big"]) == 0
    assert "does not ship: data/deepscaler/train.parquet" in capsys.readouterr().out
    assert Path("big/marft.yaml").is_file() and Path("big/data_preprocess/deepscaler.py").is_file()


def test_nothing_is_overwritten_and_the_same_copy_twice_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["cp", "marft", "my.yaml"]) == exit_code(["cp", "marft", "my.yaml"]) == 0
    Path("my.yaml").write_text("mine")
    Path("envs/math_env.py").unlink()
    assert exit_code(["cp", "marft", "my.yaml"]) == 2
    assert "already there: my.yaml" in capsys.readouterr().err
    assert Path("my.yaml").read_text() == "mine" and not Path("envs/math_env.py").exists()


def test_an_unknown_workflow_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["cp", "martf"]) == 2
    assert "did you mean 'marft'" in capsys.readouterr().err


def test_each_new_piece_comes_with_a_test_that_passes(tmp_path: Path) -> None:
    for kind in ("env", "hook", "reward"):
        assert exit_code(["new", kind, f"brand_new_{kind}"]) == 0
        assert (tmp_path / "tests" / f"test_brand_new_{kind}.py").is_file()
    text = "".join(path.read_text() for path in tmp_path.rglob("*.py"))
    assert "my_" not in text and "My" not in text
    run = [sys.executable, "-m", "pytest", "-q"]
    done = subprocess.run(run, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_new_environment_keeps_the_contract_under_its_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["new", "env", "higher_or_lower"]) == 0
    assert "check-env envs/higher_or_lower.py:HigherOrLower" in capsys.readouterr().out
    assert exit_code(["check-env", "envs/higher_or_lower.py:HigherOrLower", "--ground-truth", "7"]) == 0


def test_a_new_project_is_right_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["new", "project", "chess_club"]) == 0
    told = capsys.readouterr().out
    assert "cd chess_club" in told
    workflow = load_workflow(tmp_path / "chess_club" / "workflow.yaml", load_plugins=True)
    assert workflow.spec.dag_id == "chess_club" and workflow.warnings == ()
    assert (tmp_path / "chess_club" / "tests" / "test_chess_club.py").is_file()
    assert exit_code(["validate", "chess_club/workflow.yaml", "--deep"]) == 0


@pytest.mark.parametrize("name", ["", "1st", "a-b", "class", "../up", "a/b", "x y"])
def test_what_cannot_be_a_name_is_refused(name: str, tmp_path: Path) -> None:
    assert exit_code(["new", "env", name]) == 2
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_of_new_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["new", "projct", "x"]) == 2
    assert "did you mean 'project'" in capsys.readouterr().err


def test_a_folder_with_something_in_it_is_no_new_project() -> None:
    Path("team").mkdir()
    Path("team/notes.txt").write_text("mine")
    assert exit_code(["new", "project", "team"]) == 2
    assert [path.name for path in Path("team").iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_a_new_project_passes_its_tests_and_runs(tmp_path: Path) -> None:
    assert dagrl("new", "project", "my_own", cwd=tmp_path).returncode == 0
    project = tmp_path / "my_own"
    run = [sys.executable, "-m", "pytest", "-q"]
    tests = subprocess.run(run, cwd=project, env=environment(tmp_path), capture_output=True, text=True)
    assert tests.returncode == 0, tests.stdout
    assert dagrl("validate", "workflow.yaml", "--deep", cwd=project).returncode == 0
    smoke = dagrl("run", "--workflow", "workflow.yaml", "--smoke", cwd=project)
    assert smoke.returncode == 0, smoke.stderr
    assert (next((project / "runs").rglob("metrics.jsonl"))).read_text().count("\n") >= 2


@pytest.mark.resilience
def test_a_new_project_learns(tmp_path: Path) -> None:
    assert dagrl("new", "project", "learners", cwd=tmp_path).returncode == 0
    improves = "config.trainer.min_improvement=0.2"
    done = dagrl("run", "--workflow", "workflow.yaml", improves, cwd=tmp_path / "learners")
    assert done.returncode == 0, done.stdout
