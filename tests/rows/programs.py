"""Row programs for tests: short ways to write them, to run them, and to draw random ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from spark_cep.udfs.execution.row_engine import compile_row_program
from spark_cep.udfs.execution.worker import run
from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Call, Constant, Expression, Type
from spark_cep.udfs.output import Field, RowOutput
from spark_cep.udfs.program import Limits, Order, Window
from spark_cep.udfs.row_program import (
    Aggregate,
    Classifier,
    MatchNumber,
    RowPatternNode,
    RowProgram,
    RowRead,
    RowVariable,
    Skip,
)
from spark_cep.udfs.rows.leaves import leaves_of
from tests.rows.reference import Reference, Row

STRING = Type("string")
INT = Type("int", 32)
NAMES = ("k", "t", "x", "s", "f")
TYPES = (BIGINT, BIGINT, BIGINT, STRING, DOUBLE)
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("t", pa.int64()),
        ("x", pa.int64()),
        ("s", pa.string()),
        ("f", pa.float64()),
    ]
)
K, T, X, S, F = range(5)
VARIABLES = 4


def v(variable: int) -> RowPatternNode:
    return RowPatternNode("variable", variable)


def concat(*parts: RowPatternNode) -> RowPatternNode:
    return RowPatternNode("concat", parts=parts)


def alternate(*parts: RowPatternNode) -> RowPatternNode:
    return RowPatternNode("alternate", parts=parts)


def permute(*parts: RowPatternNode) -> RowPatternNode:
    return RowPatternNode("permute", parts=parts)


def exclude(part: RowPatternNode) -> RowPatternNode:
    return RowPatternNode("exclude", parts=(part,))


def repeat(part: RowPatternNode, low: int, high: int | None, greedy: bool = True) -> RowPatternNode:
    return RowPatternNode("repeat", parts=(part,), low=low, high=high, greedy=greedy)


def plus(part: RowPatternNode) -> RowPatternNode:
    return repeat(part, 1, None)


def star(part: RowPatternNode) -> RowPatternNode:
    return repeat(part, 0, None)


def current(column: int = X, shift: int = 0) -> RowRead:
    return RowRead("current", column, TYPES[column], shift=shift)


def last(
    variables: Sequence[int] | None, column: int = X, offset: int = 0, shift: int = 0
) -> RowRead:
    chosen = None if variables is None else frozenset(variables)
    return RowRead("last", column, TYPES[column], chosen, offset, shift)


def first(
    variables: Sequence[int] | None, column: int = X, offset: int = 0, shift: int = 0
) -> RowRead:
    return replace(last(variables, column, offset, shift), anchor="first")


def compare(name: str, left: Expression, right: Expression) -> Call:
    return Call(name, (left, right), BOOL)


def number(value: int) -> Constant:
    return Constant(value, BIGINT)


def program(
    pattern: RowPatternNode, defines: Mapping[int, Expression] | None = None, **more: Any
) -> RowProgram:
    chosen = defines or {}
    variables = tuple(RowVariable("ABCDEFGH"[i], chosen.get(i)) for i in range(VARIABLES))
    given: dict[str, Any] = {
        "columns": NAMES, "keys": (K,), "orders": (Order(T, BIGINT),), "variables": variables,
        "pattern": pattern, "measures": (), "rows": "all", "skip": Skip(), "limits": Limits(),
    }  # fmt: skip
    return RowProgram(**{**given, **more})


def rows_of(*values: Any, key: int = 1) -> list[Row]:
    """Rows of one partition with these values of x."""
    return [(key, t, x, None, None) for t, x in enumerate(values)]


def answer(case: RowProgram, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """(key, time, *measures) of each row, for "one" those of the match's first row."""
    found, _ = answer_and_metrics(case, rows)
    return found


def answer_and_metrics(
    case: RowProgram, rows: Sequence[Row]
) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    table = pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in rows], SCHEMA)
    output = RowOutput((Field(K, "k"), Field(T, "t")))
    found: list[tuple[Any, ...]] = []
    metrics: dict[str, Any] = {}
    compiled = compile_row_program(case)
    for batch in run(compiled, output, iter(table.to_batches(max_chunksize=3)), 0):
        for row in batch.to_pylist():
            values = list(row.values())
            if row["metrics"] is None:
                dropped = -2 if case.rows == "one" else -1
                found.append(tuple(values[:dropped]))
            else:
                metrics = json.loads(row["metrics"])
    return found, metrics


