"""What the page shows of one run, as plain JSON values: graph, and configuration with origins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dagrl.errors import DagrlError
from dagrl.report.questions import Params
from dagrl.report.reader import RunReader
from dagrl.workflow.graph import Workflow, load_workflow
from dagrl.workflow.picture import Picture, picture
from dagrl.workflow.tree import COMMAND_LINE, Key, dotted

DEFAULT = "default"


# Graph


def graph(reader: RunReader, _: Params) -> dict[str, Any]:
    """The picture of the resolved workflow; where it cannot be loaded, why."""
    try:
        drawing = picture(load_workflow(reader.path / "workflow.yaml"))
    except DagrlError as error:
        return {"fault": str(error)}
    return _drawing(drawing)


def _drawing(drawing: Picture) -> dict[str, Any]:
    boxes = [
        {"id": box.node_id, "label": box.label, "kind": str(box.kind), "text": box.kind_text, "lane": box.lane,
         "lanes": box.lanes, "layer": box.layer, "half": "play" if box.is_play else "learn"}
        for box in drawing.boxes
    ]  # fmt: skip
    edges = [{"from": edge.before, "to": edge.after, "data": edge.carries_data} for edge in drawing.edges]
    return {"title": drawing.title, "lanes": drawing.lanes, "boxes": boxes, "edges": edges, "notes": drawing.notes}


# Configuration


def configuration(reader: RunReader, _: Params) -> dict[str, Any]:
    """Every value of the workflow with its origin: the command line, a line of the file or of one that it extends, a
    default."""
    try:
        workflow = load_workflow(reader.path / "workflow.yaml")
    except DagrlError as error:
        return {"fault": str(error), "values": []}
    told = reader.origins()
    values = [
        {"path": dotted(path), "value": value, **_origin(dotted(path), told)} for path, value in _values(workflow)
    ]
    return {"values": values, "overrides": reader.overrides()}


def _origin(path: str, told: Mapping[str, str]) -> dict[str, str]:
    place = told.get(path, DEFAULT)
    return {"origin": place, "kind": {DEFAULT: DEFAULT, COMMAND_LINE: "override"}.get(place, "file")}


def _values(workflow: Workflow) -> Iterator[tuple[tuple[Key, ...], Any]]:
    content = workflow.spec.model_dump(mode="json")
    nodes = content.pop("nodes")
    yield from _leaves((), content)
    for node in nodes:
        yield from _leaves(("nodes", node["node_id"]), node)


def _leaves(path: tuple[Key, ...], value: Any) -> Iterator[tuple[tuple[Key, ...], Any]]:
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from _leaves((*path, key), member)
    else:
        yield path, value
