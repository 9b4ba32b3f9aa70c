"""The automaton of skip till next match and strict: the pattern itself, from top to bottom.

No plan orders these: a run takes rows as they come. So the structure of the pattern is drawn:
what follows is below, alternatives and parts in any order stand side by side, lists have a loop,
optional parts a way around. Without that structure in the facts, the variables stand in the order
of the pattern.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep.explaining.labels import NARROW_CELLS, Variable
from spark_cep.explaining.sketch import GAP, Box, Line, Sketch, at, box, over

if TYPE_CHECKING:
    from spark_cep.explaining.planned import Facts

_AROUND = 14


@dataclass(frozen=True)
class _Piece:
    """A part of the automaton; it is entered at (`middle`, 0) and left at (`middle`, height)."""

    sketch: Sketch
    middle: float

    @property
    def height(self) -> float:
        return self.sketch.height

    def moved(self, x: float, y: float) -> Sketch:
        return self.sketch.moved(x, y)


def runs(facts: Facts) -> Sketch:
    part = facts.get("parts") or {"kind": "seq", "parts": [_event(n) for n in facts["order"]]}
    start, end = _piece(box(["start"], "state")), _piece(box(["match"], "final"))
    return _down([start, _drawn(part, facts), end]).sketch


def _event(name: str) -> dict[str, Any]:
    return {"kind": "event", "variable": name}


def _drawn(part: Mapping[str, Any], facts: Facts) -> _Piece:
    kind = part["kind"]
    if kind == "event":
        return _piece(Variable(part["variable"], "take ").box(facts, NARROW_CELLS))
    if kind == "not":
        return _piece(Variable(part["variable"], "NOT ", "not").box(facts, NARROW_CELLS))
    if kind == "mark":
        return _piece(box([part["text"]], "state"))
    pieces = [_drawn(each, facts) for each in part["parts"]]
    if kind == "seq":
        return _down(pieces)
    if kind in {"all", "any"}:
        return _beside(pieces, "all, in any order" if kind == "all" else "one of")
    return _looped(pieces[0], part) if kind == "repeat" else _skipped(pieces[0])


def _piece(placed: Box) -> _Piece:
    return _Piece(Sketch((placed,)), placed.width / 2)


def _down(pieces: Sequence[_Piece]) -> _Piece:
    """One after another, an arrow between two."""
    middle = max(each.middle for each in pieces)
    sketches, lines, y = [], [], 0.0
    for place, each in enumerate(pieces):
        if place:
            lines.append(Line(((middle, y), (middle, y + GAP))))
            y += GAP
        sketches.append(each.moved(middle - each.middle, y))
        y += each.height
    return _Piece(over(*sketches, Sketch(lines=tuple(lines))), middle)


def _beside(pieces: Sequence[_Piece], says: str) -> _Piece:
    """A fork, the pieces side by side, and where they meet again."""
    fork = box([says], "join")
    inside = sum(each.sketch.width for each in pieces) + GAP * (len(pieces) - 1)
    width = max(inside, fork.width)
    middle, x = width / 2, (width - inside) / 2
    tallest = max(each.height for each in pieces)
    top, bottom = fork.height + GAP, fork.height + 2 * GAP + tallest
    sketches = [Sketch((at(fork, middle - fork.width / 2, 0),))]
    lines = []
    for each in pieces:
        sketches.append(each.moved(x, top))
        entry = x + each.middle
        leaving = (entry, top + each.height)
        lines.append(Line(((middle, fork.height), (entry, top))))
        lines.append(Line((leaving, (entry, top + tallest), (middle, bottom)), arrow=False))
        lines.append(
            Line(
                ((entry, top + each.height), (entry, top + tallest), (middle, bottom)), arrow=False
            )
        )
        x += each.sketch.width + GAP
    return _Piece(over(*sketches, Sketch(lines=tuple(lines))), middle)


def _looped(piece: _Piece, part: Mapping[str, Any]) -> _Piece:
    """Back from the end to the start, on the right, with how often."""
    low, high = part["low"], part["high"]
    often = f"{low} or more times" if high is None else f"{low} to {high} times"
    return _with_way(piece, often, is_back=True)


def _skipped(piece: _Piece) -> _Piece:
    return _with_way(piece, "or nothing", is_back=False)


def _with_way(piece: _Piece, says: str, *, is_back: bool) -> _Piece:
    inner = piece.moved(0, GAP)
    height = piece.height + 2 * GAP
    right = piece.sketch.width + _AROUND
    ends = [(piece.middle, GAP / 2), (piece.middle, height - GAP / 2)]
    if is_back:
        ends.reverse()
    way = Line((ends[0], (right, ends[0][1]), (right, ends[1][1]), ends[1]), dashed=True)
    through = (
        Line(((piece.middle, 0), (piece.middle, GAP))),
        Line(((piece.middle, height - GAP), (piece.middle, height)), arrow=False),
    )
    label = box([says])
    placed = at(label, right + 5, (height - label.height) / 2)
    return _Piece(over(inner, Sketch((placed,), (way, *through))), piece.middle)
