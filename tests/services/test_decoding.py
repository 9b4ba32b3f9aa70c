"""Answers of services as values: what fits, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.udfs.remotes.store import to_arrow
from spark_cep.udfs.sources.decoding import DecodingError, from_json, make_decoder

DECIMAL = pa.decimal128(5, 2)


@pytest.mark.parametrize(
    ("type_", "given_", "value"),
    [
        (pa.int64(), 3.0, 3), (pa.int64(), Decimal("3.00"), 3), (pa.int64(), b" 3 ", 3),
        (pa.int8(), -128, -128), (pa.float64(), Decimal("1.5"), 1.5), (pa.float64(), "1e3", 1e3),
        (pa.float64(), "-Infinity", float("-inf")), (DECIMAL, 0.1, Decimal("0.10")),
        (DECIMAL, "999.99", Decimal("999.99")), (pa.string(), 5, "5"), (pa.string(), True, "true"),
        (pa.string(), {"a": Decimal("1.50")}, '{"a": 1.5}'), (pa.bool_(), "FALSE", False),
        (pa.bool_(), 1, True), (pa.binary(), "aGk=", b"hi"), (pa.date32(), "2024-01-31",
        date(2024, 1, 31)), (pa.timestamp("us", "UTC"), "2024-01-31T10:00:00",
        datetime(2024, 1, 31, 10, tzinfo=UTC)), (pa.timestamp("us"), "2024-01-31 10:00:00",
        datetime(2024, 1, 31, 10)), (pa.list_(pa.int64()), ["1", None], [1, None]),
        (pa.map_(pa.string(), pa.int64()), {"a": 1}, {"a": 1}),
    ],
)  # fmt: skip
def test_a_value_that_fits_is_taken(type_: pa.DataType, given_: Any, value: Any) -> None:
    assert make_decoder(type_)(given_) == value
    to_arrow([value], type_)


@pytest.mark.parametrize(
    ("type_", "given_"),
    [
        (pa.int64(), True), (pa.int64(), 1.5), (pa.int64(), float("nan")), (pa.int64(), 2**63),
        (pa.int64(), float("inf")), (pa.int64(), Decimal("NaN")), (pa.int64(), "٣"),
        (pa.int64(), "9" * 5000), (pa.float64(), Decimal("sNaN")),
        (pa.int64(), Decimal("1E+999999")), (pa.float64(), True), (pa.float64(), 10**400),
        (pa.float64(), "0x1p3"), (DECIMAL, "1.005"), (DECIMAL, 1000), (DECIMAL, "NaN"),
        (DECIMAL, float("nan")), (pa.bool_(), 2), (pa.bool_(), "yes"), (pa.binary(), "?"),
        (pa.date32(), "31.1.2024"), (pa.date32(), 19000), (pa.timestamp("us", "UTC"), 17),
        (pa.timestamp("us", "UTC"), "0001-01-01T00:00:00+05:00"),
        (pa.timestamp("us"), "2024-01-31T10:00:00Z"), (pa.list_(pa.int64()), "1"),
        (pa.list_(pa.int64()), [1.5]), (pa.struct([("a", pa.int64())]), [1]),
        (pa.struct([("a", pa.int64())]), {"a": "x"}),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused(type_: pa.DataType, given_: Any) -> None:
    with pytest.raises(DecodingError):
        make_decoder(type_)(given_)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
TYPES = [
    pa.bool_(), pa.int32(), pa.float64(), DECIMAL, pa.string(), pa.binary(), pa.date32(),
    pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.list_(pa.float64()),
    pa.struct([("a", pa.int64())]),
]  # fmt: skip


@given(ANYTHING, st.sampled_from(TYPES))
def test_whatever_comes_is_refused_or_fits_arrow(value: Any, type_: pa.DataType) -> None:
    try:
        decoded = make_decoder(type_)(value)
    except DecodingError:
        return
    to_arrow([decoded], type_)


@given(st.binary())
def test_bytes_of_any_kind_are_json_or_refused(text: bytes) -> None:
    with suppress(DecodingError):
        from_json(text)