def expected(case: RowProgram, rows: Sequence[Row], budget: int = 100_000) -> list[tuple[Any, ...]]:
    """The same by the reference."""
    found: list[tuple[Any, ...]] = []
    for key in sorted({row[K] for row in rows}):
        ordered = sorted((row for row in rows if row[K] == key), key=lambda row: row[T])
        reference = Reference(case, ordered, budget)
        found += [
            (ordered[place][K], ordered[place][T], *measures)
            for place, *measures in reference.answer()
        ]
    return found


# ---- random ones -------------------------------------------------------------------------------


def patterns(depth: int = 3) -> st.SearchStrategy[RowPatternNode]:
    leaf = st.one_of(
        *[st.integers(0, VARIABLES - 1).map(v)] * 9,
        st.sampled_from([RowPatternNode("empty"), RowPatternNode("start"), RowPatternNode("end")]),
    )
    if depth == 0:
        return leaf
    part = patterns(depth - 1)
    several = st.lists(part, min_size=2, max_size=3)
    return st.one_of(
        leaf,
        several.map(lambda parts: concat(*parts)),
        several.map(lambda parts: concat(*parts)),
        several.map(lambda parts: alternate(*parts)),
        several.map(lambda parts: permute(*parts)),
        part.map(exclude),
        *[quantified(part)] * 3,
    )


@st.composite
def quantified(draw: st.DrawFn, part: st.SearchStrategy[RowPatternNode]) -> RowPatternNode:
    low = draw(st.sampled_from([0, 0, 1, 1, 2, 3]))
    high = draw(st.one_of(st.none(), st.integers(max(low, 1), 4)))
    return repeat(draw(part), low, high, draw(st.booleans()))


sets = st.one_of(
    st.none(), st.frozensets(st.integers(0, VARIABLES - 1), min_size=1, max_size=VARIABLES)
)
small = st.integers(0, 2)


@st.composite
def reads(draw: st.DrawFn, column: int, *, final: bool) -> RowRead:
    anchor = draw(st.sampled_from(["current", "first", "last", "last"]))
    return RowRead(
        anchor, column, TYPES[column],
        None if anchor == "current" else draw(sets),
        0 if anchor == "current" else draw(small),
        draw(st.sampled_from([0, 0, 0, -1, -2, -3, 1, 2])),
        draw(st.booleans()) if final and anchor != "current" else False,
    )  # fmt: skip


@st.composite
def classifiers(draw: st.DrawFn, *, final: bool) -> Classifier:
    anchor = draw(st.sampled_from(["current", "first", "last"]))
    return Classifier(
        INT, anchor,
        None if anchor == "current" else draw(sets),
        0 if anchor == "current" else draw(small),
        draw(st.sampled_from([0, 0, -1, 1])),
        draw(st.booleans()) if final and anchor != "current" else False,
    )  # fmt: skip


@st.composite
def aggregates(
    draw: st.DrawFn, *, final: bool, kinds: Sequence[str] = ("int", "float", "string")
) -> Aggregate:
    kind = draw(st.sampled_from(kinds))
    column = {"int": X, "float": F, "string": S}[kind]
    names = ["count", "min", "max"] if kind == "string" else ["count", "sum", "avg", "min", "max"]
    name = draw(st.sampled_from(names))
    if name == "count" and draw(st.booleans()):
        column = None  # type: ignore[assignment]
    type_ = {"count": BIGINT, "avg": DOUBLE}.get(
        name, TYPES[column] if column is not None else BIGINT
    )
    return Aggregate(
        name, column, type_, draw(sets), draw(st.booleans()),  # type: ignore[arg-type]
        draw(st.booleans()) if final else False,
    )  # fmt: skip


