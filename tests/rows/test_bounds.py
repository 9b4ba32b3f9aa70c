"""Bounds of searches: steps stay proportional to the rows where a search cannot succeed, and no
match is lost. Steps are counted and not seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Call, Constant, Expression, Type
from spark_cep.udfs.row_program import (
    Aggregate,
    MatchNumber,
    RowPatternNode,
    RowProgram,
    RowRead,
    Skip,
)
from spark_cep.udfs.rows import arrays, bounds
from spark_cep.udfs.rows.instructions import flatten_pattern
from tests.random_cases import random_cases
from tests.rows.programs import (
    INT,
    TYPES,
    F,
    X,
    alternate,
    answer,
    answer_and_metrics,
    compare,
    concat,
    current,
    expected,
    first,
    last,
    number,
    plus,
    program,
    repeat,
    rows_of,
    star,
    v,
)

if TYPE_CHECKING:
    from tests.rows.reference import Row

A, B, C, D = range(4)
ZERO = number(0)


def folded(name: str, *variables: int, column: int | None = X) -> Aggregate:
    """Of x over the variables; over the whole match without any."""
    type_ = BIGINT if column is None else TYPES[column]
    chosen = frozenset(variables) if variables else None
    return Aggregate(name, column, DOUBLE if name == "avg" else type_, chosen)  # type: ignore[arg-type]


AB = concat(plus(v(A)), v(B))
ABC = concat(plus(v(A)), plus(v(B)), v(C))
RISING = [*range(4000)]
MIXED = [-1 if i % 2 else 5 for i in range(4000)]
FALLING = RISING[::-1]


def steps(case: RowProgram, values: list[int]) -> int:
    return int(answer_and_metrics(case, rows_of(*values))[1]["steps"])


@pytest.mark.parametrize(
    ("pattern", "defines", "values"),
    [
        (AB, {B: compare("<", first(None), ZERO)}, RISING),
        (AB, {B: compare("<", first([A]), ZERO)}, RISING),
        (AB, {B: compare("<", folded("sum", A), ZERO)}, RISING),
        (AB, {B: compare("<", folded("sum", A), ZERO)}, MIXED),
        (AB, {B: compare("<", folded("sum"), ZERO)}, MIXED),
        (AB, {B: compare(">", folded("count", A, column=None), number(4000))}, RISING),
        (AB, {B: compare(">", folded("avg", A), Call("cast", (number(4000),), DOUBLE))}, RISING),
        (AB, {B: compare("<", folded("min", A), ZERO)}, RISING),
        (AB, {B: compare("=", MatchNumber(BIGINT), folded("sum", A))}, [i + 10 for i in RISING]),
        (
            ABC,
            {B: compare(">", current(), last([A])), C: compare("<", current(), first([A]))},
            RISING,
        ),
        (
            ABC,
            {B: compare(">", current(), last([A])), C: compare("<", current(), first([A]))},
            FALLING,
        ),
        (ABC, {B: compare(">", current(), last([A])), C: compare("<", current(), ZERO)}, RISING),
    ],
)
def test_steps_grow_with_the_rows_where_no_search_can_succeed(
    pattern: RowPatternNode,
    defines: dict[int, Expression],
    values: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrays, "BOUND_AFTER", 1000)
    case = program(pattern, defines, rows="one")
    few, some, many = (steps(case, values[:size]) for size in (1000, 2000, 4000))
    assert some < 3 * few
    assert many < 3 * some
    assert many < 40 * 4000


def test_without_bounds_the_same_steps_grow_with_the_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrays, "BOUND_AFTER", 1 << 60)
    case = program(AB, {B: compare("<", folded("sum", A), ZERO)}, rows="one")
    assert steps(case, RISING[:2000]) > 3.5 * steps(case, RISING[:1000])


def test_a_search_ends_behind_the_last_row_that_it_needs() -> None:
    # C comes last in the middle. Rows behind it are gone through by no search.
    values = [*range(10, 1010), 9, *range(1010, 3010)]
    defines = {B: compare(">", current(), last([A])), C: compare("<", current(), first([A]))}
    case = program(ABC, defines, rows="one", skip=Skip("next row"))
    found, metrics = answer_and_metrics(case, rows_of(*values))
    assert len(found) == 999
    assert metrics["steps"] < 4 * 1000 * 1000


def test_rows_that_may_still_come_are_needed_and_those_of_an_option_are_not() -> None:
    pattern = concat(plus(v(A)), repeat(v(B), 0, 1), alternate(concat(v(C), v(B)), v(D)))
    code = flatten_pattern(pattern)
    needed = bounds.variables_ahead(code, all_ways=True)
    possible = bounds.variables_ahead(code, all_ways=False)
    assert needed[code.entry] == 1 << A
    assert possible[code.entry] == 0b1111


# ---- random ones -------------------------------------------------------------------------------


@st.composite
def bounded_cases(draw: st.DrawFn) -> tuple[RowProgram, list[Row]]:
    """Conditions whose ranges say something, often FALSE, on short patterns."""
    sets = st.sampled_from([None, frozenset([A]), frozenset([A, B]), frozenset([B])])

    def value(column: int) -> st.SearchStrategy[Expression]:
        chosen = st.sampled_from(["first", "last", "current"])
        reads = st.builds(
            lambda anchor, which, offset, shift: RowRead(
                anchor, column, TYPES[column], None if anchor == "current" else which,
                0 if anchor == "current" else offset, shift,
            ),
            chosen, sets, st.sampled_from([0, 0, 1]), st.sampled_from([0, 0, 0, 1, -1]),
        )  # fmt: skip
        folds = st.builds(
            lambda name, which, distinct: Aggregate(name, column, TYPES[column], which, distinct),
            st.sampled_from(["sum", "sum", "min", "max"]), sets,
            st.sampled_from([False, False, True]),
        )  # fmt: skip
        return st.one_of(reads, folds)

    def condition() -> Expression:
        name = draw(st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]))
        column = draw(st.sampled_from([X, X, X, F]))
        left = draw(value(column))
        if column == X:
            counts = sets.map(lambda each: Aggregate("count", X, BIGINT, each))
            constant = st.integers(-4, 9).map(number)
            numbered = st.just(MatchNumber(BIGINT))
            right = draw(st.one_of(constant, constant, value(X), counts, numbered))
            if draw(st.booleans()):
                operator = draw(st.sampled_from(["+", "-", "*"]))
                left = Call(operator, (left, draw(value(X))), BIGINT)
        else:
            right = draw(value(F))
        found = compare(name, left, right)
        return Call("not", (found,), BOOL) if draw(st.integers(0, 4)) == 0 else found

    def conjuncts() -> Expression:
        kind = draw(st.sampled_from(["and", "or", "", ""]))
        return Call(kind, (condition(), condition()), BOOL) if kind else condition()

    pattern = draw(
        st.sampled_from([
            AB, ABC, concat(plus(v(A)), plus(v(B))), concat(v(A), star(v(B)), v(C)),
            concat(plus(alternate(v(A), v(B))), v(C)), concat(star(v(B)), plus(v(A)), v(B)),
            concat(plus(concat(v(A), v(B))), v(C)),
        ])
    )  # fmt: skip
    defines = {each: conjuncts() for each in draw(st.sets(st.sampled_from([A, B, C]), min_size=1))}
    case = program(pattern, defines, rows="all", skip=Skip(draw(st.sampled_from(SKIPS))))
    numbers = st.one_of(st.none(), *[st.integers(-1, 6)] * 6)
    floats = st.sampled_from([None, 0.0, -0.0, 0.1, 0.2, 1e300, 2.5, float("nan")])
    values = draw(st.lists(st.tuples(numbers, floats), max_size=14))
    if draw(st.booleans()):
        values.sort(key=lambda each: (each[0] is None, each[0]), reverse=draw(st.booleans()))
    rows: list[Row] = [(1 + i // 9, i, x, None, f) for i, (x, f) in enumerate(values)]
    return case, rows


SKIPS = ("past last row", "next row")


@pytest.mark.parametrize("stretch", [3, 1 << 13])
def test_no_match_is_lost(stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BOUND_AFTER", 0)
    monkeypatch.setattr(bounds, "STRETCH", stretch)

    @random_cases(400 if stretch > 3 else 100)
    @given(bounded_cases())
    def try_one(drawn: tuple[RowProgram, list[Row]]) -> None:
        case, rows = drawn
        assert repr(answer(case, rows)) == repr(expected(case, rows))
        one = replace(case, rows="one")
        assert repr(answer(one, rows)) == repr(expected(one, rows))

    try_one()


# ---- against searches without bounds -----------------------------------------------------------


DECIMALS = (
    Type("decimal", precision=10, scale=2),
    Type("decimal", precision=18, scale=0),
    Type("decimal", precision=38, scale=18),
    Type("decimal", precision=38, scale=6),
)
SETS = st.sampled_from([None, None, frozenset([A]), frozenset([A, B]), frozenset([B])])


@st.composite
def column_reads(draw: st.DrawFn, column: int) -> Expression:
    anchor = draw(st.sampled_from(["first", "first", "last", "current", "current"]))
    chosen = None if anchor == "current" else draw(SETS)
    offset = 0 if anchor == "current" else draw(st.sampled_from([0, 0, 0, 1]))
    shift = draw(st.sampled_from([0, 0, 0, 1, -1]))
    return RowRead(anchor, column, TYPES[column], chosen, offset, shift)  # type: ignore[arg-type]


@st.composite
def folds(
    draw: st.DrawFn, names: tuple[str, ...], type_: Type, columns: tuple[int, ...]
) -> Expression:
    name = draw(st.sampled_from(names))
    return Aggregate(
        name,
        draw(st.sampled_from(columns)),
        type_,
        draw(SETS),
        draw(st.booleans()),  # type: ignore[arg-type]
    )


@st.composite
def extremes_by(draw: st.DrawFn, column: int) -> Expression:
    name = draw(st.sampled_from(["max_by", "min_by"]))
    by = draw(st.sampled_from([X, F]))
    return Aggregate(name, column, TYPES[column], draw(SETS), by=(by, TYPES[by]))  # type: ignore[arg-type]


def integers(depth: int) -> st.SearchStrategy[Expression]:
    leaves = st.one_of(
        st.integers(-3, 7).map(number), st.integers(-3, 7).map(number),
        column_reads(X), column_reads(X), column_reads(X), extremes_by(X),
        folds(("sum", "min", "max"), BIGINT, (X,)), folds(("count",), BIGINT, (X, F)),
        st.just(MatchNumber(BIGINT)),
    )  # fmt: skip
    if not depth:
        return leaves
    part = integers(depth - 1)
    binary = st.builds(
        lambda name, a, b: Call(name, (a, b), BIGINT),
        st.sampled_from(["+", "-", "*", "%", "div", "least", "greatest", "coalesce"]), part, part,
    )  # fmt: skip
    unary = st.builds(
        lambda name, a: Call(name, (a,), BIGINT), st.sampled_from(["neg", "abs"]), part
    )
    chosen = st.builds(
        lambda condition, a, b: Call("if", (condition, a, b), BIGINT), conditions(0), part, part
    )
    floored = floats(0).map(lambda each: Call("floor", (each,), BIGINT))
    return st.one_of(leaves, binary, binary, unary, chosen, floored)


def floats(depth: int) -> st.SearchStrategy[Expression]:
    leaves = st.one_of(
        st.sampled_from([0.0, 0.5, -2.0, float("nan")]).map(lambda each: Constant(each, DOUBLE)),
        column_reads(F), column_reads(F), extremes_by(F),
        folds(("sum", "min", "max"), DOUBLE, (F,)), folds(("avg",), DOUBLE, (X, F)),
        folds(("stddev_samp", "var_pop", "stddev_pop", "var_samp"), DOUBLE, (X, F)),
    )  # fmt: skip
    if not depth:
        return leaves
    part = st.one_of(floats(depth - 1), integers(0).map(lambda x: Call("cast", (x,), DOUBLE)))
    binary = st.builds(
        lambda name, a, b: Call(name, (a, b), DOUBLE),
        st.sampled_from(["+", "-", "*", "/", "/", "%"]), part, part,
    )  # fmt: skip
    rounded = st.builds(
        lambda name, a, digits: Call(name, (a, Constant(digits, INT)), DOUBLE),
        st.sampled_from(["round", "bround"]), part, st.sampled_from([0, 1, 2, -1]),
    )  # fmt: skip
    return st.one_of(leaves, binary, binary, rounded)


def decimals(type_: Type, depth: int) -> st.SearchStrategy[Expression]:
    leaves = integers(0).map(lambda each: Call("cast", (each,), type_))
    if not depth:
        return leaves
    part = st.sampled_from(DECIMALS).flatmap(lambda other: decimals(other, depth - 1))
    names = ("add_decimals", "subtract_decimals", "multiply_decimals", "divide_decimals",
             "mod_decimals")  # fmt: skip
    computed = st.builds(
        lambda name, a, b: Call(name, (a, b), type_), st.sampled_from(names), part, part
    )
    return st.one_of(leaves, computed)


def conditions(depth: int) -> st.SearchStrategy[Expression]:
    """Conditions."""
    sides = [
        (integers(depth), integers(0)), (integers(depth), integers(0)),
        (floats(depth), floats(depth)),
        *((decimals(each, depth), decimals(each, 0)) for each in DECIMALS),
    ]  # fmt: skip
    compared = st.one_of([
        st.builds(
            compare, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), left, right
        )
        for left, right in sides
    ])  # fmt: skip
    if not depth:
        return compared
    part = conditions(depth - 1)
    return st.one_of(
        compared, compared, compared,
        st.builds(lambda a, b: Call("and", (a, b), BOOL), part, part),
        st.builds(lambda a, b: Call("or", (a, b), BOOL), part, part),
        part.map(lambda each: Call("not", (each,), BOOL)),
        st.builds(lambda a, b, c: Call("if", (a, b, c), BOOL), part, part, part),
        integers(0).map(lambda each: Call("is_null", (each,), BOOL)),
    )  # fmt: skip


PATTERNS = (
    AB, ABC, concat(plus(v(A)), plus(v(B))), concat(v(A), star(v(B)), v(C)),
    concat(plus(alternate(v(A), v(B))), v(C)), concat(star(v(B)), plus(v(A)), v(B)),
    concat(plus(concat(v(A), v(B))), v(C)), concat(plus(v(A)), repeat(v(B), 1, 2), v(C)),
)  # fmt: skip


@st.composite
def ranged_cases(draw: st.DrawFn) -> tuple[RowProgram, list[Row]]:
    """Every kind of expression that is given a range. A condition on the row alone decides for
    some rows which variables they can be."""
    defines = {
        each: draw(conditions(1)) for each in draw(st.sets(st.sampled_from([B, C]), min_size=1))
    }
    if draw(st.booleans()):
        defines[A] = compare("<", current(), number(draw(st.integers(0, 5))))
        own = compare(">", current(), number(draw(st.integers(0, 5))))
        defines[B] = Call("and", (own, defines[B]), BOOL) if B in defines else own
    case = program(
        draw(st.sampled_from(PATTERNS)), defines, rows="all",
        skip=Skip(draw(st.sampled_from(SKIPS))), ansi=draw(st.booleans()),
    )  # fmt: skip
    large = st.sampled_from([1 << 61, 1 << 62, -(1 << 62), (1 << 53) + 1, -(1 << 63)])
    numbers = st.one_of(st.none(), *[st.integers(-2, 7)] * 8, large)
    kinds = [None, 0.0, -0.0, 0.1, 2.5, 1e300, -1e300, float("nan"), float("inf"), -float("inf")]
    few = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    values = draw(st.lists(st.tuples(numbers, st.sampled_from(few)), min_size=2, max_size=14))
    if draw(st.booleans()):
        values.sort(key=lambda each: (each[0] is None, each[0]), reverse=draw(st.booleans()))
    rows: list[Row] = [(1 + i // 10, i, x, None, f) for i, (x, f) in enumerate(values)]
    return case, rows


@pytest.mark.parametrize("stretch", [3, 1 << 13])
def test_bounds_change_no_answer(stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STRETCH", stretch)

    @random_cases(300 if stretch > 3 else 100)
    @given(ranged_cases())
    def try_one(drawn: tuple[RowProgram, list[Row]]) -> None:
        case, rows = drawn
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrays, "BOUND_AFTER", 1 << 60)
            unbounded = answer(case, rows)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrays, "BOUND_AFTER", 0)
            assert repr(answer(case, rows)) == repr(unbounded)

    try_one()
