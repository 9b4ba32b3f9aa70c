"""Values from Python to columns: conversion, sizes, the store."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.expressions import DOUBLE, Type
from spark_cep.udfs.remotes.store import (
    NULL_ROW,
    RemoteValueError,
    ValueStore,
    to_arrow,
    value_sizes,
)

LIMIT = pa.struct([("max", pa.float64()), ("region", pa.string())])
NAN = float("nan")


class Odd(dict[str, Any]):
    """A value whose methods fail."""

    def get(self, key: str, default: Any = None) -> Any:
        raise KeyError(key)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int64(), 1.0),
        (pa.int64(), 1.5),
        (pa.int64(), "1"),
        (pa.int64(), True),
        (pa.int8(), 128),
        (pa.float64(), "1"),
        (pa.float64(), True),
        (pa.float64(), Decimal(1)),
        (pa.float64(), 2**60 + 1),
        (pa.float32(), 1e300),
        (pa.bool_(), 1),
        (pa.string(), b"x"),
        (pa.string(), 1),
        (pa.binary(), "x"),
        (pa.decimal128(5, 1), Decimal("1.25")),
        (pa.decimal128(5, 1), Decimal("123456")),
        (pa.decimal128(5, 1), 1.0),
        (pa.date32(), datetime(2024, 1, 1, 5)),
        (pa.date32(), 3),
        (pa.timestamp("us"), 5),
        (pa.timestamp("us"), date(2024, 1, 1)),
        (pa.list_(pa.string()), "abc"),
        (pa.list_(pa.int64()), [1, "2"]),
        (pa.list_(pa.int64()), {"a": 1}),
        (pa.list_(pa.list_(pa.int64())), [[1], 2]),
        (pa.list_(pa.int64()), np.ones((2, 2), np.int64)),
        (LIMIT, {"max": "1"}),
        (LIMIT, [1.0, "eu"]),
        (LIMIT, 5),
        (pa.list_(LIMIT), [{"region": 1}]),
        (pa.map_(pa.string(), pa.int64()), {"a": "1"}),
        (pa.int64(), object()),
        (LIMIT, Odd()),
    ],
)
def test_what_is_not_of_the_type_is_garbage_and_not_cast(type_: pa.DataType, value: Any) -> None:
    with pytest.raises(RemoteValueError):
        to_arrow([None, value], type_)


@pytest.mark.parametrize(
    ("type_", "value", "kept"),
    [
        (pa.float64(), 1, 1.0),
        (pa.float64(), np.float32(0.5), 0.5),
        (pa.int32(), np.int64(7), 7),
        (pa.decimal128(5, 1), 3, Decimal("3.0")),
        (pa.bool_(), np.bool_(True), True),
        (pa.string(), "ä", "ä"),
        (pa.binary(), bytearray(b"x"), b"x"),
        (pa.timestamp("us", "UTC"), datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),
        (pa.list_(pa.string()), {"a"}, ["a"]),
        (pa.list_(pa.int64()), (1, None), [1, None]),
        (pa.list_(pa.float64()), np.array([1.0, NAN])[:1], [1.0]),
        (pa.list_(pa.list_(pa.int64())), [{1}, None], [[1], None]),
        (LIMIT, {"max": 1, "more": "ignored"}, {"max": 1.0, "region": None}),
        (pa.list_(LIMIT), [{"region": "eu"}], [{"max": None, "region": "eu"}]),
        (pa.map_(pa.string(), pa.int64()), {"a": 1}, [("a", 1)]),
    ],
)
def test_what_is_exact_is_taken(type_: pa.DataType, value: Any, kept: Any) -> None:
    assert to_arrow([None, value], type_).to_pylist() == [None, kept]


def test_garbage_is_told_by_its_type_and_never_by_its_value() -> None:
    with pytest.raises(RemoteValueError, match="str instead of double") as caught:
        to_arrow(["s3cret"], pa.float64())
    assert "s3cret" not in str(caught.value)


def test_sizes_are_those_of_the_data() -> None:
    assert value_sizes(pa.array([1.0, None])).tolist() == [8, 8]
    assert value_sizes(pa.array(["x" * 100, "", None])).tolist() == [104, 8, 8]
    assert value_sizes(pa.array([[1, 2, 3], None, []], pa.list_(pa.int64()))).tolist() == [28, 8, 8]
    rows = pa.array([{"max": 1.0, "region": "x" * 10}], LIMIT)
    assert value_sizes(rows).tolist() == [22]
    many = pa.array([{"a": 1}, {"b": 2, "c": 3}], pa.map_(pa.string(), pa.int64()))
    assert value_sizes(many).tolist() == [17, 30]


def test_row_zero_is_null_and_so_are_missing_values() -> None:
    store = ValueStore(pa.float64())
    assert store.put([1.5, None, 2]).tolist() == [1, NULL_ROW, 3]
    vector = store.vector(np.array([1, 0, 3]), (), DOUBLE)
    assert vector.values[[0, 2]].tolist() == [1.5, 2.0]
    assert vector.valid is not None
    assert vector.valid.tolist() == [True, False, True]
    assert store.vector(np.array([[1], [3]]), (), DOUBLE).valid is None


def test_columns_follow_what_arrives_after_they_were_first_read() -> None:
    store = ValueStore(LIMIT)
    first = store.put([{"max": 1.0, "region": "eu"}])
    assert store.vector(first, ("max",), DOUBLE).values.tolist() == [1.0]
    second = store.put([{"max": 2.0, "region": None}])
    rows = np.concatenate([first, second])
    assert store.take(rows).to_pylist()[1] == {"max": 2.0, "region": None}
    third = store.put([{"max": None, "region": "us"}])
    rows = np.concatenate([rows, third])
    numbers = store.vector(rows, ("max",), DOUBLE)
    assert numbers.values[:2].tolist() == [1.0, 2.0]
    assert numbers.valid is not None
    assert numbers.valid.tolist() == [True, True, False]
    words = store.vector(rows, ("region",), Type("string"))
    assert words.values[[0, 2]].tolist() == ["eu", "us"]
    assert words.valid is not None
    assert words.valid.tolist() == [True, False, True]


def test_dropping_frees_rows_and_renumbers_the_rest() -> None:
    store = ValueStore(pa.string())
    rows = store.put([str(n) * 10 for n in range(8)])
    store.vector(rows, (), Type("string"))
    assert store.drop(rows) is None
    kept = np.where(np.arange(8) % 4 == 0, rows, NULL_ROW)
    renumbered = store.drop(kept)
    assert renumbered is not None
    assert store.rows == 3
    assert store.take(renumbered[kept])[4].as_py() == "4" * 10
    assert store.vector(renumbered[rows[[4]]], (), Type("string")).values.tolist() == ["4" * 10]


def contains(array: list[Any] | None, value: Any) -> bool | None:
    """array_contains by the book."""
    if array is None or value is None:
        return None
    same = [e is not None and (e == value or str(e) == str(value) == "nan") for e in array]
    if any(same):
        return True
    return None if None in array else False


element = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.0, 2.5, NAN]))
arrays = st.lists(st.one_of(st.none(), st.lists(element, max_size=4)), min_size=1, max_size=6)


@settings(deadline=None)
@given(st.lists(arrays, min_size=1, max_size=4), st.data())
def test_membership_is_array_contains(batches: list[list[Any]], data: st.DataObject) -> None:
    store = ValueStore(pa.list_(pa.float64()))
    known: dict[int, list[Any] | None] = {NULL_ROW: None}
    for batch in batches:
        rows = store.put(batch)
        known.update(
            {int(r): None if r == NULL_ROW else b for r, b in zip(rows, batch, strict=True)}
        )
        asked = data.draw(st.lists(st.tuples(st.sampled_from(sorted(known)), element), min_size=1))
        column = store.elements(())
        codes = column.codes(pa.array([value for _, value in asked], pa.float64()))
        found = column.member(np.array([row for row, _ in asked]), codes)
        valid = np.ones(len(asked), np.bool_) if found.valid is None else found.valid
        given_ = [bool(f) if v else None for f, v in zip(found.values, valid, strict=True)]
        assert given_ == [contains(known[row], value) for row, value in asked]


def test_arrays_inside_structs_are_found_by_their_path() -> None:
    store = ValueStore(pa.struct([("tags", pa.list_(pa.string()))]))
    rows = store.put([{"tags": ["a", "b"]}, None, {"tags": None}, {"tags": []}])
    column = store.elements(("tags",))
    found = column.member(rows, column.codes(pa.array(["b"] * 4)))
    assert found.valid is not None
    assert found.valid.tolist() == [True, False, False, True]
    assert found.values[[0, 3]].tolist() == [True, False]
