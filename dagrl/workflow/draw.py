"""Drawings of a workflow: lanes by agent group, play and learn apart, a shared critic once, idle edges dashed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dagrl.workflow.draw_svg import html, svg
from dagrl.workflow.graph import Workflow
from dagrl.workflow.picture import Box, Picture, picture

FORMATS = ("ascii", "mermaid", "svg", "html")


def draw(workflow: Workflow, form: str) -> str:
    """The workflow in one of `FORMATS`."""
    return _DRAWERS[form](picture(workflow))


# Text


def ascii_art(drawing: Picture) -> str:
    """Two tables, play and learn: a line per node, a column per agent group, and what each node waits for."""
    parts = [f"{drawing.title}"]
    for name, boxes in drawing.parts():
        if boxes:
            parts += ["", f"{name} graph", *_table(drawing, boxes)]
    if drawing.notes:
        parts += ["", *drawing.notes]
    return "\n".join(parts)


def _table(drawing: Picture, boxes: Sequence[Box]) -> list[str]:
    number = {box.node_id: str(position) for position, box in enumerate(drawing.boxes, start=1)}
    widths = [_lane_width(drawing, boxes, lane) for lane in range(len(drawing.lanes))]
    head = "  ".join(name.ljust(width) for name, width in zip(drawing.lanes, widths, strict=True))
    rule = "  ".join("─" * width for width in widths)
    lines = [f"      {head}", f"      {rule}"]
    for box in boxes:
        cells = ["·".ljust(width) if lane in box.lanes else " " * width for lane, width in enumerate(widths)]
        cells[box.lane] = f"[{box.label}]".ljust(widths[box.lane])
        waits = ", ".join(f"{number[edge.before]}{'' if edge.carries_data else '?'}" for edge in drawing.into(box))
        after = f"  ← {waits}" if waits else ""
        lines.append(f"{number[box.node_id]:>4}  {'  '.join(cells)}{after}  ({box.kind_text})".rstrip())
    return lines


def _lane_width(drawing: Picture, boxes: Sequence[Box], lane: int) -> int:
    labels = [len(box.label) + 2 for box in boxes if box.lane == lane]
    return max([len(drawing.lanes[lane]), *labels])


# Mermaid


def mermaid(drawing: Picture) -> str:
    """A flowchart with a subgraph for each half and in it one for each lane."""
    name_of = {box.node_id: f"n{position}" for position, box in enumerate(drawing.boxes)}
    lines = ["flowchart TB"]
    for half, boxes in drawing.parts():
        if boxes:
            lines += [f'  subgraph {half}["{half} graph"]', *_subgraphs(drawing, half, boxes, name_of), "  end"]
    for edge in drawing.edges:
        arrow = "-->" if edge.carries_data else "-.->"
        lines.append(f"  {name_of[edge.before]} {arrow} {name_of[edge.after]}")
    return "\n".join(lines)


def _subgraphs(drawing: Picture, half: str, boxes: Sequence[Box], name_of: Mapping[str, str]) -> list[str]:
    lines = []
    for lane, title in enumerate(drawing.lanes):
        own = [box for box in boxes if box.lane == lane]
        if own:
            lines.append(f'    subgraph {half}{lane}["{_escaped(title)}"]')
            lines += [f'      {name_of[box.node_id]}["{_escaped(box.label)}<br/>{box.kind_text}"]' for box in own]
            lines.append("    end")
    return lines


def _escaped(text: str) -> str:
    """Mermaid reads HTML entities with `#` in place of `&`."""
    return "".join(char if char.isalnum() or char in " _-.,:()/" else f"#{ord(char)};" for char in text)


_DRAWERS: Mapping[str, Callable[[Picture], str]] = {"ascii": ascii_art, "mermaid": mermaid, "svg": svg, "html": html}
