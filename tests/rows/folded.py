"""Random conditions over the aggregates that are folded along the path: of columns, which the
kernel keeps, and of expressions with CLASSIFIER, FILTER and neighbours, which Python does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Call, Constant, Expression, Type
from spark_cep.udfs.row_program import Aggregate, Classifier, MatchNumber
from tests.rows.programs import (
    INT,
    STRING,
    TYPES,
    VARIABLES,
    F,
    S,
    X,
    alternate,
    cases,
    compare,
    concat,
    current,
    defines,
    exclude,
    number,
    permute,
    plus,
    random_row,
    reads,
    repeat,
    sets,
    spreads,
    star,
    v,
)

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import RowProgram
    from tests.rows.reference import Row

BITS = ("bit_and", "bit_or", "bit_xor")
PAIRS = ("corr", "covar_pop", "covar_samp", "regr_sxy")
CHOSEN = ("max_by", "min_by", "first", "last")
LISTS = ("collect_list", "collect_list with nulls")


def _null(type_: Type) -> Constant:
    return Constant(None, type_)


def _double(value: float) -> Constant:
    return Constant(value, DOUBLE)


def _folded(
    draw: st.DrawFn, name: Any, arguments: Sequence[Expression], type_: Type, *, distinct: bool
) -> Aggregate:
    argument = arguments[0]
    if len(arguments) > 1:
        argument = Call("struct", tuple(arguments), Type("other", sql="struct"))
    once = distinct and draw(st.booleans())
    return Aggregate(name, None, type_, draw(sets), once, argument=argument)


# ---- what is aggregated of a row ---------------------------------------------------------------


@st.composite
def integers_of_row(draw: st.DrawFn) -> Expression:
    plain = st.one_of(
        st.just(current(X)),
        st.sampled_from([-1, 1]).map(lambda shift: current(X, shift)),
        st.sampled_from([0, -1]).map(lambda shift: Classifier(BIGINT, shift=shift)),
        st.just(MatchNumber(BIGINT)),
    )
    found = draw(st.one_of(st.just(current(X)), plain))
    if draw(st.integers(0, 3)) == 0:
        found = Call("+", (found, draw(plain)), BIGINT)
    return draw(filtered(found))


@st.composite
def filtered(draw: st.DrawFn, value: Expression) -> Expression:
    """FILTER (WHERE ...): NULL for the others."""
    if draw(st.integers(0, 2)):
        return value
    tested = draw(st.sampled_from([Classifier(BIGINT), current(X), Classifier(BIGINT, shift=-1)]))
    name = draw(st.sampled_from(["<>", "=", ">"]))
    condition = compare(name, tested, number(draw(st.integers(0, 2))))
    return Call("if", (condition, value, _null(value.type)), value.type)


def of_row(column: int) -> st.SearchStrategy[Expression]:
    return integers_of_row() if column == X else filtered(current(column))


# ---- the aggregates ----------------------------------------------------------------------------


@st.composite
def bits(draw: st.DrawFn) -> Aggregate:
    name = draw(st.sampled_from(BITS))
    if draw(st.booleans()):
        return Aggregate(name, X, BIGINT, draw(sets), draw(st.booleans()))  # type: ignore[arg-type]
    return _folded(draw, name, [draw(integers_of_row())], BIGINT, distinct=True)


@st.composite
def chosen(draw: st.DrawFn, column: int) -> Aggregate:
    """max_by and min_by, also by text; FIRST and LAST with IGNORE NULLS or FILTER."""
    name = draw(st.sampled_from(CHOSEN))
    by = draw(st.sampled_from([X, S, F, column]))
    if draw(st.booleans()):
        return Aggregate(
            name, column, TYPES[column], draw(sets), by=(by, TYPES[by])  # type: ignore[arg-type]
        )  # fmt: skip
    return _folded(
        draw, name, [draw(of_row(column)), draw(of_row(by))], TYPES[column], distinct=False
    )


@st.composite
def statistics(draw: st.DrawFn) -> Aggregate:
    kind = draw(st.sampled_from(["percentile", "percentile", "pairs", "kurtosis"]))
    column = draw(st.sampled_from([X, F]))
    if kind == "percentile":
        options = (
            _double(draw(st.sampled_from([0.5, 0.5, 0.0, 0.25, 1.0]))),
            Constant(draw(st.booleans()), BOOL),
            Constant(draw(st.booleans()), BOOL),
        )
        return _folded(draw, kind, [draw(of_row(column)), *options], DOUBLE, distinct=True)
    if kind == "kurtosis":
        return _folded(draw, kind, [draw(filtered(current(F)))], DOUBLE, distinct=True)
    name = draw(st.sampled_from(PAIRS))
    pair = [draw(filtered(current(F))), current(F, draw(st.sampled_from([0, -1])))]
    return _folded(draw, name, pair, DOUBLE, distinct=True)


@st.composite
def joined(draw: st.DrawFn) -> Aggregate:
    separator = Constant(draw(st.sampled_from([None, "", ","])), STRING)
    keys = draw(st.lists(st.sampled_from([current(X), current(F), current(S)]), max_size=2))
    directions = " ".join(draw(st.sampled_from(["a", "d", "an", "dn"])) for _ in keys)
    arguments = [draw(of_row(S)), separator, Constant(directions, STRING), *keys]
    return _folded(draw, "listagg", arguments, STRING, distinct=not keys)


@st.composite
def modes(draw: st.DrawFn, column: int) -> Aggregate:
    arguments = [draw(of_row(column)), Constant(draw(st.booleans()), BOOL)]
    return _folded(draw, "mode", arguments, TYPES[column], distinct=True)


@st.composite
def lists(draw: st.DrawFn, column: int) -> Aggregate:
    name = draw(st.sampled_from(LISTS))
    arguments = [draw(of_row(column))]
    if name != "collect_list":
        arguments.append(draw(filtered(Constant(True, BOOL))))
    type_ = Type("other", sql="array<string>" if column == S else "array<bigint>")
    return _folded(draw, name, arguments, type_, distinct=True)


@st.composite
def _attempt(draw: st.DrawFn, argument: Expression) -> Aggregate:
    return _folded(draw, "try_sum", [argument], BIGINT, distinct=True)


attempts = integers_of_row().flatmap(_attempt)
# Those of expressions.
folds: st.SearchStrategy[Aggregate] = st.one_of(
    bits(), chosen(X), chosen(S), chosen(F), statistics(), joined(), modes(X), modes(S), modes(F),
    lists(X), lists(S), attempts, spreads(),
).filter(lambda each: each.by is None)  # fmt: skip


# ---- conditions --------------------------------------------------------------------------------


@st.composite
def comparisons(draw: st.DrawFn) -> Expression:
    name = draw(st.sampled_from(["=", "<>", "<>", "<", "<=", "<=", ">", ">=", ">="]))
    kind = draw(st.sampled_from(["int", "int", "list", "list", "float", "text", "contains"]))
    if kind == "contains":
        column = draw(st.sampled_from([X, S]))
        found = Call(
            "array_contains", (draw(lists(column)), draw(reads(column, final=False))), BOOL
        )
        return Call("not", (found,), BOOL) if draw(st.booleans()) else found
    if kind == "list":
        if draw(st.booleans()):
            size = Call("size", (draw(lists(draw(st.sampled_from([X, S])))),), INT)
            return compare(name, size, number(draw(st.integers(0, 4))))
        item = Call("get", (draw(lists(X)), Constant(draw(st.integers(0, 2)), INT)), BIGINT)
        return compare(name, item, draw(reads(X, final=False)))
    if kind == "float":
        floats = st.one_of(statistics(), chosen(F), modes(F))
        other = st.one_of(reads(F, final=False), statistics())
        return compare(name, draw(floats), draw(other))
    if kind == "text":
        texts = st.one_of(joined(), chosen(S), modes(S))
        other = st.one_of(reads(S, final=False), joined(), chosen(S))
        return compare(name, draw(texts), draw(other))
    integers = st.one_of(bits(), bits(), chosen(X), modes(X), attempts)
    other = st.one_of(reads(X, final=False), st.integers(-1, 3).map(number), bits())
    return compare(name, draw(integers), draw(other))


@st.composite
def conditions(draw: st.DrawFn) -> Expression:
    found = draw(comparisons())
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return Call("is_null", (found,), BOOL)
    if kind == 1:
        return Call("and", (draw(defines(1)), found), BOOL)
    if kind == 2:
        return Call("or", (found, draw(comparisons())), BOOL)
    return found


# Patterns with many ways through the same rows: a search often goes back and takes a row for
# another variable, or none.
A, B, C, D = (v(number) for number in range(4))
BACKTRACKING = (
    concat(star(alternate(A, B)), C),
    concat(plus(alternate(A, B, C)), D),
    concat(star(A), star(B), C),
    concat(plus(concat(A, repeat(B, 0, 1))), C),
    plus(concat(plus(A), B)),
    concat(repeat(alternate(A, B), 1, None, greedy=False), C, D),
    concat(permute(plus(A), B, repeat(C, 0, 2)), D),
    concat(star(alternate(exclude(A), B)), repeat(C, 1, 3, greedy=False), D),
)


@st.composite
def backtracking_cases(draw: st.DrawFn) -> tuple[RowProgram, list[Row]]:
    case, _ = draw(cases())
    which = draw(st.lists(st.integers(0, VARIABLES - 1), min_size=2, max_size=3, unique=True))
    chosen = {each: draw(conditions()) for each in which}
    variables = tuple(
        replace(each, define=chosen.get(number)) for number, each in enumerate(case.variables)
    )
    rows = draw(st.lists(random_row, min_size=5, max_size=8))
    pattern = draw(st.sampled_from(BACKTRACKING))
    rows = [(1, time, *row[2:]) for time, row in enumerate(rows)]
    return replace(case, pattern=pattern, variables=variables), rows


folded_cases = st.one_of(cases(conditions()), backtracking_cases(), backtracking_cases())
