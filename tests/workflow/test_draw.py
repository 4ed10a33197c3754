"""Drawings: every node once, a shared critic as one box, idle edges dashed, well-formed, safe against odd names."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dagrl.workflow.draw import FORMATS, draw
from tests.workflow_files import CHAIN, TEAM, changed, load

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("text", [TEAM, CHAIN])
def test_every_node_is_drawn_and_the_same_workflow_gives_the_same_drawing(tmp_path: Path, form: str, text: str) -> None:
    workflow = load(tmp_path, text)
    drawing = draw(workflow, form)
    for node in workflow.nodes:
        assert node.node_id in drawing
    assert draw(load(tmp_path, text), form) == drawing


def test_a_shared_critic_is_one_box_and_idle_edges_are_dashed(tmp_path: Path) -> None:
    workflow = load(tmp_path, CHAIN)
    root = ElementTree.fromstring(draw(workflow, "svg"))
    boxes = list(root.iter(f"{SVG}g"))
    edges = [path for path in root.iter(f"{SVG}path") if path.get("marker-end")]
    assert len(boxes) == 13
    assert len(edges) == 12
    assert sum(path.get("stroke-dasharray") is not None for path in edges) == 8
    assert draw(workflow, "mermaid").count("-.->") == 8
    assert "critic of agent 1 is agent 0's" in draw(workflow, "ascii")


def test_no_box_covers_another_and_all_lie_on_the_sheet(tmp_path: Path) -> None:
    root = ElementTree.fromstring(draw(load(tmp_path, TEAM), "svg"))
    rects = [box.find(f"{SVG}rect") for box in root.iter(f"{SVG}g")]
    places = [tuple(float(rect.get(key)) for key in ("x", "y", "width", "height")) for rect in rects]  # type: ignore
    for index, (x, y, width, height) in enumerate(places):
        assert x >= 0 and x + width <= float(root.get("width"))  # type: ignore[arg-type]
        assert y >= 0 and y + height <= float(root.get("height"))  # type: ignore[arg-type]
        for other_x, other_y, other_width, other_height in places[:index]:
            apart = x >= other_x + other_width or other_x >= x + width
            assert apart or y >= other_y + other_height or other_y >= y + height


def test_names_cannot_break_out_of_a_drawing(tmp_path: Path) -> None:
    text = changed(TEAM, ("node_id: judge", "node_id: 'a\"]<b>&\\u2028'"), ("[judge,", "['a\"]<b>&\\u2028',"))
    text = changed(text, ("dag_id: team", "dag_id: '</title><script>'"))
    workflow = load(tmp_path, text)
    ElementTree.fromstring(draw(workflow, "svg"))
    assert "<script>" not in draw(workflow, "html")
    assert '"]<b>' not in draw(workflow, "mermaid")


def test_mermaid_lines_are_of_the_known_forms(tmp_path: Path) -> None:
    form = re.compile(
        r'flowchart TB|  subgraph \w+\["\w+ graph"\]|    subgraph \w+\["[^"]*"\]|      n\d+\["[^"]*"\]|    end|  end'
        r"|  n\d+ (-->|-\.->) n\d+"
    )
    for line in draw(load(tmp_path, CHAIN), "mermaid").splitlines():
        assert form.fullmatch(line), line
