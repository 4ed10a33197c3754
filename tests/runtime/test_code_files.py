"""Which code a run used: what the workflow names, what that imports beside it, and where the copies stand."""

from __future__ import annotations

from pathlib import Path

from dagrl.runtime.code_files import code_files, renamed, with_references
from dagrl.runtime.run_folder import code_place
from dagrl.workflow.graph import load_workflow
from dagrl.workflow.imports import imported_beside
from tests.tiny_project import write_project


def test_what_is_imported_beside_is_found_through_files_packages_and_functions(tmp_path: Path) -> None:
    workflow = write_project(tmp_path)
    hooks = tmp_path / "hooks.py"
    hooks.write_text("import json\nfrom words import NICE\n" + hooks.read_text())
    (tmp_path / "words.py").write_text("def late():\n    from deep.down import thing\nNICE = 1\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "__init__.py").write_text("")
    (tmp_path / "deep" / "down.py").write_text("thing = 1\n")
    (tmp_path / "unused.py").write_text("")
    names = [path.relative_to(tmp_path).as_posix() for path in code_files(load_workflow(workflow))]
    assert names == ["deep/__init__.py", "deep/down.py", "environment.py", "hooks.py", "recipe.py", "words.py"]


def test_a_file_that_is_not_python_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import os, (\n")
    assert list(imported_beside(tmp_path / "broken.py")) == []


def test_references_are_changed_where_they_are_references_and_nowhere_else() -> None:
    document = {
        "nodes": [{"agent_options": {"process_path": "a.py", "env_path": ["b.py:X"], "env_kwargs": {"when": "a.py"}}}],
        "config": {"algorithm.adv_estimator": "gae", "description": "a.py"},
    }
    changed = with_references(
        document,
        ("process_path", "env_path", "when", "adv_estimator"),
        lambda text: renamed(text, {"a.py": "/new/a.py", "b.py": "/new/b.py"}),
    )
    options = changed["nodes"][0]["agent_options"]
    assert options == {"process_path": "/new/a.py", "env_path": ["/new/b.py:X"], "env_kwargs": {"when": "a.py"}}
    assert changed["config"] == document["config"]


def test_copies_keep_side_by_side_what_lay_so(tmp_path: Path) -> None:
    base = tmp_path / "repo" / "workflows"
    places = [code_place(tmp_path / "repo" / name, base).as_posix() for name in ("envs/a.py", "envs/b.py")]
    assert places == ["elsewhere/up1/envs/a.py", "elsewhere/up1/envs/b.py"]
    assert code_place(base / "marft" / "process.py", base).as_posix() == "marft/process.py"


def test_a_path_in_the_home_folder_is_kept_without_the_users_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "somebody"))
    place = code_place(tmp_path / "home" / "somebody" / "lib" / "a.py", tmp_path / "data" / "flow")
    assert place.as_posix() == "elsewhere/home/lib/a.py"
