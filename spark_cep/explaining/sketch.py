"""Boxes with text and lines between them, each at its place: a drawing as data.

All text stands in boxes, also text without a border, and a box is as large as its text in any
common monospace font. So whether labels overlap or leave the picture can be read off the data.
Coordinates are pixels, x to the right, y down; a sketch begins at (0, 0).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

FONT_SIZE = 12
# The widest common monospace fonts take 0.602 of their size for a character.
CELL = 0.62 * FONT_SIZE
LINE_HEIGHT = 16
PADDING = 7
GAP = 24
# Longer texts are clipped; the whole is in the hint and in the tables beside the drawing.
NAME_CELLS = 24
TEXT_CELLS = 44

Look = Literal["note", "state", "final", "event", "join", "buffer", "frame", "not"]
Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """`lines` of text in a `look`; `hint` is the whole text where lines are clipped."""

    lines: tuple[str, ...]
    look: Look = "note"
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
    """From the first point to the last, where it has an arrowhead if `arrow`."""

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

    def moved(self, x: float = 0, y: float = 0) -> Sketch:
        return Sketch(
            tuple(replace(box, x=box.x + x, y=box.y + y) for box in self.boxes),
            tuple(
                replace(line, points=tuple((px + x, py + y) for px, py in line.points))
                for line in self.lines
            ),
        )


def box(lines: Sequence[str], look: Look = "note", hint: str = "") -> Box:
    """A box at (0, 0), large enough for its lines."""
    inner = 0 if look == "note" else PADDING
    width = max((text_width(line) for line in lines), default=0) + 2 * inner
    return Box(tuple(lines), look, hint, 0, 0, width, len(lines) * LINE_HEIGHT + 2 * inner)


def at(placed: Box, x: float, y: float) -> Box:
    return replace(placed, x=x, y=y)


def over(*sketches: Sketch) -> Sketch:
    """Sketches in one, each where it is."""
    boxes = tuple(box for each in sketches for box in each.boxes)
    return Sketch(boxes, tuple(line for each in sketches for line in each.lines))


def stacked(sketches: Sequence[Sketch], gap: float = GAP) -> Sketch:
    """One below the other."""
    found, y = [], 0.0
    for each in sketches:
        found.append(each.moved(y=y))
        y += each.height + gap
    return over(*found)


def row_of(boxes: Sequence[Box], y: float = 0, gap: float = GAP) -> tuple[Box, ...]:
    """Side by side."""
    found, x = [], 0.0
    for each in boxes:
        found.append(at(each, x, y))
        x += each.width + gap
    return tuple(found)


def centred(boxes: Sequence[Box], width: float) -> tuple[Box, ...]:
    """A row moved to the middle of a width."""
    right = max((each.x + each.width for each in boxes), default=0)
    return tuple(replace(each, x=each.x + (width - right) / 2) for each in boxes)


def text_width(text: str) -> float:
    return sum(map(_cells, text)) * CELL


def clipped(text: str, cells: int = TEXT_CELLS) -> str:
    """The text in one line of at most so many cells.

    >>> clipped("a.price  <  b.price", 12)
    'a.price < b…'
    """
    line = " ".join(text.split())
    if sum(map(_cells, line)) <= cells:
        return line
    kept, room = "", cells - 1
    for character in line:
        room -= _cells(character)
        if room < 0:
            break
        kept += character
    return f"{kept}…"


def _cells(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
