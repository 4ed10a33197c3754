"""What ships is whole: every workflow loads with all that it names, reads short, and has its page."""

from pathlib import Path

import pytest

from dagrl.workflow.graph import load_workflow
from tests.workflows.files import WORKFLOWS

TEAMS = sorted(file for file in WORKFLOWS.glob("*.yaml") if not file.stem.startswith("marft"))
MOST_LINES = 120
"""A recipe is read in one go."""


@pytest.mark.parametrize("file", TEAMS, ids=lambda file: file.stem)
def test_a_workflow_loads_without_a_warning_reads_short_and_has_a_page(file: Path) -> None:
    workflow = load_workflow(file, load_plugins=True)
    assert workflow.spec.dag_id == file.stem and workflow.spec.description
    assert [str(found) for found in workflow.warnings] == []
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= MOST_LINES
    pages = [page.read_text(encoding="utf-8") for page in (WORKFLOWS.parent / "docs").rglob("*.md")]
    assert any(file.stem in page for page in pages)
