"""SVG and HTML drawings, laid out by hand: a column per agent, a row per layer, play above learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from dagrl.workflow.kinds import NodeKind
from dagrl.workflow.picture import Box, Edge, Picture

_FONT = "ui-sans-serif, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_CHAR = 7.4
"""Width of one character of a label at 13 px, in pixels; generous, as fonts differ."""
_SMALL_CHAR = 6.2
"""The same at 11 px."""
_BOX_HEIGHT = 46
_ROW = 84
"""Height of a row: a box and the room for arrows below it."""
_PAD = 18
_GAP = 26
"""Between lanes and between boxes of one row."""
_HEAD = 64
"""Title and lane names."""
_BAND_HEAD = 30
"""Name of a half."""

_COLOURS: Mapping[NodeKind, tuple[str, str]] = {
    NodeKind.ROLLOUT: ("#dbeafe", "#2563eb"),
    NodeKind.ENV: ("#dcfce7", "#16a34a"),
    NodeKind.REWARD: ("#fef9c3", "#ca8a04"),
    NodeKind.DYNAMIC_SAMPLING: ("#ecfccb", "#65a30d"),
    NodeKind.CREDIT: ("#fef3c7", "#d97706"),
    NodeKind.OLD_LOGPROBS: ("#f1f5f9", "#64748b"),
    NodeKind.REF_LOGPROBS: ("#f1f5f9", "#94a3b8"),
    NodeKind.VALUES: ("#ede9fe", "#7c3aed"),
    NodeKind.ADVANTAGES: ("#ffedd5", "#ea580c"),
    NodeKind.TRAIN_CRITIC: ("#ddd6fe", "#6d28d9"),
    NodeKind.TRAIN_ACTOR: ("#bfdbfe", "#1d4ed8"),
    NodeKind.COMPUTE: ("#fce7f3", "#db2777"),
}
"""Kind → fill and stroke."""
_LINE, _IDLE = "#334155", "#94a3b8"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A box with its place in pixels."""

    box: Box
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + _BOX_HEIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sheet:
    """Where everything stands."""

    placed: Mapping[str, _Placed]
    lane_x: Sequence[float]
    lane_width: Sequence[float]
    bands: Sequence[tuple[str, float, float]]
    """Name, top and height of each half."""
    width: float
    height: float


def svg(drawing: Picture) -> str:
    """A drawing of its own, without outside fonts, styles or scripts."""
    sheet = _laid_out(drawing)
    height = sheet.height + 18 * len(drawing.notes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {sheet.width:.0f} {height:.0f}" '
        f'width="{sheet.width:.0f}" height="{height:.0f}" font-family="{_FONT}" role="img">',
        f"<title>{escape(drawing.title)}</title>",
        f"<defs>{_arrow_head('data', _LINE)}{_arrow_head('idle', _IDLE)}</defs>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_PAD}" y="28" font-size="17" font-weight="600" fill="#0f172a">{escape(drawing.title)}</text>',
        *_lanes(drawing, sheet),
        *(_edge(edge, sheet) for edge in drawing.edges),
        *(_box(placed) for placed in sheet.placed.values()),
        *_notes(drawing, sheet),
        "</svg>",
    ]
    return "\n".join(parts)


