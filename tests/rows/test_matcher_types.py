"""Types and errors: conditions along the path and measures are as exact as Spark is."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.udfs.execution.row_engine import compile_row_program
from spark_cep.udfs.execution.worker import run
from spark_cep.udfs.expressions import (
    BIGINT,
    BOOL,
    DOUBLE,
    Call,
    Constant,
    Expression,
    Type,
    UserCall,
)
from spark_cep.udfs.output import Field, RowOutput
from spark_cep.udfs.program import Limits
from spark_cep.udfs.row_program import Aggregate, RowProgram, RowRead, RowVariable, Skip
from spark_cep.udfs.rows import arrays
from tests.rows.programs import alternate, compare, concat, plus, repeat, star, v

if TYPE_CHECKING:
    import pandas as pd

A, B = 0, 1
MONEY = Type("decimal", precision=10, scale=2)
SUM = Type("decimal", precision=20, scale=2)
MEAN = Type("decimal", precision=14, scale=6)
WIDE = Type("decimal", precision=38, scale=18)
FLOAT = Type("float", 32)
DATE = Type("date")
STAMP = Type("timestamp")
STRING = Type("string")


def last(type_: Type, variables: list[int] | None = None, offset: int = 0) -> RowRead:
    chosen = None if variables is None else frozenset(variables)
    return RowRead("last", 0, type_, chosen, offset)


def current(type_: Type, shift: int = 0) -> RowRead:
    return RowRead("current", 0, type_, shift=shift)


def aggregate(name: Any, type_: Type, variables: list[int] | None = None, **more: Any) -> Aggregate:
    chosen = None if variables is None else frozenset(variables)
    return Aggregate(name, 0, type_, chosen, **more)


def program(define: Expression | None, measures: tuple[Expression, ...] = (), **more: Any) -> Any:
    given: dict[str, Any] = {
        "columns": ("x",), "keys": (), "orders": (),
        "variables": (RowVariable("A"), RowVariable("B", define)),
        "pattern": concat(v(A), star(v(B))), "measures": measures,
        "rows": "one", "skip": Skip(), "limits": Limits(),
    }  # fmt: skip
    return RowProgram(**{**given, **more})


def batches(case: RowProgram, values: list[Any], type_: pa.DataType) -> pa.Table:
    table = pa.table({"x": pa.array(values, type_)})
    columns = (Field(0, "x"),)
    found = list(run(compile_row_program(case), RowOutput(columns), iter(table.to_batches()), 0))
    return pa.Table.from_batches(found)


def lengths(define: Expression, values: list[Any], type_: pa.DataType, **more: Any) -> list[int]:
    case = program(define, (Aggregate("count", None, BIGINT),), **more)
    return batches(case, values, type_).column("m0").to_pylist()[:-1]


def metrics(
    define: Expression, values: list[Any], type_: pa.DataType, **more: Any
) -> dict[str, Any]:
    import json

    case = program(define, **more)
    return json.loads(batches(case, values, type_).column("metrics").to_pylist()[-1])


# ---- conditions along the path -----------------------------------------------------------------


def test_decimals_are_compared_and_added_exactly() -> None:
    sums = aggregate("sum", SUM, [B])
    limit = Constant(30, SUM)
    values = [Decimal("9.99"), Decimal("0.10"), Decimal("0.20"), Decimal("0.01")]
    assert lengths(compare("<=", sums, limit), values, pa.decimal128(10, 2)) == [3, 1]


def test_the_mean_of_decimals_is_rounded_half_up() -> None:
    mean = aggregate("avg", MEAN, [B])
    third = Constant(333333, MEAN)  # 0.333333
    values = [Decimal(0), Decimal("1.00"), Decimal("0.00"), Decimal("0.00")]
    # 1, 1/2, 1/3: the last is 0.333333, and 0.333333 < 0.5 and 1.
    assert lengths(compare(">", mean, third), values, pa.decimal128(10, 2)) == [3, 1]
    assert lengths(compare(">=", mean, third), values, pa.decimal128(10, 2)) == [4]


def test_decimals_beyond_64_bits_are_left_to_python() -> None:
    least = aggregate("min", WIDE, [A])
    values = [Decimal("10") ** 19 + i for i in (0, 1, 2, -1)]
    define = compare(">", current(WIDE), least)
    assert lengths(define, values, pa.decimal128(38, 18)) == [3, 1]
    assert metrics(define, values, pa.decimal128(38, 18))["asked"] == 3
    small = [Decimal(i) for i in (0, 1, 2, -1)]
    assert lengths(define, small, pa.decimal128(38, 18)) == [3, 1]
    assert metrics(define, small, pa.decimal128(38, 18))["asked"] == 0


def test_paths_that_differ_beyond_64_bits_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    # All that the kernel sees of these values is that it cannot hold them.
    monkeypatch.setattr(arrays, "MERGE_AFTER", -1)
    values = [Decimal("10") ** 19 + i for i in (0, 1, 0)]
    pattern = concat(repeat(alternate(v(A), v(B)), 2, 2), v(2))
    variables = (RowVariable("A"), RowVariable("B"))
    for read in (last(WIDE, [B]), aggregate("sum", WIDE, [B]), aggregate("max", WIDE, [B])):
        # True of B A only, which comes after A A and A B.
        third = RowVariable("C", compare("=", read, current(WIDE)))
        case = program(
            None, (Aggregate("list", None, Type("int", 32)),),
            pattern=pattern, variables=(*variables, third),
        )  # fmt: skip
        found = batches(case, values, pa.decimal128(38, 18)).column("m0").to_pylist()[:-1]
        assert found == [[B, A, 2]]


def test_strings_are_compared_by_their_bytes() -> None:
    define = compare(">=", current(STRING), last(STRING, [A]))
    assert lengths(define, ["b", "c", "ä", None, "b", "a"], pa.string()) == [3, 1, 1, 1]
    define = compare("<>", last(STRING, None, 1), Constant("x", STRING))
    assert lengths(define, ["a", "b", "x", "c", "d"], pa.string()) == [3, 2]


def test_dates_and_times_are_subtracted() -> None:
    interval = Type("interval")
    day = Constant(86_400_000_000, interval)
    dates = [date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1)]
    apart = Call("-", (current(DATE), last(DATE, [A])), interval)
    assert lengths(compare("<=", apart, day), dates, pa.date32()) == [2, 1]
    times = [datetime(2024, 1, 1) + timedelta(hours=h) for h in (0, 24, 25)]
    apart = Call("-", (current(STAMP), last(STAMP, [A])), interval)
    assert lengths(compare("<=", apart, day), times, pa.timestamp("us", "UTC")) == [2, 1]


def test_floats_of_32_bits_round_as_they_do_in_spark() -> None:
    total = Call("+", (current(FLOAT), last(FLOAT, [A])), FLOAT)
    exact = Constant(float(np.float32(16777216.0)), FLOAT)
    assert lengths(compare("=", total, exact), [16777216.0, 1.0], pa.float32()) == [2]


def test_nan_is_the_largest_float() -> None:
    most = aggregate("max", DOUBLE, [A, B])
    values = [1.0, 2.0, float("nan"), 3.0]
    assert lengths(compare("=", current(DOUBLE), most), values, pa.float64()) == [3, 1]
    define = compare(">", current(DOUBLE), last(DOUBLE, [A]))
    assert lengths(define, [float("inf"), float("nan"), 5.0], pa.float64()) == [2, 1]


NOTHING = Call("-", (current(BIGINT), current(BIGINT)), BIGINT)


@pytest.mark.parametrize(
    "failing",
    [
        Call("*", (last(BIGINT, [A]), current(BIGINT)), BIGINT),
        Call("neg", (Call("-", (last(BIGINT, [A]), current(BIGINT)), BIGINT),), BIGINT),
        Call("div", (last(BIGINT, [A]), NOTHING), BIGINT),
    ],
)  # fmt: skip
def test_what_would_be_an_ansi_error_is_not_true_and_counted(failing: Expression) -> None:
    values = [-(1 << 62) * 2, 2, 0]
    define = Call("is_not_null", (failing,), BOOL)
    if failing.name == "neg":  # type: ignore[attr-defined]
        values = [-(1 << 62) * 2, 0, 1]
    found = metrics(define, values, pa.int64())
    assert found["condition_errors"] >= 1
    assert (
        metrics(Call("or", (Constant(True, BOOL), define), BOOL), values, pa.int64())[
            "condition_errors"
        ]
        == 0
    )


def test_without_ansi_integers_wrap_around_and_division_by_zero_is_null() -> None:
    wrapped = Call("+", (last(BIGINT, [A]), current(BIGINT)), BIGINT)
    define = compare("=", wrapped, Constant(-(1 << 63), BIGINT))
    assert lengths(define, [(1 << 63) - 1, 1], pa.int64(), ansi=False) == [2]
    narrow = Type("int", 32)
    wrapped = Call("+", (last(narrow, [A]), current(narrow)), narrow)
    define = compare("=", wrapped, Constant(-(1 << 31), narrow))
    assert lengths(define, [(1 << 31) - 1, 1], pa.int32(), ansi=False) == [2]
    assert lengths(define, [(1 << 31) - 1, 1], pa.int32(), ansi=True) == [1, 1]
    rest = Call("%", (last(BIGINT, [A]), current(BIGINT)), BIGINT)
    assert lengths(Call("is_null", (rest,), BOOL), [5, 0], pa.int64(), ansi=False) == [2]


@pytest.mark.parametrize(("name", "result"), [("div", -2), ("%", -1)])
def test_integer_division_cuts_towards_zero(name: str, result: int) -> None:
    value = Call(name, (last(BIGINT, [A]), current(BIGINT)), BIGINT)
    assert lengths(compare("=", value, Constant(result, BIGINT)), [-7, 3], pa.int64()) == [2]


def test_a_sum_that_overflows_is_an_error_only_where_it_is_read() -> None:
    total = aggregate("sum", BIGINT, [A, B])
    define = compare(">", total, Constant(0, BIGINT))
    values = [(1 << 63) - 1, 1, 5]
    assert lengths(define, values, pa.int64()) == [1, 2]
    assert metrics(define, values, pa.int64())["condition_errors"] == 1


def test_choices_along_the_path() -> None:
    before = last(BIGINT, [B], 1)
    first_or = Call("coalesce", (before, Constant(0, BIGINT)), BIGINT)
    assert lengths(compare(">", current(BIGINT), first_or), [9, 1, 2, 2, 2], pa.int64()) == [3, 2]
    least = Call("least", (before, last(BIGINT, [A]), current(BIGINT)), BIGINT)
    assert lengths(compare("=", current(BIGINT), least), [3, 2, 1, 2], pa.int64()) == [3, 1]
    among = Call("in", (current(BIGINT), last(BIGINT, [A]), Constant(7, BIGINT)), BOOL)
    assert lengths(among, [1, 1, 7, 2], pa.int64()) == [3, 1]
    chosen = Call("if", (Call("is_null", (before,), BOOL), Constant(1, BIGINT), before), BIGINT)
    assert lengths(compare("=", current(BIGINT), chosen), [5, 1, 1, 2, 1], pa.int64()) == [3, 2]
    same = Call("nullif", (current(BIGINT), last(BIGINT, [A])), BIGINT)
    assert lengths(Call("is_null", (same,), BOOL), [5, 5, 5, 6], pa.int64()) == [3, 1]


def test_a_user_function_is_called_along_the_path() -> None:
    def close(a: pd.Series, b: pd.Series) -> pd.Series:
        return (a - b).abs() <= 1

    define = UserCall("close", close, (current(BIGINT), last(BIGINT, [A])), BOOL)
    assert lengths(define, [5, 6, 4, 7], pa.int64()) == [3, 1]


# ---- measures ----------------------------------------------------------------------------------


def measured(measure: Expression, values: list[Any], type_: pa.DataType) -> Any:
    case = program(None, (measure,), pattern=plus(v(A)))
    table = batches(case, values, type_)
    return table.column("m0").to_pylist()[0], table.schema.field("m0").type


def test_measures_take_values_of_any_type_as_they_are() -> None:
    nested = pa.list_(pa.struct([("a", pa.int64())]))
    values = [[{"a": 1}], None, [{"a": 1 << 60}]]
    read = RowRead("last", 0, Type("other"), offset=0)
    assert measured(read, values, nested) == (values[2], nested)
    read = RowRead("first", 0, Type("other"), offset=1)
    assert measured(read, values, nested) == (None, nested)


def test_sums_and_means_have_their_own_types() -> None:
    values = [Decimal("1.00"), None, Decimal("0.01"), Decimal("0.01")]
    money = pa.decimal128(10, 2)
    assert measured(aggregate("sum", SUM), values, money) == (Decimal("1.02"), pa.decimal128(20, 2))
    assert measured(aggregate("sum", SUM, distinct=True), values, money)[0] == Decimal("1.01")
    assert measured(aggregate("avg", MEAN), values, money)[0] == Decimal("0.340000")
    assert measured(aggregate("avg", DOUBLE), [1, 2, None], pa.int32()) == (1.5, pa.float64())
    assert measured(aggregate("sum", BIGINT), [1, 2, None], pa.int32()) == (3, pa.int64())


def test_sums_beyond_64_bits() -> None:
    type_ = Type("decimal", precision=38, scale=0)
    values = [Decimal(10) ** 25, Decimal(10) ** 25, Decimal(1)]
    found, arrow = measured(aggregate("sum", type_), values, pa.decimal128(28, 0))
    assert (found, arrow) == (2 * Decimal(10) ** 25 + 1, pa.decimal128(38, 0))
    with pytest.raises(Exception, match="overflows"):
        measured(aggregate("sum", BIGINT), [(1 << 63) - 1, 1], pa.int64())


def test_extremes_are_found_by_sparks_order() -> None:
    words = ["b", None, "ä", "B"]
    assert measured(aggregate("max", STRING), words, pa.string()) == ("ä", pa.string())
    assert measured(aggregate("min", STRING), words, pa.string())[0] == "B"
    floats = [1.0, float("nan"), None]
    assert np.isnan(measured(aggregate("max", DOUBLE), floats, pa.float64())[0])
    assert measured(aggregate("min", DOUBLE), floats, pa.float64())[0] == 1.0
    assert measured(aggregate("min", BIGINT), [None, None], pa.int64())[0] is None
    days = [date(2024, 1, 2), date(1, 1, 1), date(9999, 12, 31)]
    assert measured(aggregate("min", DATE), days, pa.date32())[0] == date(1, 1, 1)


def test_running_aggregates_see_the_rows_up_to_their_own() -> None:
    sums = aggregate("sum", DOUBLE)
    most = aggregate("max", BIGINT)
    every = aggregate("list", BIGINT)
    case = program(None, (sums,), pattern=plus(v(A)), rows="all")
    values = [1e16, 1.0, 1.0, -1e16]
    # Summed from the left: 1e16 + 1 is 1e16.
    assert batches(case, values, pa.float64()).column("m0").to_pylist()[:-1] == [1e16] * 3 + [0.0]
    case = program(None, (most, every), pattern=plus(v(A)), rows="all")
    found = batches(case, [3, None, 5], pa.int64()).select(["m0", "m1"]).to_pylist()[:-1]
    assert [row["m0"] for row in found] == [3, 3, 5]
    assert [row["m1"] for row in found] == [[3], [3, None], [3, None, 5]]


def test_an_empty_bucket_gives_nothing() -> None:
    case = program(None)
    assert list(run(compile_row_program(case), RowOutput(), iter([]), 0)) == []
