"""Every error code has a page, and the example of every page really gives that code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from dagrl.errors import Finding, WorkflowError
from dagrl.workflow.codes import TITLES

ROOT = Path(__file__).resolve().parents[1]


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("error_pages", ROOT / "docs" / "error_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()


def text_of(code: str) -> str:
    return (ROOT / "docs" / "errors" / f"{code}.md").read_text(encoding="utf-8")


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert {page.stem for page in TOOL.pages()} == set(TITLES)


def test_the_index_is_fresh() -> None:
    assert TOOL.INDEX.read_text(encoding="utf-8") == TOOL.index(), "run `make reference`"


@pytest.mark.parametrize("code", TITLES)
def test_the_page_has_title_cause_example_and_way_out(code: str) -> None:
    page = text_of(code)
    assert page.startswith(f"# {code}: {TITLES[code]}\n")
    parts = re.split(r"^#+ .*$", page, flags=re.MULTILINE)[1:]
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == ["Example", "Way out"]
    assert all(len(part.strip()) > 40 for part in parts)


@pytest.mark.parametrize("code", TITLES)
def test_the_example_gives_the_code_and_prints_what_the_page_shows(code: str) -> None:
    page = text_of(code)
    _, printed = TOOL.printed_by(page)
    assert f"[{code}]: " in printed
    assert TOOL.refreshed(page) == page, "run `make reference`"


@pytest.mark.parametrize("name", TOOL.EXAMPLE_WORKFLOWS)
def test_the_workflows_that_examples_extend_are_correct(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert TOOL.exit_code(["validate", str(ROOT / "docs" / "errors" / name)]) == 0
    assert capsys.readouterr().err == ""


def test_a_refused_workflow_names_the_pages_of_its_codes() -> None:
    error = WorkflowError([Finding(code="E110", message="a"), Finding(code="W201", message="b")])
    assert str(error).splitlines()[-1] == "see docs/errors/E110.md, docs/errors/W201.md"
