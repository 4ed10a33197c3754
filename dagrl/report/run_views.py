"""What the page shows of one run, as plain JSON values: graph, curves, configuration with origins, node times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dagrl.errors import DagrlError
from dagrl.report.conversation_index import seconds_by_node
from dagrl.report.metric_guide import as_json
from dagrl.report.metrics import Row, merged, names
from dagrl.report.reader import RunReader
from dagrl.workflow.graph import Workflow, load_workflow, read_outline
from dagrl.workflow.picture import Picture, picture
from dagrl.workflow.tree import COMMAND_LINE, Item, Key, dotted, find

MAX_POINTS = 500
"""Of one curve; a longer run is shown as means of neighbouring steps."""
_NODE_TIME = "perf/seconds/"
_HEADLINES = ("val/accuracy", "val/reward", "reward/mean")
"""What a run is told by in a list, the first that it has."""


# Curves


def curves(rows: Sequence[Row], max_points: int = MAX_POINTS) -> dict[str, Any]:
    """Every metric as `{"x": steps, "y": values}` with its guide; values that were not finite are null."""
    by_step = merged(rows)
    found = {}
    for name in names(by_step):
        points = [(row["step"], row[name]) for row in by_step if name in row]
        found[name] = _thinned(points, max_points)
    return {"series": found, "guide": {name: as_json(name) for name in found}, "num_rows": len(rows)}


def headline(rows: Sequence[Row], max_points: int = 60) -> dict[str, Any] | None:
    """The metric that tells most about a run, its last value and a short curve of the reward."""
    known = set(names(rows))
    name = next((name for name in _HEADLINES if name in known), None)
    if name is None:
        return None
    last = next(row[name] for row in reversed(rows) if row.get(name) is not None)
    spark = "reward/mean" if "reward/mean" in known else name
    points = [(row["step"], row[spark]) for row in merged(rows) if row.get(spark) is not None]
    return {"name": name, "title": as_json(name)["title"], "value": last, "spark": _thinned(points, max_points)}


def _thinned(points: Sequence[tuple[int, float | None]], max_points: int) -> dict[str, list[Any]]:
    if len(points) <= max_points:
        return {"x": [step for step, _ in points], "y": [value for _, value in points]}
    xs, ys = [], []
    for bucket in range(max_points):
        part = points[bucket * len(points) // max_points : (bucket + 1) * len(points) // max_points]
        values = [value for _, value in part if value is not None]
        xs.append(part[-1][0])
        ys.append(sum(values) / len(values) if values else None)
    return {"x": xs, "y": ys}


# Graph


def graph(reader: RunReader) -> dict[str, Any]:
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


def node_times(reader: RunReader, step: int) -> dict[str, Any]:
    """Milliseconds of each node in one step; of the nodes that speak also turns and milliseconds per turn."""
    row = next((row for row in merged(reader.metrics()) if row["step"] == step), {})
    took = {name.removeprefix(_NODE_TIME): value for name, value in row.items() if name.startswith(_NODE_TIME)}
    files = [file for file in reader.trajectory_files() if (file.kind, file.step) == ("step", step)]
    spoke = seconds_by_node(files[0].path) if files else {}
    return {
        "step": step,
        "total_ms": _ms(row.get("perf/seconds_per_step")),
        "nodes": {name: _ms(seconds) for name, seconds in took.items()},
        "spoke": {name: {"turns": turns, "ms_per_turn": seconds * 1000} for name, (turns, seconds) in spoke.items()},
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


# Configuration


def configuration(reader: RunReader) -> dict[str, Any]:
    """Every value of the workflow with its origin: the command line, a line of the file, a default."""
    try:
        workflow = load_workflow(reader.path / "workflow.yaml")
    except DagrlError as error:
        return {"fault": str(error), "values": []}
    told = find_tree(reader.path / "workflow.yaml", ())
    written = find_tree(reader.path / "workflow.original.yaml", reader.overrides())
    values = [
        {"path": dotted(path), "value": value, **_origin(path, written, told)} for path, value in _values(workflow)
    ]
    return {"values": values, "overrides": reader.overrides()}


def find_tree(path: Path, overrides: Sequence[str]) -> Item | None:
    """The tree of a workflow file with places; None where it cannot be read where it lies now."""
    try:
        outline, _ = read_outline(path, overrides)
    except DagrlError:
        return None
    return None if outline is None else outline.tree


def _origin(path: tuple[Key, ...], written: Item | None, told: Item | None) -> dict[str, str]:
    item = None if written is None else find(written, path)
    if item is not None:
        is_typed = item.mark.file == COMMAND_LINE
        place = COMMAND_LINE if is_typed else f"{Path(item.mark.file).name}:{item.mark.line}"
        return {"origin": place, "kind": "override" if is_typed else "file"}
    if told is not None and find(told, path) is not None:
        return {"origin": "workflow.yaml", "kind": "file"}
    return {"origin": "default", "kind": "default"}


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
