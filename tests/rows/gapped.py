"""Random patterns with gaps, and both ways to match them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from spark_cep.udfs.errors import WorkerError
from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Constant, Expression
from spark_cep.udfs.program import Window
from spark_cep.udfs.row_program import RowPatternNode, RowRead, RowVariable, Skip
from tests.rows.programs import (
    STRING,
    TYPES,
    F,
    S,
    T,
    X,
    answer,
    compare,
    concat,
    exclude,
    measured,
    number,
    program,
    random_row,
    repeat,
    v,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.row_program import RowProgram
    from tests.rows.reference import Row

# Variables of the tests' programs: the points, then the gaps.
POINTS = (0, 1, 2, 3)
GAPS = (4, 5)
NAMES = "ABCDYZ"


def gap_program(pattern: RowPatternNode, defines: dict[int, Expression], **more: Any) -> RowProgram:
    variables = tuple(RowVariable(name, defines.get(i)) for i, name in enumerate(NAMES))
    return program(pattern, variables=variables, **more)


def by(matcher: Any, case: RowProgram, rows: Sequence[Row]) -> list[tuple[Any, ...]] | str:
    """The answer, or what the error says."""
    try:
        return answer(replace(case, matcher=matcher), rows)
    except WorkerError as error:
        return str(error).split("spark-cep-error")[0]


# ---- random ones -------------------------------------------------------------------------------


@st.composite
def gaps(draw: st.DrawFn) -> RowPatternNode:
    low = draw(st.sampled_from([0, 0, 0, 1, 2]))
    high = draw(st.one_of(st.none(), st.none(), st.integers(max(low, 1), 4)))
    gap = repeat(v(draw(st.sampled_from(GAPS))), low, high, draw(st.booleans()))
    if (low, high) == (1, 1):
        gap = repeat(gap.parts[0], 0, 1, gap.greedy)
    return exclude(gap) if draw(st.integers(0, 5)) == 0 else gap


@st.composite
def shapes(draw: st.DrawFn) -> RowPatternNode:
    """Two to four points, something between them, often something behind."""
    parts: list[RowPatternNode] = []
    count = draw(st.sampled_from([2, 3, 3, 3, 4]))
    open_ = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    open_[draw(st.integers(0, count - 2))] = 1
    for point in range(count):
        parts.append(v(point))
        if open_[point]:
            parts.append(draw(gaps()))
    return concat(*parts)


@st.composite
def point_reads(draw: st.DrawFn, column: int, own: int) -> RowRead:
    anchor = draw(st.sampled_from(["current", "first", "last", "last"]))
    shift = draw(st.sampled_from([0, 0, 0, -1, 1, -2]))
    if anchor == "current":
        return RowRead("current", column, TYPES[column], shift=shift)
    if anchor == "first" and draw(st.booleans()):
        return RowRead("first", column, TYPES[column], None, 0, shift)
    points = st.frozensets(st.integers(0, max(own, 1)), min_size=1, max_size=3)
    offset = draw(st.sampled_from([0, 0, 0, 1]))
    return RowRead(anchor, column, TYPES[column], draw(points), offset, shift)


@st.composite
def near(draw: st.DrawFn, own: int) -> Expression:
    """A comparison, often of the kind that an index or a bound can look up."""
    column = draw(st.sampled_from([X, X, X, T, T, S, F]))
    left, right = draw(point_reads(column, own)), draw(point_reads(column, own))
    name = draw(st.sampled_from(["=", "<>", "<", "<=", "<=", ">", ">="]))
    kind = draw(st.integers(0, 3))
    if column == S and kind == 0:
        return compare(name, left, Constant(draw(st.sampled_from("abc")), STRING))
    if column in (X, T) and kind == 0:
        return compare(name, left, number(draw(st.integers(-1, 5))))
    if column in (X, T) and kind == 1:
        apart = Call("-", (left, right), BIGINT)
        return compare(name, apart, number(draw(st.integers(-1, 4))))
    if column in (X, T) and kind == 2:
        further = Call("+", (right, number(draw(st.integers(0, 4)))), BIGINT)
        return compare(name, left, further)
    return compare(name, left, right)


@st.composite
def conditions(draw: st.DrawFn, own: int) -> Expression:
    parts = draw(st.lists(near(own), min_size=1, max_size=3))
    if len(parts) == 1:
        return parts[0]
    return Call(draw(st.sampled_from(["and", "and", "or"])), tuple(parts), BOOL)


@st.composite
def fillers(draw: st.DrawFn) -> Expression:
    shift = draw(st.sampled_from([0, 0, -1, 1]))
    read = RowRead("current", X, BIGINT, shift=shift)
    return compare(draw(st.sampled_from(["<>", "<=", ">="])), read, number(draw(st.integers(0, 2))))


@st.composite
def gap_cases(draw: st.DrawFn) -> tuple[RowProgram, list[Row]]:
    defines = {
        point: draw(conditions(point))
        for point in draw(st.sets(st.sampled_from(POINTS), max_size=4))
    }
    defines |= {gap: draw(fillers()) for gap in draw(st.sets(st.sampled_from(GAPS), max_size=1))}
    mode = draw(st.sampled_from(["one", "all", "all omit empty", "all with unmatched"]))
    skip = Skip(draw(st.sampled_from(["past last row", "next row", "next row", "first", "last"])))
    if skip.kind in ("first", "last"):
        members = st.frozensets(st.integers(0, 5), min_size=1, max_size=3)
        skip = replace(skip, variables=draw(members))
    case = gap_program(
        draw(shapes()), defines, rows=mode, skip=skip,
        measures=tuple(draw(st.lists(measured, max_size=3))),
        within=draw(st.sampled_from([None, None, Window("time", 3), Window("time", 8)])),
    )  # fmt: skip
    size = draw(st.integers(0, 16))
    return case, draw(st.lists(random_row, min_size=size, max_size=size))
