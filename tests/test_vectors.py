"""Shipped columns arrive in numpy exactly as Spark has them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Cell, Constant, Type
from spark_cep.udfs.program import Condition, Plan, Program, Tree
from spark_cep.udfs.values.vectors import EventColumns

STRING, BINARY = Type("string"), Type("binary")


def columns_of(
    table: pa.Table, *expressions: Any, permutation: np.ndarray[Any, Any] | None = None
) -> EventColumns:
    program = Program(
        columns=tuple(table.column_names), keys=(), orders=(), mask=0, variables=(),
        conditions=tuple(Condition(each, "", frozenset()) for each in expressions),
        tree=Tree("event"), branches=(), plan=Plan("eager"),
    )  # fmt: skip
    return EventColumns(program, table, permutation)


def gathered(array: pa.Array | pa.ChunkedArray, type_: Type, rows: Any = None) -> list[Any]:
    columns = columns_of(pa.table({"c": array}), Cell(0, 0, type_))
    vector = columns.gather(0, type_, np.arange(len(array)) if rows is None else np.array(rows))
    if vector.valid is None:
        return list(vector.values.tolist())
    pairs = zip(vector.values.tolist(), vector.valid.tolist(), strict=True)
    return [value if valid else None for value, valid in pairs]


def test_big_integers_survive_beside_null() -> None:
    values = [(1 << 53) + 1, None, -(1 << 63), (1 << 63) - 1]
    assert gathered(pa.array(values), BIGINT) == values


def test_chunks_and_slices_keep_their_rows() -> None:
    padded = pa.array([9, 1, None, 2, 9]).slice(1, 3)
    assert gathered(pa.chunked_array([padded, pa.array([3])]), BIGINT) == [1, None, 2, 3]
    assert gathered(pa.array([True, None, False, True]).slice(1), Type("bool")) == [
        None, False, True,
    ]  # fmt: skip
    assert gathered(pa.chunked_array([], pa.int64()), BIGINT) == []


def test_decimals_are_unscaled_integers() -> None:
    narrow = pa.array([Decimal("-1.23"), None, Decimal("9.99")], pa.decimal128(9, 2))
    assert gathered(narrow, Type("decimal", precision=9, scale=2)) == [-123, None, 999]
    numbers = [Decimal(10**38 - 1), Decimal(1 - 10**38), None, Decimal(-1), Decimal(1 << 64)]
    wide = pa.array(numbers, pa.decimal128(38, 0))
    expected = [10**38 - 1, 1 - 10**38, None, -1, 1 << 64]
    assert gathered(wide, Type("decimal", precision=38)) == expected
    small = pa.array([Decimal(1), Decimal(-5)], pa.decimal128(38, 0)).slice(1)
    assert gathered(small, Type("decimal", precision=38)) == [-5]


def test_times_are_microseconds_and_days() -> None:
    first = datetime.datetime(1, 1, 1)
    us = (first - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    assert gathered(pa.array([first, None], pa.timestamp("us")), Type("timestamp_ntz")) == [
        us,
        None,
    ]
    zoned = pa.array([us], pa.int64()).cast(pa.timestamp("us", "Europe/Berlin"))
    assert gathered(zoned, Type("timestamp")) == [us]
    assert gathered(pa.array([7], pa.int64()).cast(pa.timestamp("ms")), Type("timestamp")) == [7000]
    assert gathered(pa.array([datetime.date(1969, 12, 31)]), Type("date")) == [-1]
    assert gathered(pa.array([datetime.timedelta(days=-1)]), Type("interval")) == [-86_400_000_000]
    assert gathered(pa.array([datetime.time(0, 0, 1)]), BIGINT) == [1_000_000]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_strings_are_ordered_as_their_utf8_bytes(type_: pa.DataType) -> None:
    # In UTF-16, which Java and JavaScript compare, the last two would be the other way round.
    words = ["", "A", "a", "a\0", "ab", "é", "\uffff", "\U0001f600"]
    codes = gathered(pa.array(words[::-1], type_), STRING)
    assert sorted(codes) == codes[::-1]
    assert len(set(codes)) == len(words)


def test_strings_of_all_columns_and_constants_share_codes() -> None:
    absent = Constant("b", STRING)
    left, right = Cell(0, 0, STRING), Cell(1, 1, STRING)
    table = pa.table({"l": ["a", "c", None], "r": pa.array(["c", "a", "a"]).dictionary_encode()})
    columns = columns_of(table, Call("=", (left, right), BOOL), Call("<", (left, absent), BOOL))
    rows = np.arange(3)
    a, b = columns.gather(0, STRING, rows), columns.gather(1, STRING, rows)
    assert a.values[0] == b.values[1] < columns.constant(absent).values < a.values[1]
    assert a.valid is not None
    assert a.valid.tolist() == [True, True, False]
    assert columns.as_words(b, STRING).values.tolist() == ["c", "a", "a"]


def test_a_collation_key_is_a_string_that_arrives_as_binary() -> None:
    cell, constant = Cell(0, 0, STRING), Constant(b"\x01", STRING)
    columns = columns_of(
        pa.table({"k": pa.array([b"\x02", b"\x01"])}), Call("<", (cell, constant), BOOL)
    )
    codes = columns.gather(0, STRING, np.arange(2)).values
    assert codes[1] == columns.constant(constant).values < codes[0]
    assert columns.type_of(0) == STRING


def test_gather_takes_rows_of_any_shape_and_forgets_masks_that_hide_nothing() -> None:
    table = pa.table({"c": pa.array([10, None, 30])})
    columns = columns_of(table, Cell(0, 0, BIGINT))
    square = columns.gather(0, BIGINT, np.array([[0, 2], [2, 0]]))
    assert square.values.tolist() == [[10, 30], [30, 10]]
    assert square.valid is None
    assert columns.gather(0, BIGINT, np.array([[1]])).valid is not None


def test_positions_count_in_the_sorted_order() -> None:
    table = pa.table({"c": pa.array([10, None, 30]), "l": [[1], [2], [3]], "s": ["x", "y", "z"]})
    cells = (Cell(0, 0, BIGINT), Cell(0, 1, Type("other")), Cell(0, 2, STRING))
    columns = columns_of(table, *cells, permutation=np.array([2, 0, 1]))
    rows = np.array([0, 1])
    assert columns.gather(0, BIGINT, rows).values.tolist() == [30, 10]
    assert columns.gather(2, STRING, rows).values.tolist() == [2, 0]
    positions = columns.gather(1, Type("other"), rows)
    assert columns.shipped(1, positions.values, None).to_pylist() == [[3], [1]]


def test_type_of_is_the_type_as_shipped() -> None:
    table = pa.table(
        {
            "i": pa.array([1], pa.int16()), "f": pa.array([1.0], pa.float32()),
            "d": pa.array([Decimal(1)], pa.decimal128(20, 3)), "s": ["x"], "b": [b"x"],
            "t": pa.array([0], pa.timestamp("us", "UTC")), "n": pa.array([0], pa.timestamp("us")),
            "l": [[1]],
        }
    )  # fmt: skip
    columns = columns_of(table)
    assert [columns.type_of(i) for i in range(8)] == [
        Type("int", 16), Type("float", 32), Type("decimal", precision=20, scale=3), STRING, BINARY,
        Type("timestamp"), Type("timestamp_ntz"), Type("other"),
    ]  # fmt: skip
