"""The documents build to HTML that works from a folder, links lead somewhere, and pages name keys that exist."""

from __future__ import annotations

import importlib.util
import re
import sys
import typing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from dagrl.workflow.spec import WorkflowSpec

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_build"] = module
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()


def test_no_link_is_broken() -> None:
    assert TOOL.broken_links(TOOL.pages()) == []


@pytest.mark.parametrize(
    "link", ["other.md", "#no-such-heading", "page.md#nothing", "../../outside.md", "folder", "picture.png"]
)
def test_a_broken_link_is_found(tmp_path: Path, link: str) -> None:
    (tmp_path / "docs" / "folder").mkdir(parents=True)
    (tmp_path / "docs" / "page.md").write_text(f"# A heading\n\n[here](#a-heading), [not]({link})\n")
    assert TOOL.broken_links(TOOL.pages(tmp_path), tmp_path) == [f"docs/page.md: {link}"]


def test_the_command_fails_on_a_broken_link_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(TOOL, "broken_links", lambda site: ["docs/page.md: gone.md"])
    assert TOOL.main([str(tmp_path / "site")]) == 1
    assert "gone.md" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


def test_the_site_stands_on_its_own(tmp_path: Path) -> None:
    TOOL.write(TOOL.pages(), tmp_path)
    written = sorted(tmp_path.rglob("*.html"))
    assert tmp_path / "index.html" in written
    for page in written:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'src="http|<script|<link[^>]*href="http', text), page
        for target in re.findall(r'(?:href|src)="([^"#]+)', text):
            assert re.match(r"[a-z]+:", target) or (page.parent / target).is_file(), f"{page}: {target}"


def test_llms_txt_names_every_page_but_those_of_single_codes() -> None:
    text = (DOCS / "llms.txt").read_text(encoding="utf-8")
    links = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)]+)\)", text)}
    assert [link for link in links if not link.is_file()] == []
    pages = {page.resolve() for page in DOCS.rglob("*.md") if not re.fullmatch(r"[EW]\d+", page.stem)}
    assert pages - links == set(), "add a line to docs/llms.txt"


def has_path(spec: type[BaseModel], path: list[str]) -> bool:
    if not path:
        return True
    field = spec.model_fields.get(path[0])
    if field is None:
        return False
    inner = specs_in(field.annotation)
    return (
        len(path) == 1 or typing.get_origin(field.annotation) is dict or any(has_path(one, path[1:]) for one in inner)
    )


def specs_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [spec for part in typing.get_args(annotation) for spec in specs_in(part)]


@pytest.mark.parametrize("page", sorted((DOCS / "migrate").glob("*.md")), ids=lambda page: page.stem)
def test_keys_that_a_migration_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"`(config(?:\.\w+)+)", page.read_text(encoding="utf-8")))
    assert named or page.stem == "README"
    assert [key for key in sorted(named) if not has_path(WorkflowSpec, key.split("."))] == []


def test_the_page_for_siirl_lists_every_key_that_is_renamed() -> None:
    spec = importlib.util.spec_from_file_location("generate_reference", DOCS / "generate_reference.py")
    assert spec is not None and spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    page = generator.FROM_SIIRL.read_text(encoding="utf-8")
    assert page == generator.with_siirl_keys(page), "run `make reference`"