def html(drawing: Picture) -> str:
    """The SVG in a page of its own."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(drawing.title)}</title>"
        "<style>body{margin:2rem;background:#f8fafc}svg{background:#fff;max-width:100%;height:auto;"
        "border:1px solid #e2e8f0;border-radius:8px}</style></head>\n"
        f"<body>\n{svg(drawing)}\n</body></html>"
    )


# Layout


def _laid_out(drawing: Picture) -> _Sheet:
    rows = _rows(drawing)
    lane_width = [_lane_width(drawing, rows, lane) for lane in range(len(drawing.lanes))]
    lane_x, x = [], float(_PAD)
    for width in lane_width:
        lane_x.append(x)
        x += width + _GAP
    placed: dict[str, _Placed] = {}
    bands: list[tuple[str, float, float]] = []
    y = float(_HEAD)
    for name, boxes in drawing.parts():
        if not boxes:
            continue
        top = y
        y += _BAND_HEAD
        num_rows = 1 + max(box.layer for box in boxes)
        for layer in range(num_rows):
            for lane in range(len(drawing.lanes)):
                placed.update(_row(rows.get((name, layer, lane), []), lane_x[lane], lane_width[lane], y))
            y += _ROW
        bands.append((name, top, y - top - (_ROW - _BOX_HEIGHT) + 14))
        y += 6
    return _Sheet(placed=placed, lane_x=lane_x, lane_width=lane_width, bands=bands, width=x - _GAP + _PAD, height=y)


def _rows(drawing: Picture) -> dict[tuple[str, int, int], list[Box]]:
    """Boxes that stand side by side, by half, layer and lane."""
    rows: dict[tuple[str, int, int], list[Box]] = {}
    for name, boxes in drawing.parts():
        for box in boxes:
            rows.setdefault((name, box.layer, box.lane), []).append(box)
    return rows


def _box_width(box: Box) -> float:
    return 24 + max(len(box.label) * _CHAR, len(box.kind_text) * _SMALL_CHAR)


def _lane_width(drawing: Picture, rows: Mapping[tuple[str, int, int], Sequence[Box]], lane: int) -> float:
    wide = [sum(_box_width(box) + _GAP for box in row) - _GAP for (_, _, own), row in rows.items() if own == lane]
    return max([len(drawing.lanes[lane]) * _CHAR, *wide]) + 2 * _PAD


def _row(boxes: Sequence[Box], lane_x: float, lane_width: float, y: float) -> dict[str, _Placed]:
    total = sum(_box_width(box) + _GAP for box in boxes) - _GAP
    x = lane_x + (lane_width - total) / 2
    placed = {}
    for box in boxes:
        placed[box.node_id] = _Placed(box=box, x=x, y=y, width=_box_width(box))
        x += _box_width(box) + _GAP
    return placed


# Shapes


def _arrow_head(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0.5 L7.5 4 L0 7.5 z" fill="{colour}"/></marker>'
    )


def _lanes(drawing: Picture, sheet: _Sheet) -> list[str]:
    parts = []
    for name, x, width in zip(drawing.lanes, sheet.lane_x, sheet.lane_width, strict=True):
        middle = x + width / 2
        parts.append(
            f'<text x="{middle:.1f}" y="{_HEAD - 10}" font-size="13" font-weight="600" fill="#475569" '
            f'text-anchor="middle">{escape(name)}</text>'
        )
    for half, top, height in sheet.bands:
        for x, width in zip(sheet.lane_x, sheet.lane_width, strict=True):
            parts.append(
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="10" '
                f'fill="{"#f0f9ff" if half == "play" else "#fafafa"}" stroke="#e2e8f0"/>'
            )
        parts.append(
            f'<text x="{sheet.lane_x[0] + 12:.1f}" y="{top + 19:.1f}" font-size="11" letter-spacing="1" '
            f'fill="#94a3b8">{half.upper()}</text>'
        )
    return parts


def _box(placed: _Placed) -> str:
    box = placed.box
    fill, stroke = _COLOURS.get(box.kind, ("#ffffff", _LINE))
    width = 2.5 if box.kind.is_train else 1.3
    return (
        f"<g><title>{escape(box.label)}: {escape(box.kind_text)}</title>"
        f'<rect x="{placed.x:.1f}" y="{placed.y:.1f}" width="{placed.width:.1f}" height="{_BOX_HEIGHT}" rx="8" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="{width}"/>'
        f'<text x="{placed.middle:.1f}" y="{placed.y + 20:.1f}" font-size="13" fill="#0f172a" '
        f'text-anchor="middle">{escape(box.label)}</text>'
        f'<text x="{placed.middle:.1f}" y="{placed.y + 36:.1f}" font-size="11" fill="#475569" '
        f'text-anchor="middle">{escape(box.kind_text)}</text></g>'
    )


def _edge(edge: Edge, sheet: _Sheet) -> str:
    """A curve from the bottom of one box to the top of another; past rows in between it bends to the side."""
    before, after = sheet.placed[edge.before], sheet.placed[edge.after]
    start_x, start_y, end_x, end_y = before.middle, before.bottom, after.middle, after.y - 2
    skips = round((after.y - before.y) / _ROW) - 1
    is_straight = abs(start_x - end_x) < 1
    bend = (before.width / 2 + 14) * (1 if start_x <= sheet.width / 2 else -1) if skips > 0 and is_straight else 0
    pull = max(24.0, min(60.0, (end_y - start_y) / 2))
    path = (
        f"M{start_x:.1f} {start_y:.1f} C{start_x + bend:.1f} {start_y + pull:.1f} "
        f"{end_x + bend:.1f} {end_y - pull:.1f} {end_x:.1f} {end_y:.1f}"
    )
    name, colour = ("data", _LINE) if edge.carries_data else ("idle", _IDLE)
    dash = "" if edge.carries_data else ' stroke-dasharray="5 4"'
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.4"{dash} marker-end="url(#{name})">'
        f"<title>{escape(edge.before)} → {escape(edge.after)}</title></path>"
    )


def _notes(drawing: Picture, sheet: _Sheet) -> list[str]:
    return [
        f'<text x="{_PAD}" y="{sheet.height + 18 * index:.1f}" font-size="12" fill="#64748b">{escape(note)}</text>'
        for index, note in enumerate(drawing.notes)
    ]
