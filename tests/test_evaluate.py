"""Expressions over vectors: NULL, NaN, errors that count and errors that do not, shapes.

tests/spark/test_evaluate_against_spark.py compares every operation with Spark; here stands what
Spark cannot show: which errors are counted, how shapes broadcast, and user functions.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import (
    BIGINT,
    BOOL,
    DOUBLE,
    Call,
    Cell,
    CellReading,
    Constant,
    Expression,
    Type,
    UserCall,
)
from spark_cep.udfs.program import Condition, Plan, Program, Tree
from spark_cep.udfs.values.evaluate import (
    ErrorTally,
    condition_holds,
    evaluate_expression,
    fold_list,
)
from spark_cep.udfs.values.vectors import EventColumns, Vector, dtype_of

NAN = float("nan")
STRING, TINYINT, LIST = Type("string"), Type("int", 8), Type("other")
X, Y = Cell(0, 0, BIGINT), Cell(1, 1, BIGINT)
TRUE, FALSE, NULL = Constant(True, BOOL), Constant(False, BOOL), Constant(None, BOOL)


def number(value: Any, type_: Type = BIGINT) -> Constant:
    return Constant(value, type_)


def boolean(name: str, *arguments: Expression) -> Call:
    return Call(name, arguments, BOOL)


def bigint(name: str, *arguments: Expression) -> Call:
    return Call(name, arguments, BIGINT)


def value_of(expression: Expression, tally: ErrorTally | None = None, **data: Any) -> list[Any]:
    """The expression over columns x, y, ... given as lists (or Arrow arrays)."""
    table = pa.table(data or {"x": [0]})
    columns = _columns(table, expression)
    rows = np.arange(table.num_rows)

    def read(cell: Cell) -> Vector:
        assert cell.column is not None
        return columns.gather(cell.column, cell.type, rows)

    return listed(evaluate_expression(expression, read, columns, tally or ErrorTally()))


def _columns(table: pa.Table, expression: Expression) -> EventColumns:
    program = Program(
        columns=tuple(table.column_names), keys=(), orders=(), mask=0, variables=(),
        conditions=(Condition(expression, "", frozenset()),), tree=Tree("event"), branches=(),
        plan=Plan("eager"),
    )  # fmt: skip
    return EventColumns(program, table)


def listed(vector: Vector) -> list[Any]:
    values = vector.values.ravel().tolist()
    valid = [True] * len(values) if vector.valid is None else vector.valid.ravel().tolist()
    return [value if there else None for value, there in zip(values, valid, strict=True)]


# ---- logic ------------------------------------------------------------------------------------


def test_and_or_follow_three_valued_logic() -> None:
    three = {True: TRUE, False: FALSE, None: NULL}
    for left, a in three.items():
        for right, b in three.items():
            conjunction = (
                False if False in (left, right) else None if None in (left, right) else True
            )
            disjunction = (
                True if True in (left, right) else None if None in (left, right) else False
            )
            assert value_of(boolean("and", a, b)) == [conjunction]
            assert value_of(boolean("or", a, b)) == [disjunction]


def test_an_untyped_null_may_stand_anywhere() -> None:
    nothing = Constant(None, Type("null"))
    assert value_of(boolean("and", nothing, FALSE)) == [False]
    assert value_of(boolean("not", nothing)) == [None]
    assert value_of(boolean("=", X, nothing), x=[1]) == [None]
    assert value_of(bigint("coalesce", nothing, X), x=[1]) == [1]
    assert value_of(bigint("greatest", nothing, X), x=[1]) == [1]
    assert value_of(bigint("neg", nothing)) == [None]
    assert value_of(Call("cast", (nothing,), DOUBLE)) == [None]


def test_holds_is_neither_false_nor_null() -> None:
    columns = _columns(pa.table({"x": [1]}), TRUE)
    vector = Vector(np.array([True, True, False]), np.array([True, False, True]))
    found = condition_holds(Cell(0, 0, BOOL), lambda _: vector, columns, ErrorTally())
    assert found.tolist() == [True, False, False]


def test_in_is_null_when_only_a_null_could_be_equal() -> None:
    items = (number(1), number(None), Y)
    assert value_of(boolean("in", X, *items), x=[1, 2, 3, None], y=[9, 2, 9, 9]) == [
        True, True, None, None,
    ]  # fmt: skip


def test_nan_equals_nan_and_is_the_largest() -> None:
    x, y = Cell(0, 0, DOUBLE), Cell(1, 1, DOUBLE)
    data: dict[str, Any] = {"x": [NAN, NAN, math.inf, -0.0], "y": [NAN, math.inf, NAN, 0.0]}
    assert value_of(boolean("=", x, y), **data) == [True, False, False, True]
    assert value_of(boolean("<", x, y), **data) == [False, False, True, False]
    assert value_of(boolean(">=", x, y), **data) == [True, True, False, True]


# ---- errors -----------------------------------------------------------------------------------


def test_an_overflow_is_null_and_counted_once_an_element() -> None:
    tally = ErrorTally()
    tiny = Call("+", (Cell(0, 0, TINYINT), Cell(1, 1, TINYINT)), TINYINT)
    columns = {"x": pa.array([100, 127, None], pa.int8()), "y": pa.array([27, 1, 127], pa.int8())}
    assert value_of(tiny, tally, **columns) == [127, None, None]
    assert tally.errors == 1


def test_a_session_without_ansi_wraps_and_counts_nothing() -> None:
    tally = ErrorTally(ansi=False)
    most = (1 << 63) - 1
    assert value_of(bigint("+", X, Y), tally, x=[most], y=[1]) == [-(1 << 63)]
    assert value_of(Call("/", (X, Y), DOUBLE), tally, x=[1], y=[0]) == [None]
    assert tally.errors == 0


def test_intervals_and_times_never_wrap() -> None:
    interval = Type("interval")
    most = number((1 << 63) - 1, interval)
    tally = ErrorTally(ansi=False)
    assert value_of(Call("+", (most, number(1, interval)), interval), tally) == [None]
    assert tally.errors == 1


def test_errors_under_null_do_not_count() -> None:
    tally = ErrorTally()
    assert value_of(bigint("%", X, Y), tally, x=[None, 5], y=[0, 3]) == [None, 2]
    assert tally.errors == 0


@pytest.mark.parametrize(
    ("guard", "counted"),
    [
        (boolean("and", boolean("<>", Y, number(0)), boolean(">", bigint("%", X, Y), X)), 0),
        (boolean("or", boolean("=", Y, number(0)), boolean(">", bigint("%", X, Y), X)), 0),
        (boolean("and", boolean(">", bigint("%", X, Y), X), boolean("<>", Y, number(0))), 1),
        (bigint("if", boolean("=", Y, number(0)), X, bigint("%", X, Y)), 0),
        (bigint("if", boolean("=", Y, number(0)), bigint("%", X, Y), X), 1),
        (bigint("coalesce", X, bigint("%", X, Y)), 0),
        (bigint("coalesce", bigint("nullif", X, X), bigint("%", X, Y)), 1),
        (boolean("in", X, X, bigint("%", X, Y)), 0),
        (boolean("in", bigint("nullif", X, X), bigint("%", X, Y)), 0),
        (boolean("in", X, Y, bigint("%", X, Y)), 1),
    ],
)
def test_errors_count_only_where_spark_would_evaluate(guard: Call, counted: int) -> None:
    tally = ErrorTally()
    value_of(guard, tally, x=[5, 5], y=[0, 2])
    assert tally.errors == counted


def test_nested_branches_that_are_not_taken_count_nothing() -> None:
    fails = bigint("%", X, number(0))
    inner = bigint("if", boolean("=", X, number(1)), fails, number(7))
    outer = bigint("if", boolean("=", Y, number(1)), inner, number(8))
    tally = ErrorTally()
    assert value_of(outer, tally, x=[1, 1, 2], y=[1, 2, 1]) == [None, 8, 7]
    assert tally.errors == 1


def test_what_spark_computes_differently_is_refused() -> None:
    wide = Type("decimal", precision=38)
    for call in (
        Call("neg", (number(1, wide),), wide),
        Call("/", (number(1, wide), number(2, wide)), wide),
        Call("cast", (number("1", STRING),), BIGINT),
        Call("+", (number(1, Type("date")), number(1, Type("interval"))), Type("timestamp_ntz")),
    ):
        with pytest.raises(CepError, match=r"cannot compute|does not cast"):
            value_of(call)


# ---- shapes -----------------------------------------------------------------------------------


def test_values_and_masks_have_the_shape_of_all_operands() -> None:
    columns = _columns(pa.table({"x": [1]}), X)
    vectors = {
        X: Vector(np.array([[1], [2]]), np.array([[True], [False]])),
        Y: Vector(np.array([[1, 2, 3]])),
    }
    vector = evaluate_expression(bigint("+", X, Y), vectors.__getitem__, columns, ErrorTally())
    assert vector.valid is not None
    assert vector.values.shape == vector.valid.shape == (2, 3)
    test = boolean("is_null", bigint("+", X, Y))
    assert condition_holds(test, vectors.__getitem__, columns, ErrorTally()).tolist() == [
        [False] * 3,
        [True] * 3,
    ]


def test_empty_vectors_are_fine() -> None:
    empty = {"x": pa.array([], pa.int64()), "y": pa.array([], pa.int64())}
    for name in ("+", "-", "*", "%", "div", "least", "coalesce"):
        assert value_of(bigint(name, X, Y), None, **empty) == []


@given(
    st.lists(st.tuples(st.integers(-128, 127), st.integers(-128, 127)), min_size=1),
    st.sampled_from(["+", "-", "*", "%", "div"]),
)
def test_narrow_integers_as_python_computes_them(pairs: list[tuple[int, int]], name: str) -> None:
    def truncated(a: int, b: int) -> int:
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    exact: dict[str, Callable[[int, int], int]] = {
        "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
        "%": lambda a, b: a - b * truncated(a, b), "div": truncated,
    }  # fmt: skip
    type_ = BIGINT if name == "div" else TINYINT
    expected = [None if (name in ("%", "div") and b == 0) else exact[name](a, b) for a, b in pairs]
    limit = 1 << type_.bits - 1
    expected = [v if v is not None and -limit <= v < limit else None for v in expected]
    tally = ErrorTally()
    x = pa.array([a for a, _ in pairs], pa.int8())
    y = pa.array([b for _, b in pairs], pa.int8())
    call = Call(name, (Cell(0, 0, TINYINT), Cell(1, 1, TINYINT)), type_)
    assert value_of(call, tally, x=x, y=y) == expected
    assert tally.errors == expected.count(None)


_EDGES = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([-(1 << 63), -1, 0, 1])


@given(st.lists(st.tuples(_EDGES, _EDGES), min_size=1), st.sampled_from(["+", "-", "*"]))
def test_bigint_overflow_is_found_exactly(pairs: list[tuple[int, int]], name: str) -> None:
    exact = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[name]
    results = [exact(a, b) for a, b in pairs]
    fits = [-(1 << 63) <= result < 1 << 63 for result in results]
    x, y = (list(side) for side in zip(*pairs, strict=True))
    tally = ErrorTally()
    expected = [result if fit else None for result, fit in zip(results, fits, strict=True)]
    assert value_of(bigint(name, X, Y), tally, x=x, y=y) == expected
    assert tally.errors == fits.count(False)


# ---- user functions ---------------------------------------------------------------------------


def user(function: Callable[..., Any], type_: Type, *arguments: Expression) -> UserCall:
    return UserCall("f", function, arguments, type_)


def test_a_user_function_gets_series_and_gives_a_vector() -> None:
    call = user(lambda x, y: x * 2 + y, BIGINT, X, Y)
    assert value_of(call, x=[1, 2], y=[10, 20]) == [12, 24]


def test_a_user_function_sees_pairs_as_one_flat_series() -> None:
    lengths: list[int] = []

    def add(x: Any, y: Any) -> Any:
        lengths.append(len(x))
        return x + y

    columns = _columns(pa.table({"x": [1]}), X)
    vectors = {X: Vector(np.array([[1], [2]])), Y: Vector(np.array([[10, 20, 30]]))}
    vector = evaluate_expression(
        user(add, BIGINT, X, Y), vectors.__getitem__, columns, ErrorTally()
    )
    assert vector.values.tolist() == [[11, 21, 31], [12, 22, 32]]
    assert lengths == [6]


def test_lists_reach_a_user_function_as_arrays() -> None:
    def correlation(x: Any, y: Any) -> Any:
        return [float(np.corrcoef(a, b)[0, 1]) for a, b in zip(x, y, strict=True)]

    call = user(correlation, DOUBLE, Cell(0, 0, LIST), Cell(1, 1, LIST))
    data: dict[str, Any] = {"x": [[1.0, 2.0, 3.0]], "y": [[2.0, 4.0, 6.0]]}
    assert value_of(call, **data) == [pytest.approx(1.0)]


def test_series_look_as_in_a_pandas_udf() -> None:
    seen: dict[str, Any] = {}

    def look(*series: Any) -> Any:
        seen.update(zip(data, series, strict=True))
        return np.zeros(len(series[0]))

    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 6)
    data: dict[str, Any] = {
        "string": ["a", None], "big": pa.array([(1 << 53) + 1, None]), "small": [1, None],
        "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(20, 2)),
        "narrow": pa.array([Decimal("-1.5"), None], pa.decimal128(3, 1)),
        "ntz": pa.array([moment, None], pa.timestamp("us")),
        "date": [moment.date(), None], "interval": pa.array([-1, None], pa.duration("us")),
        "binary": [b"x", None], "bool": [True, None], "list": [[1], None],
    }  # fmt: skip
    types = [
        STRING, BIGINT, BIGINT, Type("decimal", precision=20, scale=2),
        Type("decimal", precision=3, scale=1), Type("timestamp_ntz"), Type("date"),
        Type("interval"), Type("binary"), BOOL, LIST,
    ]  # fmt: skip
    arguments = [Cell(0, index, type_) for index, type_ in enumerate(types)]
    value_of(user(look, DOUBLE, *arguments), **data)
    first = {name: series.iloc[0] for name, series in seen.items()}
    assert first["string"] == "a"
    assert first["big"] == (1 << 53) + 1
    assert seen["small"].dtype == np.float64
    assert (first["decimal"], first["narrow"]) == (Decimal("1.50"), Decimal("-1.5"))
    assert first["ntz"] == pd.Timestamp(moment)
    assert first["date"] == moment.date()
    assert first["interval"] == pd.Timedelta(microseconds=-1)
    assert (first["binary"], first["bool"], first["list"].tolist()) == (b"x", True, [1])
    assert all(pd.isna(series.iloc[1]) for series in seen.values())


def test_nan_and_none_of_a_user_function_are_null() -> None:
    assert value_of(user(lambda x: x / x, DOUBLE, X), x=[0, 1]) == [None, 1.0]
    assert value_of(user(lambda x: [None, 5], BIGINT, X), x=[0, 1]) == [None, 5]


def test_words_of_a_user_function_compare_with_columns_and_constants() -> None:
    upper = user(lambda s: s.str.upper(), STRING, Cell(0, 0, STRING))
    other = Cell(1, 1, STRING)
    data: dict[str, Any] = {"x": ["a", "b", None], "y": ["A", "a", "A"]}
    assert value_of(boolean("=", upper, other), **data) == [True, False, None]
    assert value_of(boolean("<", upper, other), **data) == [False, True, None]
    assert value_of(boolean("in", upper, number("B", STRING)), **data) == [False, True, None]
    chosen = Call("coalesce", (upper, other), STRING)
    assert value_of(chosen, **data) == ["A", "B", "A"]


def test_words_of_a_user_function_beside_nothing_but_null() -> None:
    upper = user(lambda s: s.fillna("none"), STRING, Cell(0, 0, STRING))
    nothing = Constant(None, Type("null"))
    data: dict[str, Any] = {"x": pa.array([None, None], pa.string())}
    assert value_of(boolean("=", upper, nothing), **data) == [None, None]
    assert value_of(Call("coalesce", (Cell(0, 0, STRING), upper), STRING), **data) == ["none"] * 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x: x[:1], r"f returned 1 values for 2 rows"),
        (lambda x: 5, r"f returned int for 2 rows"),
        (lambda x: ["a", "b"], r"f returned values that are not int"),
        (lambda x: [1.5, 2.5], r"f returned values that are not int"),
    ],
)
def test_a_wrong_answer_names_the_user_function(answer: Any, message: str) -> None:
    with pytest.raises(CepError, match=message):
        value_of(user(answer, BIGINT, X), x=[1, 2])


# ---- folds ------------------------------------------------------------------------------------


def folded(
    reading: CellReading,
    type_: Type,
    rows: Sequence[Sequence[Any]],
    tally: ErrorTally | None = None,
    of: Type | None = None,
) -> list[Any]:
    dtype = dtype_of(of or type_)
    valid = np.array([[value is not None for value in row] for row in rows], bool)
    values = np.array([[0 if value is None else value for value in row] for row in rows], dtype)
    vector = Vector(values, None if valid.all() else valid)
    return listed(fold_list(vector, reading, type_, tally or ErrorTally()))


def test_aggregates_skip_null_but_first_and_last_do_not() -> None:
    rows: list[list[Any]] = [[None, 4, 2], [None, None, None], [1, 2, None]]
    assert folded("sum", BIGINT, rows) == [6, None, 3]
    assert folded("count", BIGINT, rows) == [2, 0, 2]
    assert folded("min", BIGINT, rows) == [2, None, 1]
    assert folded("max", BIGINT, rows) == [4, None, 2]
    assert folded("avg", DOUBLE, rows, of=BIGINT) == [3.0, None, 1.5]
    assert folded("first", BIGINT, rows) == [None, None, 1]
    assert folded("last", BIGINT, rows) == [2, None, None]


def test_nan_is_the_largest_of_a_list() -> None:
    rows: list[list[Any]] = [[NAN, 1.0], [NAN, NAN], [None, NAN], [None, -math.inf]]
    assert [str(v) for v in folded("min", DOUBLE, rows)] == ["1.0", "nan", "nan", "-inf"]
    assert [str(v) for v in folded("max", DOUBLE, rows)] == ["nan", "nan", "nan", "-inf"]


def test_a_sum_of_floats_runs_from_left_to_right() -> None:
    values = [0.1 * 3**power for power in range(40)]
    running = 0.0
    for value in values:
        running += value
    assert folded("sum", DOUBLE, [values]) == [running]


def test_a_sum_that_leaves_bigint_on_the_way_is_an_error() -> None:
    most = (1 << 63) - 1
    tally = ErrorTally()
    assert folded("sum", BIGINT, [[most, 1, -1], [most, -1, 1]], tally) == [None, most]
    assert tally.errors == 1
    assert folded("sum", BIGINT, [[most, 1, -1]], ErrorTally(ansi=False)) == [most]


def test_decimals_are_summed_exactly_and_averaged_half_up() -> None:
    wide = Type("decimal", precision=38)
    assert folded("sum", wide, [[10**37, 10**20, 1]]) == [10**37 + 10**20 + 1]
    tally = ErrorTally()
    assert folded("sum", wide, [[10**38 - 1, 1]], tally) == [None]
    assert tally.errors == 1
    average = Type("decimal", precision=13, scale=6)
    cents = Type("decimal", precision=9, scale=2)
    # 1.00, 1.01, 1.01 and their negatives: a third of a cent is rounded to four more digits.
    rows: list[list[Any]] = [[100, 101, 101], [-100, -101, -101], [None, None, 5]]
    assert folded("avg", average, rows, of=cents) == [1_006_667, -1_006_667, 50_000]


def test_an_empty_list_has_no_aggregates() -> None:
    empty = Vector(np.zeros((2, 0), np.int64))
    assert listed(fold_list(empty, "sum", BIGINT, ErrorTally())) == [None, None]
    assert listed(fold_list(empty, "count", BIGINT, ErrorTally())) == [0, 0]
