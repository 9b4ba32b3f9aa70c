"""Sizes of values of every type that Arrow has, whole and sliced."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.udfs.remotes.store import LEAST_BYTES, value_sizes

_WORDS = ["", None, "four", "a text that is longer than a view holds"]
_LISTS = [[1, 2, 3], None, [], [4]]
_NUMBERS = [1, None, 0, 3]
_INT32, _INT8 = pa.int32(), pa.int8()


def _union(mode: str) -> pa.Array:
    codes = pa.array([0, 1, 0, 1], _INT8)
    if mode == "sparse":
        words, numbers = pa.array(_WORDS), pa.array(_NUMBERS)
        return pa.UnionArray.from_sparse(codes, [words, numbers])
    children = [pa.array(["four", "a text of 20 letters"]), pa.array([1, 2])]
    return pa.UnionArray.from_dense(codes, pa.array([1, 0, 0, 1], _INT32), children)


def _arrays() -> dict[str, pa.Array]:
    day = datetime.date(2024, 3, 10)
    moment = datetime.datetime(2024, 3, 10, tzinfo=datetime.UTC)
    duration = datetime.timedelta(days=1)
    number_types = (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
        pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
    )  # fmt: skip
    found = [pa.array(np.array([1, 2, 0, 3]), pa.int64()).cast(each) for each in number_types]
    found += [pa.array([each, None, each, each], pa.decimal128(12, 2)) for each in [Decimal(1)]]
    found += [pa.array([Decimal(1), None, None, None], pa.decimal256(50, 2))]
    found += [pa.array([True, None, False, True])]
    found += [pa.array([day, None, day, day], each) for each in (pa.date32(), pa.date64())]
    found += [pa.array([moment] * 4, pa.timestamp(unit, "UTC")) for unit in ("s", "ms", "us", "ns")]
    found += [pa.array([duration] * 4, pa.duration(unit)) for unit in ("s", "ms", "us", "ns")]
    found += [pa.array([1, 2, 3, None], each) for each in (pa.time32("ms"), pa.time64("us"))]
    found += [pa.array([pa.MonthDayNano([1, 2, 3])] * 4)]
    words = [None if word is None else word.encode() for word in _WORDS]
    found += [pa.array(words, each) for each in (pa.binary(), pa.large_binary())]
    found += [pa.array(_WORDS, each) for each in (pa.string(), pa.large_string())]
    found += [pa.array([b"1234", None, b"5678", b"9012"], pa.binary(4))]
    found += [pa.array(_LISTS, each) for each in (pa.list_(_INT32), pa.large_list(_INT32))]
    found += [pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(_INT32, 2))]
    found += [pa.array([None] * 4, each) for each in (pa.null(), pa.list_(pa.null()))]
    found += [pa.array([[], None, [None], [None, None]], pa.list_(pa.null()))]
    struct = pa.struct([("x", pa.string()), ("y", pa.list_(pa.string(), 1)), ("z", pa.null())])
    found += [pa.array([{"x": "a" * 9, "y": ["b"]}, None, {"x": None}, {}], struct)]
    found += [pa.array([{}, None, {}, {}], pa.struct([]))]
    found += [pa.array([[("k", 1)], None, [], [("l", 2), ("m", 3)]], pa.map_(pa.string(), _INT32))]
    found += [pa.array(_WORDS).dictionary_encode(), pa.nulls(4, pa.dictionary(_INT8, pa.string()))]
    ends, values = pa.array([2, 3, 4], _INT32), pa.array(["a" * 20, None, "b"])
    found += [_union("sparse"), _union("dense")]
    # Kinds that pyarrow has only in later versions.
    if hasattr(pa, "uuid"):
        uuids = pa.array([b"1234" * 4] * 4, pa.binary(16))
        found += [pa.ExtensionArray.from_storage(pa.uuid(), uuids)]
    if hasattr(pa, "RunEndEncodedArray"):
        found += [pa.RunEndEncodedArray.from_arrays(ends, values)]
    if hasattr(pa, "string_view"):
        found += [pa.array(_WORDS, pa.string_view()), pa.array(words, pa.binary_view())]
    if hasattr(pa, "list_view"):
        found += [pa.array(_LISTS, each(_INT32)) for each in (pa.list_view, pa.large_list_view)]
    if hasattr(pa, "decimal32"):
        found += [pa.array([Decimal(1)] * 4, each(3, 0)) for each in (pa.decimal32, pa.decimal64)]
    return {f"{number}-{array.type}": array for number, array in enumerate(found)}


_ARRAYS = _arrays()


@pytest.mark.parametrize("name", _ARRAYS)
def test_every_type_of_arrow_has_sizes_and_a_slice_those_of_its_values(name: str) -> None:
    array = _ARRAYS[name]
    found = value_sizes(array)
    assert found.dtype == np.int64
    assert len(found) == len(array)
    assert found.min() >= LEAST_BYTES
    for start in range(len(array) + 1):
        for end in range(start, len(array) + 1):
            assert (
                value_sizes(array.slice(start, end - start)).tolist() == found[start:end].tolist()
            )
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 1, 4], _INT32), array)
    assert len(value_sizes(nested)) == len(value_sizes(nested.slice(1))) + 1


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.nulls(2), [8, 8]),
        (pa.array([["a" * 10, "b"], None], pa.list_(pa.string(), 2)), [10 + 1 + 2 * 4, 8]),
        (pa.array([[1, 2, 3]], pa.list_(pa.int64())), [3 * 8 + 4]),
        (pa.array([[1, 2, 3]], pa.large_list(pa.int64())), [3 * 8 + 8]),
        (pa.array(["a" * 10, "b" * 10]), [14, 14]),
        (pa.array(["a" * 10]).dictionary_encode(), [4 + 14]),
        (pa.array([[("key", 1)]], pa.map_(pa.string(), pa.int64())), [4 + (3 + 4) + 8]),
        (pa.array([b"x" * 100], pa.binary(100)), [100]),
        (_union("dense"), [1 + 4 + 24, 1 + 4 + 8, 1 + 4 + 8, 1 + 4 + 8]),
        (_union("sparse"), [8, 1 + 8, 1 + 8, 1 + 8]),
    ],
)
def test_a_size_is_that_of_the_data_and_the_offsets(array: pa.Array, expected: list[int]) -> None:
    assert value_sizes(array).tolist() == expected
