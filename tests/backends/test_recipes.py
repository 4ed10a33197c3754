"""Models made on first use: once, whole or absent, anew when the recipe changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagrl.backends.loading import load_causal_lm, locate
from dagrl.backends.recipes import ensure_model, recipe_folder
from dagrl.errors import DagrlError
from dagrl.workflow.sections import ModelSpec

RECIPE = """
def make(folder, progress, name="x", fail=False):
    progress(0.5, "half way")
    (folder / "config.json").write_text("{}")
    (folder / "name").write_text(name)
    if fail:
        raise ValueError("no flour")

def empty(folder, progress):
    pass
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGRL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "recipe.py").write_text(RECIPE)
    return tmp_path


def test_a_model_is_made_once_and_found_again(base: Path) -> None:
    heard: list[tuple[float, str]] = []
    for _ in range(2):
        folder = ensure_model("recipe.py:make", {"name": "y"}, base, lambda *news: heard.append(news))
    assert (folder / "name").read_text() == "y" and heard == [(0.5, "half way")]
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]


def test_other_arguments_or_another_text_are_another_model(base: Path) -> None:
    folders = {recipe_folder("recipe.py:make", {"name": name}, base) for name in ("x", "y")}
    (base / "recipe.py").write_text(RECIPE + "# changed")
    folders.add(recipe_folder("recipe.py:make", {"name": "x"}, base))
    assert len(folders) == 3


def test_another_text_of_what_a_recipe_imports_beside_it_is_another_model(base: Path) -> None:
    (base / "recipe.py").write_text("from lessons import LIST\n" + RECIPE)
    folders = set()
    for text in ("LIST = 1", "LIST = 2", "import more\nLIST = 2"):
        (base / "lessons.py").write_text(text)
        folders.add(recipe_folder("recipe.py:make", {}, base))
    (base / "more.py").write_text("")
    before = recipe_folder("recipe.py:make", {}, base)
    (base / "more.py").write_text("MORE = 1")
    (base / "unused.py").write_text("")
    assert len({*folders, before, recipe_folder("recipe.py:make", {}, base)}) == 4


@pytest.mark.parametrize(
    ("recipe", "kwargs", "message"),
    [
        ("recipe.py:make", {"fail": True}, "no flour"),
        ("recipe.py:empty", {}, "config.json"),
        ("recipe.py:none", {}, "none"),
        ("absent.py:make", {}, "absent.py"),
        ("recipe", {}, "file.py:function"),
    ],
)
def test_a_recipe_that_fails_leaves_nothing(base: Path, recipe: str, kwargs: dict[str, bool], message: str) -> None:
    with pytest.raises(DagrlError, match=message):
        ensure_model(recipe, kwargs, base, lambda *_: None)
    assert [path for path in (base / "cache").rglob("*") if path.is_dir() and path.name != "models"] == []


def test_folders_are_found_beside_the_workflow_and_names_stay_names(base: Path, model_folder: Path) -> None:
    (base / "inside").symlink_to(model_folder)
    assert locate(ModelSpec(path="inside"), base, lambda *_: None) == str(model_folder)
    assert locate(ModelSpec(path="org/name"), base, lambda *_: None) == "org/name"
    with pytest.raises(DagrlError, match="give `path` or `recipe`"):
        locate(ModelSpec(), base, lambda *_: None)


def test_a_model_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DagrlError, match="no-such-org/no-such-model"):
        load_causal_lm(ModelSpec(path="x"), "no-such-org/no-such-model")
    with pytest.raises(DagrlError, match="folder"):
        load_causal_lm(ModelSpec(path="x"), str(tmp_path))
