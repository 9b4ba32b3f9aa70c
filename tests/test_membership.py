"""Membership in arrays says what Spark's array_contains says, pair by pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.values.calls import contains_values

NAN = float("nan")


def by_the_book(array: list[Any] | None, value: Any) -> bool | None:
    if array is None or value is None:
        return None
    if any(each is not None and same(each, value) for each in array):
        return True
    return None if None in array else False


def same(left: Any, right: Any) -> bool:
    return bool(left == right) or str(left) == str(right) == "nan"


def listed(arrays: pa.Array, place: list[int], values: pa.Array) -> list[bool | None]:
    found = contains_values(arrays, np.array(place, dtype=np.int64), values)
    valid = np.ones(len(place), np.bool_) if found.valid is None else found.valid
    return [bool(v) if ok else None for v, ok in zip(found.values, valid, strict=True)]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [0, 1, 2, -1, None]),
        (pa.float64(), [0.0, -0.0, 1.5, NAN, None]),
        (pa.string(), ["", "a", "b", "ab", None]),
        (pa.bool_(), [True, False, None]),
    ],
    ids=["int", "float", "string", "bool"],
)
def test_it_agrees_with_array_contains(type_: pa.DataType, values: list[Any]) -> None:
    one = st.sampled_from(values)
    arrays = st.lists(st.none() | st.lists(one, max_size=4), min_size=1, max_size=5)

    @settings(deadline=None)
    @given(arrays, st.lists(st.tuples(st.integers(0, 4), one), max_size=12))
    def compare(lists: list[Any], asked: list[tuple[int, Any]]) -> None:
        place = [number % len(lists) for number, _ in asked]
        wanted = [value for _, value in asked]
        found = listed(pa.array(lists, pa.list_(type_)), place, pa.array(wanted, type_))
        assert found == [by_the_book(lists[p], v) for p, v in zip(place, wanted, strict=True)]

    compare()


def test_a_slice_of_an_array_is_read_from_its_own_beginning() -> None:
    arrays = pa.array([[1], [2], [3]]).slice(1)
    assert listed(arrays, [0, 1, 1], pa.array([2, 2, 3])) == [True, False, True]


def test_no_pairs_and_empty_arrays_give_nothing() -> None:
    assert listed(pa.array([[]], pa.list_(pa.int64())), [], pa.array([], pa.int64())) == []
    assert listed(pa.array([[]], pa.list_(pa.int64())), [0], pa.array([1])) == [False]
