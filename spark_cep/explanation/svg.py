"""Drawings as data, boxes with text and lines between them, and how they are written as SVG.

All text is in boxes, some of them without a border, and a box is as large as its text in any
common monospace font. So the data show whether labels overlap or leave the picture. Coordinates
are pixels, x to the right, y down; a sketch begins at (0, 0).
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

# ---- markup ------------------------------------------------------------------------------------

# Characters that no XML document may contain, escaped or not.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Markup(str):
    """Text that is markup already. Only `make_element` and `join_markup` make it, and they escape
    all other text, so names and conditions that users write never become markup."""

    __slots__ = ()


def make_element(tag: str, *content: str, **attributes: object) -> Markup:
    """One element, closed explicitly, which XML and HTML read alike.

    Underscores in the names of attributes become dashes.

    >>> make_element("td", "a < b", make_element("b", "!"), text_align="left")
    '<td text-align="left">a &lt; b<b>!</b></td>'
    """
    inner = "".join(map(_escape, content))
    given = "".join(
        f' {name.replace("_", "-")}="{_escape(str(value))}"' for name, value in attributes.items()
    )
    return Markup(f"<{tag}{given}>{inner}</{tag}>")


def join_markup(*parts: str) -> Markup:
    """Elements one after another; plain text between them is escaped."""
    return Markup("".join(map(_escape, parts)))


def _escape(text: str) -> str:
    return text if isinstance(text, Markup) else html.escape(_ILLEGAL.sub("\ufffd", text))


# ---- boxes and lines ---------------------------------------------------------------------------

FONT_SIZE = 12
# In the widest common monospace fonts a character is 0.602 of the font size wide.
CELL = 0.62 * FONT_SIZE
LINE_HEIGHT = 16
PADDING = 7
GAP = 24
# Longer texts are clipped; the hint and the tables beside the drawing have them in full.
NAME_CELLS = 24
TEXT_CELLS = 44

BoxStyle = Literal["note", "state", "final", "event", "join", "buffer", "frame", "not"]
Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """`lines` of text in a border of a `style`; `hint` is the text in full."""

    lines: tuple[str, ...]
    style: BoxStyle = "note"
    hint: str = ""
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0

    @property
    def top(self) -> Point:
        return self.x + self.width / 2, self.y

    @property
    def bottom(self) -> Point:
        return self.x + self.width / 2, self.y + self.height


@dataclass(frozen=True)
class Line:
    """A line through `points`, with an arrowhead at the last one if `arrow`."""

    points: tuple[Point, ...]
    arrow: bool = True
    dashed: bool = False


@dataclass(frozen=True)
class Sketch:
    boxes: tuple[Box, ...] = ()
    lines: tuple[Line, ...] = ()

    @property
    def width(self) -> float:
        ends = [box.x + box.width for box in self.boxes]
        return max([*ends, *(x for line in self.lines for x, _ in line.points)], default=0)

    @property
    def height(self) -> float:
        ends = [box.y + box.height for box in self.boxes]
        return max([*ends, *(y for line in self.lines for _, y in line.points)], default=0)

    def move(self, x: float = 0, y: float = 0) -> Sketch:
        return Sketch(
            tuple(replace(box, x=box.x + x, y=box.y + y) for box in self.boxes),
            tuple(
                replace(line, points=tuple((px + x, py + y) for px, py in line.points))
                for line in self.lines
            ),
        )


def make_box(lines: Sequence[str], style: BoxStyle = "note", hint: str = "") -> Box:
    """A box at (0, 0), large enough for its lines."""
    inner = 0 if style == "note" else PADDING
    width = max((text_width(line) for line in lines), default=0) + 2 * inner
    return Box(tuple(lines), style, hint, 0, 0, width, len(lines) * LINE_HEIGHT + 2 * inner)


def place_box(box: Box, x: float, y: float) -> Box:
    return replace(box, x=x, y=y)


def overlay_sketches(*sketches: Sketch) -> Sketch:
    """One sketch of several, none of them moved."""
    boxes = tuple(box for each in sketches for box in each.boxes)
    return Sketch(boxes, tuple(line for each in sketches for line in each.lines))


def stack_sketches(sketches: Sequence[Sketch], gap: float = GAP) -> Sketch:
    """Sketches one below the other."""
    placed, y = [], 0.0
    for each in sketches:
        placed.append(each.move(y=y))
        y += each.height + gap
    return overlay_sketches(*placed)


def arrange_row(boxes: Sequence[Box], y: float = 0, gap: float = GAP) -> tuple[Box, ...]:
    """Boxes side by side."""
    placed, x = [], 0.0
    for each in boxes:
        placed.append(place_box(each, x, y))
        x += each.width + gap
    return tuple(placed)


def center_row(boxes: Sequence[Box], width: float) -> tuple[Box, ...]:
    """A row of boxes, moved to the middle of a width."""
    right = max((each.x + each.width for each in boxes), default=0)
    return tuple(replace(each, x=each.x + (width - right) / 2) for each in boxes)


def text_width(text: str) -> float:
    return sum(map(_cell_count, text)) * CELL


def clip_text(text: str, cells: int = TEXT_CELLS) -> str:
    """The text in one line of at most `cells` characters; wide characters count twice.

    >>> clip_text("a.price  <  b.price", 12)
    'a.price < b…'
    """
    line = " ".join(text.split())
    if sum(map(_cell_count, line)) <= cells:
        return line
    kept, left = "", cells - 1
    for character in line:
        left -= _cell_count(character)
        if left < 0:
            break
        kept += character
    return f"{kept}…"


def _cell_count(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# ---- SVG ---------------------------------------------------------------------------------------

MARGIN = 8
_FILLS: dict[BoxStyle, str] = {
    "state": "#888888",
    "final": "#2e9e5b",
    "event": "#3b82f6",
    "join": "#e08a1e",
    "buffer": "#3b82f6",
    "not": "#d6455d",
}
_DASHED: frozenset[BoxStyle] = frozenset({"buffer", "frame", "not"})
_ROUND: frozenset[BoxStyle] = frozenset({"state", "final"})
_HEAD_LENGTH, _HEAD_WIDTH = 8, 3.5
# The baseline of the text in its line.
_BASELINE = 0.74 * LINE_HEIGHT


def render_svg(sketch: Sketch, label: str) -> Markup:
    """The picture as SVG, without scripts, style sheets, references and ids.

    Text and lines have the colour of the text around the picture, and fills are translucent, so
    it is readable on light and dark pages. `label` is what screen readers say.
    """
    width, height = sketch.width + 2 * MARGIN, sketch.height + 2 * MARGIN
    inside = sketch.move(MARGIN, MARGIN)
    return make_element(
        "svg",
        *map(_draw_line, inside.lines),
        *map(_draw_box, inside.boxes),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_format_number(width)} {_format_number(height)}",
        width=_format_number(width),
        height=_format_number(height),
        role="img",
        aria_label=label,
        fill="currentColor",
        font_family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
        font_size=FONT_SIZE,
        style="max-width:100%;height:auto",
    )


def _draw_box(box: Box) -> Markup:
    parts = [make_element("title", box.hint)] if box.hint else []
    if box.style != "note":
        parts.append(_draw_outline(box, 0))
    if box.style == "final":
        parts.append(_draw_outline(box, 3))
    inner = 0 if box.style == "note" else PADDING
    for place, line in enumerate(box.lines):
        is_name = place == 0 and box.style in {"event", "join", "buffer", "not"}
        parts.append(
            make_element(
                "text",
                line,
                x=_format_number(box.x + inner),
                y=_format_number(box.y + inner + place * LINE_HEIGHT + _BASELINE),
                **({"font_weight": "bold"} if is_name else {}),
            )
        )
    return make_element("g", *parts)


def _draw_outline(box: Box, inset: float) -> Markup:
    fill = _FILLS.get(box.style)
    return make_element(
        "rect",
        x=_format_number(box.x + inset),
        y=_format_number(box.y + inset),
        width=_format_number(box.width - 2 * inset),
        height=_format_number(box.height - 2 * inset),
        rx=_format_number((box.height - 2 * inset) / 2 if box.style in _ROUND else 5),
        stroke="currentColor",
        stroke_opacity=0.55,
        fill=fill if fill and not inset else "none",
        fill_opacity=0.18,
        **({"stroke_dasharray": "5 3"} if box.style in _DASHED else {}),
    )


def _draw_line(line: Line) -> Markup:
    points = " ".join(f"{_format_number(x)},{_format_number(y)}" for x, y in line.points)
    drawn = make_element(
        "polyline",
        points=points,
        fill="none",
        stroke="currentColor",
        stroke_opacity=0.7,
        **({"stroke_dasharray": "5 3"} if line.dashed else {}),
    )
    return make_element("g", drawn, _draw_arrowhead(line)) if line.arrow else drawn


def _draw_arrowhead(line: Line) -> Markup:
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
    points = " ".join(f"{_format_number(cx)},{_format_number(cy)}" for cx, cy in corners)
    return make_element("polygon", points=points, fill_opacity=0.7)


def _format_number(value: float) -> str:
    """
    >>> _format_number(12.0), _format_number(3.14159)
    ('12', '3.1')
    """
    return f"{value:.1f}".removesuffix(".0")
