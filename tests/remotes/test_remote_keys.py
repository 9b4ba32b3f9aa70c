"""Key rows as ids."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.remotes.keys import NO_KEY, UNKNOWN_KEY, KeyIndex

NAN = float("nan")


def test_equal_keys_have_one_id_in_order_of_appearance() -> None:
    keys = KeyIndex((pa.string(),))
    assert keys.ids([pa.array(["b", "a", None, "b"])]).tolist() == [0, 1, NO_KEY, 0]
    assert keys.ids([pa.array(["c", "a"])]).tolist() == [2, 1]
    assert keys.values == ["b", "a", "c"]


def test_nan_equals_nan_and_the_zeros_are_equal() -> None:
    keys = KeyIndex((pa.float64(),))
    assert keys.ids([pa.array([NAN, -0.0, 0.0])]).tolist() == [0, 1, 1]
    assert keys.ids([pa.array([0.0, np.float64("nan")])]).tolist() == [1, 0]
    assert str(keys.values[1]) == "0.0"


def test_a_composite_key_is_a_tuple_and_null_where_a_part_is() -> None:
    keys = KeyIndex((pa.int32(), pa.string()))
    parts = [pa.array([1, 1, None, 2, 1], pa.int32()), pa.array(["a", "b", "a", None, "a"])]
    assert keys.ids(parts).tolist() == [0, 1, NO_KEY, NO_KEY, 0]
    assert keys.values == [(1, "a"), (1, "b")]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int8(), 1),
        (pa.float32(), 0.5),
        (pa.bool_(), True),
        (pa.string(), "ä"),
        (pa.binary(), b"\x00"),
        (pa.decimal128(10, 2), Decimal("1.20")),
        (pa.date32(), date(2024, 2, 29)),
        (pa.timestamp("us"), datetime(2024, 1, 1, 12)),
        (pa.timestamp("us", "UTC"), datetime(2024, 1, 1, 12, tzinfo=UTC)),
    ],
)
def test_keys_are_the_python_values_that_a_user_expects(type_: pa.DataType, value: Any) -> None:
    keys = KeyIndex((type_,))
    assert keys.ids([pa.array([value, None], type_)]).tolist() == [0, NO_KEY]
    assert keys.values == [value]
    assert type(keys.values[0]) is type(value)


def test_encoded_columns_chunks_and_other_widths_give_the_same_ids() -> None:
    keys = KeyIndex((pa.string(),))
    plain = pa.array(["x", None, "y", "x"])
    ids = keys.ids([plain]).tolist()
    assert keys.ids([plain.dictionary_encode()]).tolist() == ids
    assert keys.ids([plain.cast(pa.large_string())]).tolist() == ids
    twice = pa.DictionaryArray.from_arrays([0, 1, 2, None], pa.array(["x", "x", None]))
    assert keys.ids([twice]).tolist() == [0, 0, NO_KEY, NO_KEY]
    assert keys.ids([pa.array([], pa.string())]).tolist() == []
    assert keys.ids([pa.array([None, None], pa.string()).dictionary_encode()]).tolist() == [-1, -1]


def test_find_makes_no_new_ids() -> None:
    keys = KeyIndex((pa.int64(),))
    keys.ids([pa.array([5])])
    assert keys.find([pa.array([5, 6, None])]).tolist() == [0, UNKNOWN_KEY, NO_KEY]
    assert len(keys) == 1


words = st.one_of(st.none(), st.sampled_from(["", "a", "b", "aa"]))
floats = st.one_of(st.none(), st.sampled_from([NAN, 0.0, -0.0, 1.5, float("inf")]))


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(words, floats, st.one_of(st.none(), st.integers(0, 3))))))
def test_ids_are_those_of_a_dict_filled_row_by_row(blocks: list[list[tuple[Any, ...]]]) -> None:
    keys = KeyIndex((pa.string(), pa.float64(), pa.int64()))
    types = (pa.string(), pa.float64(), pa.int64())
    known: dict[Any, int] = {}
    for rows in blocks:
        parts = [pa.array([r[i] for r in rows], type_) for i, type_ in enumerate(types)]
        ids = keys.ids(parts).tolist()
        for row, id_ in zip(rows, ids, strict=True):
            plain = tuple("NaN" if str(part) == "nan" else part for part in row)
            assert (id_ == NO_KEY) == (None in row)
            if None not in row:
                assert known.setdefault(plain, id_) == id_
        assert len(set(known.values())) == len(known) == len(keys)
