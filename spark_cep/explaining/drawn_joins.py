"""A tree of joins: variables at the leaves, each inner box what it binds, tests and costs.

A hybrid is such a tree with a frame around the eager group, whose partial matches are kept in the
state; the other leaves are buffers, and the boxes outside the frame say in which order they are
merged once the final event is there.

Each subtree is placed in a column of its own, so no two boxes can overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_cep.explaining.labels import NARROW_CELLS, Variable, join
from spark_cep.explaining.planned import Branch, Facts, Shape, leaves, spine
from spark_cep.explaining.sketch import GAP, PADDING, Box, Line, Point, Sketch, at, box, over

_KEPT = "kept in the state"


@dataclass(frozen=True)
class _Placed:
    """A subtree, and where a line from above meets it."""

    sketch: Sketch
    top: Point

    def moved(self, x: float, y: float) -> _Placed:
        return _Placed(self.sketch.moved(x, y), (self.top[0] + x, self.top[1] + y))


def joins(branch: Branch, facts: Facts) -> Sketch:
    """The branch's tree; a branch without a shape is joined eager group first."""
    shape = branch.shape or _eager_first(branch)
    return _Tree(branch, facts).placed(shape).sketch


def _eager_first(branch: Branch) -> Shape:
    lazy = [name for name in branch.variables if name not in branch.eager]
    eager = spine(branch.eager)
    shape = spine([*([eager] if eager else []), *lazy])
    assert shape is not None, "a branch has variables"
    return shape


class _Tree:
    def __init__(self, branch: Branch, facts: Facts) -> None:
        self._branch = branch
        self._facts = facts
        self._eager = frozenset(branch.eager)
        self._is_hybrid = facts["plan"] == "hybrid"
        self._merges = 0

    def placed(self, shape: Shape, *, framed: bool = False) -> _Placed:
        if self._eager and not framed and frozenset(leaves(shape)) == self._eager:
            return _framed(self.placed(shape, framed=True))
        return self._leaf(shape) if isinstance(shape, str) else self._join(shape, framed=framed)

    def _leaf(self, name: str) -> _Placed:
        node = self._branch.node([name])
        leaf = Variable(name, node=node)
        if self._is_hybrid and name not in self._eager:
            leaf = Variable(name, "buffer ", "buffer", node)
        placed = leaf.box(self._facts, NARROW_CELLS)
        return _Placed(Sketch((placed,)), placed.top)

    def _join(self, shape: tuple[Shape, Shape], *, framed: bool) -> _Placed:
        left, right = (self.placed(part, framed=framed) for part in shape)
        names = leaves(shape)
        says = ""
        if self._is_hybrid and not framed:
            self._merges += 1
            says = f"merge {self._merges}: "
        node = join(self._branch.node(names), names, says)
        return _above(node, left, right)


def _above(node: Box, left: _Placed, right: _Placed) -> _Placed:
    """A box over the middle between two subtrees that stand side by side."""
    y = node.height + GAP
    right = right.moved(left.sketch.width + GAP, 0)
    middle = (left.top[0] + right.top[0]) / 2
    x = middle - node.width / 2
    shift = max(0.0, -x)
    placed = at(node, x + shift, 0)
    left, right = left.moved(shift, y), right.moved(shift, y)
    lines = tuple(Line((placed.bottom, each.top), arrow=False) for each in (left, right))
    return _Placed(over(Sketch((placed,), lines), left.sketch, right.sketch), placed.top)


def _framed(inner: _Placed) -> _Placed:
    """The label is at the bottom: lines come from above."""
    inside = inner.moved(PADDING, PADDING)
    label = box([_KEPT])
    y = inside.sketch.height + PADDING
    width = max(inside.sketch.width, PADDING + label.width) + PADDING
    frame = replace(box([], "frame"), width=width, height=y + label.height + PADDING)
    sketch = over(Sketch((frame,)), inside.sketch, Sketch((at(label, PADDING, y),)))
    return _Placed(sketch, inside.top)
