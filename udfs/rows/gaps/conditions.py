"""The conditions of points, by the points whose rows they read.

A point is bound to one row, so FIRST and LAST of it are that row, and so is what a subset of
points gives: which of them are bound, and in what order, is known from the pattern. A conjunct
that reads one point is a condition on that row and its neighbours, wherever it was written: no
match can be without it. One that reads several becomes a condition of a join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.expressions import BOOL, Call, Cell, Constant, UserCall
from spark_cep.udfs.rows.leaves import LEAVES, conjuncts, leaves, under_test
from spark_cep.udfs.rows.program import Aggregate, Classifier, Read

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression

# Columns of the joined events before those that conditions read (`joining.py`).
OWN_COLUMNS: Final = 3


class NoGaps(Exception):
    """The pattern is not made of points and gaps, or not certainly."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Source:
    """A shipped column (None: only whether there is such a row), `shift` rows further on."""

    column: int | None
    shift: int


@dataclass(frozen=True)
class Crossing:
    """A conjunct over several points: a cell's variable is the point, its column a source."""

    expression: Expression
    points: frozenset[int]


@dataclass
class Resolver:
    """`points`: their variables in the order of the pattern. `alone`: by point, the conjuncts
    that read nothing but its row and that row's neighbours."""

    points: tuple[int, ...]
    names: Sequence[str]
    alone: list[list[Expression]] = field(default_factory=list)
    crossing: list[Crossing] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.alone = [[] for _ in self.points]

    def add(self, define: Expression, place: int) -> None:
        """Takes in the condition of a point."""
        for conjunct in conjuncts(under_test(define, self.points[place])):
            self._add(conjunct, place)

    def _add(self, conjunct: Expression, place: int) -> None:
        read = {leaf: self._row(leaf, place) for leaf in leaves(conjunct)}
        points = {row for row in read.values() if row is not None}
        if len(points) > 1:
            found = replaced(conjunct, lambda leaf: self._cell(leaf, read[leaf]))
            self.crossing.append(Crossing(found, frozenset(points)))
        else:
            (row,) = points or {place}
            self.alone[row].append(replaced(conjunct, lambda leaf: _alone(leaf, read[leaf])))

    def _row(self, leaf: Expression, place: int) -> int | None:
        """The point whose row is read, None where it is bound to none yet."""
        name = self.names[self.points[place]]
        if isinstance(leaf, Aggregate):
            raise NoGaps(f"the condition of {name} has an aggregate")
        if isinstance(leaf, Classifier):
            raise NoGaps(f"the condition of {name} asks for the CLASSIFIER() of another row")
        if not isinstance(leaf, Read):
            raise NoGaps(f"the condition of {name} asks for MATCH_NUMBER()")
        if leaf.anchor == "current":
            return place
        if leaf.variables is not None and leaf.variables <= frozenset(self.points):
            bound = [p for p, v in enumerate(self.points[: place + 1]) if v in leaf.variables]
            if leaf.offset >= len(bound):
                return None
            return bound[leaf.offset if leaf.anchor == "first" else -1 - leaf.offset]
        is_first = leaf.anchor == "first" and leaf.offset == 0
        if is_first and (leaf.variables is None or self.points[0] in leaf.variables):
            return 0
        raise NoGaps(f"the condition of {name} reads rows that a repeated variable may take")

    def _cell(self, leaf: Expression, row: int | None) -> Expression:
        assert isinstance(leaf, Read)
        if row is None:
            return Constant(None, leaf.type)
        source = Source(leaf.column, leaf.shift)
        if source not in self.sources:
            self.sources.append(source)
        return Cell(row, OWN_COLUMNS + self.sources.index(source), leaf.type)


def _alone(leaf: Expression, row: int | None) -> Expression:
    assert isinstance(leaf, Read)
    if row is None:
        return Constant(None, leaf.type)
    return replace(leaf, anchor="current", variables=None, offset=0)


def replaced(expression: Expression, by: Callable[[Expression], Expression]) -> Expression:
    """The expression with something else in the place of each leaf."""
    if isinstance(expression, LEAVES):
        return by(expression)
    if isinstance(expression, Call | UserCall):
        arguments = tuple(replaced(each, by) for each in expression.arguments)
        return replace(expression, arguments=arguments)
    return expression


def conjunction(parts: Sequence[Expression]) -> Expression | None:
    """All of them; None: nothing is asked."""
    return reduce(lambda a, b: Call("and", (a, b), BOOL), parts) if parts else None