@st.composite
def spreads(draw: st.DrawFn) -> Aggregate:
    """Variances and standard deviations of floats and of integers."""
    name = draw(st.sampled_from(["stddev_samp", "stddev_pop", "var_samp", "var_pop"]))
    column = draw(st.sampled_from([X, F]))
    return Aggregate(name, column, DOUBLE, draw(sets), draw(st.booleans()))  # type: ignore[arg-type]


@st.composite
def extreme_rows(draw: st.DrawFn, column: int) -> Aggregate:
    """max_by and min_by."""
    name = draw(st.sampled_from(["max_by", "min_by"]))
    by = draw(st.sampled_from([X, F]))
    return Aggregate(name, column, TYPES[column], draw(sets), by=(by, TYPES[by]))  # type: ignore[arg-type]


@st.composite
def aggregates_of_expressions(draw: st.DrawFn) -> Aggregate:
    """Of what only the matcher knows of a row."""
    parts = st.one_of(
        st.sampled_from([0, 0, -1, 1]).map(lambda shift: current(shift=shift)),
        st.sampled_from([0, -1]).map(lambda shift: Classifier(BIGINT, shift=shift)),
        st.just(MatchNumber(BIGINT)),
    )
    name = draw(st.sampled_from(["count", "sum", "min", "max"]))
    argument = Call("+", (draw(parts), draw(parts)), BIGINT)
    return Aggregate(name, None, BIGINT, draw(sets), draw(st.booleans()), argument=argument)  # type: ignore[arg-type]


integers = st.one_of(
    st.integers(-1, 3).map(number),
    reads(X, final=False),
    reads(X, final=False),
    aggregates(final=False, kinds=("int",)).filter(lambda a: a.type == BIGINT),
    classifiers(final=False),
    extreme_rows(X),
    st.just(MatchNumber(BIGINT)),
)


@st.composite
def sums(draw: st.DrawFn) -> Expression:
    left = draw(integers)
    kind = draw(st.integers(0, 9))
    if kind == 9:
        return draw(aggregates_of_expressions())
    if kind == 8:
        return Call("coalesce", (left, draw(integers)), BIGINT)
    if kind == 7:
        condition = compare(">", draw(integers), number(0))
        return Call("if", (condition, left, draw(integers)), BIGINT)
    if kind < 5:
        return left
    operator = draw(st.sampled_from(["+", "-", "*"]))
    return Call(operator, (left, draw(integers)), BIGINT)


@st.composite
def comparisons(draw: st.DrawFn) -> Expression:
    # Conditions that mostly hold make for more ways through a pattern.
    name = draw(st.sampled_from(["=", "<>", "<>", "<", "<=", "<=", ">", ">=", ">="]))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        other = st.one_of(
            reads(S, final=False),
            extreme_rows(S),
            st.sampled_from("abc").map(lambda s: Constant(s, STRING)),
        )
        return compare(name, draw(reads(S, final=False)), draw(other))
    if kind == 1:
        floats = st.one_of(
            reads(F, final=False),
            aggregates(final=False, kinds=("float", "int")).filter(lambda a: a.type == DOUBLE),
            spreads(),
            extreme_rows(F),
        )
        return compare(name, draw(floats), draw(floats))
    return compare(name, draw(sums()), draw(sums()))


@st.composite
def defines(draw: st.DrawFn, depth: int = 2) -> Expression:
    kind = draw(st.integers(0, 7)) if depth else 0
    if kind == 5:
        return Call("not", (draw(defines(depth - 1)),), BOOL)
    if kind in (6, 7):
        parts = draw(st.lists(defines(depth - 1), min_size=2, max_size=3))
        return Call("and" if kind == 6 else "or", tuple(parts), BOOL)
    if kind == 4:
        there_is = reads(X, final=False).map(lambda read: replace(read, column=None, type=BOOL))
        return Call("is_null", (draw(st.one_of(integers, there_is)),), BOOL)
    return draw(comparisons())


