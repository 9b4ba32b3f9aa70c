"""A sketch as SVG that needs nothing else: no script, no style sheet, no reference, no ids.

Text and lines have the colour of the text around the picture and fills are translucent, so it is
readable on light and dark pages, and two pictures on one page cannot disturb each other.
"""

from __future__ import annotations

import math

from spark_cep.explaining.markup import Markup, element
from spark_cep.explaining.sketch import FONT_SIZE, LINE_HEIGHT, PADDING, Box, Line, Look, Sketch

MARGIN = 8
_FILLS: dict[Look, str] = {
    "state": "#888888",
    "final": "#2e9e5b",
    "event": "#3b82f6",
    "join": "#e08a1e",
    "buffer": "#3b82f6",
    "not": "#d6455d",
}
_DASHED: frozenset[Look] = frozenset({"buffer", "frame", "not"})
_ROUND: frozenset[Look] = frozenset({"state", "final"})
_HEAD_LENGTH, _HEAD_WIDTH = 8, 3.5
# Where letters stand in their line.
_BASELINE = 0.74 * LINE_HEIGHT


def svg(sketch: Sketch, label: str) -> Markup:
    """The picture; `label` is read out to those who do not see it."""
    width, height = sketch.width + 2 * MARGIN, sketch.height + 2 * MARGIN
    inside = sketch.moved(MARGIN, MARGIN)
    return element(
        "svg",
        *map(_line, inside.lines),
        *map(_box, inside.boxes),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_number(width)} {_number(height)}",
        width=_number(width),
        height=_number(height),
        role="img",
        aria_label=label,
        fill="currentColor",
        font_family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
        font_size=FONT_SIZE,
        style="max-width:100%;height:auto",
    )


def _box(box: Box) -> Markup:
    parts = [element("title", box.hint)] if box.hint else []
    if box.look != "note":
        parts.append(_outline(box, 0))
    if box.look == "final":
        parts.append(_outline(box, 3))
    inner = 0 if box.look == "note" else PADDING
    for place, line in enumerate(box.lines):
        is_name = place == 0 and box.look in {"event", "join", "buffer", "not"}
        parts.append(
            element(
                "text",
                line,
                x=_number(box.x + inner),
                y=_number(box.y + inner + place * LINE_HEIGHT + _BASELINE),
                **({"font_weight": "bold"} if is_name else {}),
            )
        )
    return element("g", *parts)


def _outline(box: Box, inset: float) -> Markup:
    fill = _FILLS.get(box.look)
    return element(
        "rect",
        x=_number(box.x + inset),
        y=_number(box.y + inset),
        width=_number(box.width - 2 * inset),
        height=_number(box.height - 2 * inset),
        rx=_number((box.height - 2 * inset) / 2 if box.look in _ROUND else 5),
        stroke="currentColor",
        stroke_opacity=0.55,
        fill=fill if fill and not inset else "none",
        fill_opacity=0.18,
        **({"stroke_dasharray": "5 3"} if box.look in _DASHED else {}),
    )


def _line(line: Line) -> Markup:
    points = " ".join(f"{_number(x)},{_number(y)}" for x, y in line.points)
    drawn = element(
        "polyline",
        points=points,
        fill="none",
        stroke="currentColor",
        stroke_opacity=0.7,
        **({"stroke_dasharray": "5 3"} if line.dashed else {}),
    )
    return element("g", drawn, _head(line)) if line.arrow else drawn


def _head(line: Line) -> Markup:
    """A triangle at the end of the line, in its direction."""
    (fx, fy), (x, y) = line.points[-2:]
    length = math.hypot(x - fx, y - fy) or 1.0
    dx, dy = (x - fx) / length, (y - fy) / length
    bx, by = x - _HEAD_LENGTH * dx, y - _HEAD_LENGTH * dy
    corners = (
        (x, y),
        (bx - _HEAD_WIDTH * dy, by + _HEAD_WIDTH * dx),
        (bx + _HEAD_WIDTH * dy, by - _HEAD_WIDTH * dx),
    )
    points = " ".join(f"{_number(cx)},{_number(cy)}" for cx, cy in corners)
    return element("polygon", points=points, fill_opacity=0.7)


def _number(value: float) -> str:
    """
    >>> _number(12.0), _number(3.14159)
    ('12', '3.1')
    """
    return f"{value:.1f}".removesuffix(".0")
