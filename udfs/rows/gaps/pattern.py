"""Recognizes row patterns that are points with gaps between them, and says why others are not.

In `R Z* B Z* M` the variables R, B and M take one row each, the *points*; Z takes the rows between
them, a *gap*. A recognized pattern has exactly the matches that the kernel finds. A pattern for
which this is not certain is not recognized, and the reason is a text for the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.expressions import Call, Cell, Constant, UserCall
from spark_cep.udfs.row_program import Aggregate, Classifier, RowRead
from spark_cep.udfs.rows.leaves import (
    LEAVES,
    conjunction,
    is_physical,
    leaves_of,
    resolve_tested_row,
    split_conjuncts,
)

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.row_program import RowPatternNode, RowProgram


# Candidates are bits of a mask of 64.
MOST_POINTS: Final = 60
# The columns of the joined events before those that conditions read (`preferred.py`).
OWN_COLUMNS: Final = 3
_UNSUPPORTED_NODES: Final = {
    "alternate": "alternatives", "permute": "PERMUTE", "start": "the anchor ^",
    "end": "the anchor $",
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A variable that takes one row. `label` as in `MatchBlock`; `own_condition`: its condition on
    that row and its neighbours."""

    variable: int
    label: int
    own_condition: Expression | None = None


@dataclass(frozen=True)
class Gap:
    """`low` to `high` rows (None: unbounded), each of which meets `condition`."""

    variable: int
    label: int
    low: int
    high: int | None
    greedy: bool
    condition: Expression | None = None


@dataclass(frozen=True)
class ShiftedColumn:
    """A shipped column, read `shift` rows ahead (None: only whether there is such a row)."""

    column: int | None
    shift: int


@dataclass(frozen=True)
class JoinConjunct:
    """A conjunct over several points: the variable of a cell is the point, its column a source."""

    expression: Expression
    points: frozenset[int]


@dataclass(frozen=True)
class GapPattern:
    """A pattern of points and gaps.

    A gap reads nothing of the match so far, so a match is determined by its points: which rows lie
    in a gap follows from where the gap begins and ends. Matches can therefore be found by joining
    the points, and preferment is an order of their rows: a greedy gap prefers the latest next
    point, a reluctant one the earliest, and the first gap takes precedence over the second.

    `gaps[k]` lies between point k and the next one, None if they are adjacent; the last gap follows
    the last point. `join_conjuncts` are the conditions over several points; their cells read
    `sources`.
    """

    points: tuple[Point, ...]
    gaps: tuple[Gap | None, ...]
    join_conjuncts: tuple[JoinConjunct, ...]
    sources: tuple[ShiftedColumn, ...]


