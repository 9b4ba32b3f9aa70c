"""Sort, key and equality codes against a plain Python reading of Spark's order."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import Type
from spark_cep.udfs.program import Order
from spark_cep.udfs.values.codes import key_codes, sort_codes

NAN = float("nan")
_AWKWARD = st.sampled_from([-(1 << 63), (1 << 63) - 1, -1, 0, 1, (1 << 53) + 1])
_LONGS = st.integers(-(1 << 63), (1 << 63) - 1) | _AWKWARD
_FLOATS = st.floats(width=32) | st.sampled_from([NAN, -0.0, 0.0, math.inf, -math.inf])
_CENTURIES = datetime.timedelta(days=100_000)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "tinyint": (pa.int8(), st.integers(-128, 127)),
    "bigint": (pa.int64(), _LONGS),
    "float": (pa.float32(), _FLOATS),
    "double": (pa.float64(), st.floats() | _FLOATS),
    "decimal(9,2)": (pa.decimal128(9, 2), st.decimals(-999, 999, places=2)),
    "decimal(38,0)": (
        pa.decimal128(38, 0),
        (st.integers(1 - 10**38, 10**38 - 1) | _AWKWARD).map(Decimal),
    ),
    "string": (pa.string(), st.text(max_size=3)),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "interval": (pa.duration("us"), st.timedeltas(-_CENTURIES, _CENTURIES)),
    "list": (pa.list_(pa.int16()), st.lists(st.none() | st.integers(-2, 2), max_size=3)),
    "struct": (
        pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))]),
        st.fixed_dictionaries(
            {
                "a": st.none() | st.sampled_from([NAN, -0.0, 0.0, 1.0]),
                "b": st.none() | st.lists(st.none() | st.sampled_from(["", "é"]), max_size=2),
            }
        ),
    ),
}


def spark_order(value: Any) -> Any:
    """A Python key with Spark's order; NULL within a value comes first."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value)]
    if isinstance(value, list):
        return tuple((each is not None, spark_order(each) if each is not None else 0)
                     for each in value)  # fmt: skip
    return value


def chunked(values: list[Any], type_: pa.DataType) -> pa.ChunkedArray:
    """Two chunks, the second one a slice, so that offsets matter."""
    middle = len(values) // 2
    padded = pa.array([*values[:1], *values[middle:]], type_)
    skip = len(values[:1])
    return pa.chunked_array([pa.array(values[:middle], type_), padded.slice(skip)])


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_sort_codes_order_as_spark_does(kind: str, data: st.DataObject) -> None:
    type_, strategy = KINDS[kind]
    values = data.draw(st.lists(st.none() | strategy, max_size=12))
    descending, nulls_first = data.draw(st.booleans()), data.draw(st.booleans())
    order = Order(0, Type("other"), descending, nulls_first)
    codes = sort_codes(chunked(values, type_), order)
    assert len(codes) == len(values)
    for left, code in zip(values, codes, strict=True):
        for right, other in zip(values, codes, strict=True):
            if left is None or right is None:
                first = left if nulls_first else right
                less = (left is None) != (right is None) and first is None
            else:
                a, b = spark_order(left), spark_order(right)
                less = b < a if descending else a < b
            assert bool(code < other) == less


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_key_codes_are_equal_exactly_for_equal_keys(kind: str, data: st.DataObject) -> None:
    type_, strategy = KINDS[kind]
    rows = data.draw(st.lists(st.tuples(st.none() | strategy, st.sampled_from([None, "x", "y"]))))
    first = chunked([row[0] for row in rows], type_)
    second = chunked([row[1] for row in rows], pa.string())
    for columns, key in (([first], rows), ([first, second], rows)):
        codes = key_codes(columns)
        assert codes.dtype == np.int64
        keys = [
            tuple(None if part is None else (spark_order(part),) for part in row[: len(columns)])
            for row in key
        ]
        for a, code in zip(keys, codes, strict=True):
            assert [b == a for b in keys] == [other == code for other in codes]


def test_ascending_integers_without_null_are_the_column_itself() -> None:
    for type_ in (pa.int64(), pa.timestamp("us", "UTC")):
        column = pa.array([3, 1, 2], pa.int64()).cast(type_)
        codes = sort_codes(pa.chunked_array([column]), Order(0, Type("int")))
        assert codes.__array_interface__["data"][0] == column.buffers()[1].address


def test_key_codes_stay_small_so_that_they_can_index() -> None:
    spread = np.arange(1000, dtype=np.int64) * 10**12
    codes = key_codes([pa.array(spread), pa.array(spread[::-1]), pa.array(spread)])
    assert codes.min() >= 0
    assert codes.max() < 4096


def test_a_dictionary_column_may_repeat_its_words() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["b", "a", "b"]))
    assert sort_codes(column, Order(0, Type("string"))).tolist() == [1, 0, 1]


def test_columns_without_an_order_are_refused() -> None:
    column = pa.array([None], pa.month_day_nano_interval())
    with pytest.raises(CepError, match="neither ordered nor grouped"):
        sort_codes(column, Order(0, Type("other")))


def test_days_before_1970_keep_their_order() -> None:
    days = [datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(1, 1, 1)]
    codes = sort_codes(pa.array(days), Order(0, Type("date"), descending=True))
    assert np.argsort(codes).tolist() == [1, 0, 2]