@st.composite
def cases(
    draw: st.DrawFn, conditions: st.SearchStrategy[Expression] | None = None
) -> tuple[RowProgram, list[Row]]:
    pattern = draw(patterns(draw(st.sampled_from([2, 2, 3]))))
    conditions = defines() if conditions is None else conditions
    chosen = draw(st.dictionaries(st.integers(0, VARIABLES - 1), conditions, max_size=3))
    mode = draw(st.sampled_from(["one", "all", "all omit empty", "all with unmatched"]))
    skip = Skip(draw(st.sampled_from(["past last row", "next row", "first", "last"])))
    if skip.kind in ("first", "last"):
        skip = replace(skip, variables=draw(sets.filter(lambda each: each is not None)))
    measures = draw(st.lists(measured, max_size=4))
    within = draw(st.sampled_from([None, None, None, 3, 3, 1, 0]))
    case = program(
        pattern, chosen, rows=mode, skip=skip, measures=tuple(measures),
        within=None if within is None else Window("time", within),
    )  # fmt: skip
    return case, draw(random_rows)


measured: st.SearchStrategy[Expression] = st.one_of(
    st.sampled_from([X, S, F]).flatmap(lambda column: reads(column, final=True)),
    classifiers(final=True),
    aggregates(final=True),
    sets.map(lambda each: Aggregate("list", S, STRING, each)),
    sets.map(lambda each: Aggregate("list", None, INT, each)),
    st.just(MatchNumber(BIGINT)),
)

# Floats whose sums are exact in any order.
random_row: st.SearchStrategy[Row] = st.tuples(
    st.sampled_from([1, 1, 1, 1, 2]),
    st.integers(0, 9),
    st.one_of(st.none(), st.integers(-1, 3), *[st.integers(0, 2)] * 4),
    st.one_of(st.none(), *[st.sampled_from("abc")] * 3),
    st.one_of(
        st.none(), *[st.sampled_from([0.5, 1.0, 2.25, float("inf"), float("nan"), -0.0, 0.0])] * 3
    ),
)
random_rows: st.SearchStrategy[list[Row]] = st.integers(0, 12).flatmap(
    lambda size: st.lists(random_row, min_size=size, max_size=size)
)


# ---- variations on them ------------------------------------------------------------------------


def spread(case: RowProgram) -> RowProgram:
    """The same with variables beyond those that have a bit of their own."""
    numbers = (0, 61, 62, 69)
    variables = [RowVariable(f"V{number}") for number in range(70)]
    for old, new in enumerate(numbers):
        define = case.variables[old].define
        variables[new] = RowVariable(f"V{new}", define and _renumbered(define, numbers))
    changed: RowProgram = _renumbered(replace(case, variables=()), numbers)
    return replace(changed, variables=tuple(variables))


def _renumbered(value: Any, numbers: Sequence[int]) -> Any:
    if isinstance(value, frozenset):
        return frozenset(numbers[each] for each in value)
    if isinstance(value, tuple):
        return tuple(_renumbered(each, numbers) for each in value)
    if isinstance(value, RowPatternNode):
        parts = tuple(_renumbered(part, numbers) for part in value.parts)
        variable = numbers[value.variable] if value.kind == "variable" else -1
        return replace(value, variable=variable, parts=parts)
    if isinstance(value, RowProgram | Skip | Expression):
        return replace(
            value,
            **{f.name: _renumbered(getattr(value, f.name), numbers) for f in fields(value)},
        )  # fmt: skip
    return value


def _averages(case: RowProgram) -> bool:
    conditions = [each.define for each in case.variables if each.define is not None]
    return any(
        isinstance(leaf, Aggregate) and leaf.name == "avg"
        for each in conditions
        for leaf in leaves_of(each)
    )


# Numbers whose sums and products do not fit. Averages of them are not exact, and a measure that
# overflows ends the query.
overflowing: st.SearchStrategy[tuple[RowProgram, list[Row]]] = st.tuples(
    cases().filter(lambda drawn: not _averages(drawn[0])),
    st.lists(st.sampled_from([(1 << 63) - 1, -(1 << 63), 1 << 62, 1 << 32]), min_size=1),
).map(
    lambda drawn: (
        replace(drawn[0][0], measures=(Classifier(INT), MatchNumber(BIGINT))),
        [
            (k, t, drawn[1][x % len(drawn[1])] if x is not None and x > 1 else x, s, f)
            for k, t, x, s, f in drawn[0][1]
        ],
    )
)