class GapRefusal(Exception):
    """The pattern is not made of points and gaps, or not certainly."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def recognize_gaps(program: RowProgram) -> GapPattern | str:
    """The points and gaps of a pattern, or the reason why it is not made of them."""
    try:
        return _recognize(program)
    except GapRefusal as refusal:
        return refusal.reason


def _recognize(program: RowProgram) -> GapPattern:
    if program.frame is not None:
        raise GapRefusal("the pattern is in a window frame")
    if program.longest:
        raise GapRefusal("the longest match is wanted")
    names = [variable.name for variable in program.variables]
    parts = list(_parts(program.pattern, excluded=False))
    points, gaps = _place_parts(parts, names)
    conditions = {
        gap.variable: _gap_condition(program, gap.variable) for gap in gaps if gap is not None
    }
    resolver = PointResolver(tuple(point.variable for point in points), names)
    for place, point in enumerate(points):
        define = program.variables[point.variable].define
        if define is not None:
            resolver.add(define, place)
    return GapPattern(
        tuple(
            Point(point.variable, point.label, conjunction(resolver.own_conjuncts[place]))
            for place, point in enumerate(points)
        ),
        tuple(gap and _with_condition(gap, conditions) for gap in gaps),
        tuple(resolver.join_conjuncts),
        tuple(resolver.sources),
    )


# ---- points and gaps ---------------------------------------------------------------------------


def _parts(node: RowPatternNode, *, excluded: bool) -> Iterator[Point | Gap]:
    """The sequence of points and gaps that a pattern consists of."""
    if node.kind == "variable":
        yield Point(node.variable, 2 * node.variable + excluded)
    elif node.kind == "concat":
        for part in node.parts:
            yield from _parts(part, excluded=excluded)
    elif node.kind == "exclude":
        yield from _parts(node.parts[0], excluded=True)
    elif node.kind == "repeat":
        yield from _repeat_parts(node, excluded)
    elif node.kind != "empty":
        raise GapRefusal(f"the pattern has {_UNSUPPORTED_NODES[node.kind]}")


def _repeat_parts(node: RowPatternNode, excluded: bool) -> Iterator[Point | Gap]:
    (body,) = node.parts
    if (node.low, node.high) == (1, 1):
        yield from _parts(body, excluded=excluded)
        return
    if node.high == 0:
        return
    inner = excluded
    while body.kind == "exclude" or (body.kind == "concat" and len(body.parts) == 1):
        inner = inner or body.kind == "exclude"
        body = body.parts[0]
    if body.kind != "variable":
        raise GapRefusal("a group is repeated")
    label = 2 * body.variable + inner
    yield Gap(body.variable, label, node.low, node.high, node.greedy)


def _place_parts(
    parts: list[Point | Gap], names: list[str]
) -> tuple[list[Point], list[Gap | None]]:
    points: list[Point] = []
    gaps: list[Gap | None] = []
    for part in parts:
        if isinstance(part, Point):
            points.append(part)
            gaps.append(None)
        elif not points:
            raise GapRefusal(
                f"the pattern begins with the repeated variable {names[part.variable]}"
            )
        elif gaps[-1] is not None:
            raise GapRefusal(
                f"the adjacent variables {names[gaps[-1].variable]} and {names[part.variable]} are "
                "both repeated"
            )
        else:
            gaps[-1] = part
    _check_parts(points, gaps, names)
    return points, gaps


def _check_parts(points: list[Point], gaps: list[Gap | None], names: list[str]) -> None:
    if not any(gaps[:-1]):
        raise GapRefusal("no variable between two others is repeated")
    if len(points) > MOST_POINTS:
        raise GapRefusal(f"more than {MOST_POINTS} variables of the pattern take a single row")
    variables = [point.variable for point in points]
    for variable in variables:
        if variables.count(variable) > 1:
            raise GapRefusal(f"{names[variable]} appears more than once")
    for gap in gaps:
        if gap is not None and gap.variable in variables:
            raise GapRefusal(f"{names[gap.variable]} appears both repeated and not repeated")


def _gap_condition(program: RowProgram, variable: int) -> Expression | None:
    """The condition that each row of a gap has to meet."""
    name, define = program.variables[variable].name, program.variables[variable].define
    if define is None:
        return None
    condition = resolve_tested_row(define, variable)
    if not is_physical(condition):
        raise GapRefusal(f"the condition of the repeated variable {name} reads the match so far")
    return condition


def _with_condition(gap: Gap, conditions: Mapping[int, Expression | None]) -> Gap:
    return replace(gap, condition=conditions[gap.variable])


# ---- the conditions of points ------------------------------------------------------------------


@dataclass
class PointResolver:
    """Splits the conditions of points by the points whose rows they read.

    A point is bound to one row, so FIRST and LAST of it are that row. What a subset of points reads
    is known from the pattern too: which of its points are bound, and in what order. A conjunct that
    reads one point is a condition on that row and its neighbours, whichever DEFINE it was written
    in: every match has to meet it. A conjunct that reads several points becomes the condition of a
    join.

    `points`: their variables in the order of the pattern. `own_conjuncts`: for each point, the
    conjuncts that read only its row and that row's neighbours.
    """

    points: tuple[int, ...]
    names: Sequence[str]
    own_conjuncts: list[list[Expression]] = field(default_factory=list)
    join_conjuncts: list[JoinConjunct] = field(default_factory=list)
    sources: list[ShiftedColumn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.own_conjuncts = [[] for _ in self.points]

    def add(self, define: Expression, place: int) -> None:
        """Adds the condition of a point."""
        for conjunct in split_conjuncts(resolve_tested_row(define, self.points[place])):
            self._add(conjunct, place)

    def _add(self, conjunct: Expression, place: int) -> None:
        read = {leaf: self._row(leaf, place) for leaf in leaves_of(conjunct)}
        points = {row for row in read.values() if row is not None}
        if len(points) > 1:
            expression = replace_leaves(conjunct, lambda leaf: self._cell(leaf, read[leaf]))
            self.join_conjuncts.append(JoinConjunct(expression, frozenset(points)))
        else:
            (row,) = points or {place}
            self.own_conjuncts[row].append(
                replace_leaves(conjunct, lambda leaf: _own_read(leaf, read[leaf]))
            )

    def _row(self, leaf: Expression, place: int) -> int | None:
        """The point whose row is read, None if that point is not bound yet."""
        name = self.names[self.points[place]]
        if isinstance(leaf, Aggregate):
            raise GapRefusal(f"the condition of {name} has an aggregate")
        if isinstance(leaf, Classifier):
            raise GapRefusal(f"the condition of {name} reads the CLASSIFIER() of another row")
        if not isinstance(leaf, RowRead):
            raise GapRefusal(f"the condition of {name} reads MATCH_NUMBER()")
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
        raise GapRefusal(
            f"the condition of {name} reads rows that may belong to a repeated variable"
        )

    def _cell(self, leaf: Expression, row: int | None) -> Expression:
        assert isinstance(leaf, RowRead)
        if row is None:
            return Constant(None, leaf.type)
        source = ShiftedColumn(leaf.column, leaf.shift)
        if source not in self.sources:
            self.sources.append(source)
        return Cell(row, OWN_COLUMNS + self.sources.index(source), leaf.type)


def _own_read(leaf: Expression, row: int | None) -> Expression:
    assert isinstance(leaf, RowRead)
    if row is None:
        return Constant(None, leaf.type)
    return replace(leaf, anchor="current", variables=None, offset=0)


def replace_leaves(expression: Expression, by: Callable[[Expression], Expression]) -> Expression:
    """The expression with each leaf replaced."""
    if isinstance(expression, LEAVES):
        return by(expression)
    if isinstance(expression, Call | UserCall):
        arguments = tuple(replace_leaves(each, by) for each in expression.arguments)
        return replace(expression, arguments=arguments)
    return expression
