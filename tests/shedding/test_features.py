"""Bins of values: quantiles and frequent values, and what is NULL, NaN or was never seen."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Type
from spark_cep.udfs.shedding.passing import Feature, feature_of, quantiles

NAN, INF = float("nan"), float("inf")
STRING = Type("string")
MOMENT = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)


def bins(feature: Feature, values: list[Any], type_: pa.DataType) -> list[int]:
    found: list[int] = feature.bins(pa.array(values, type_)).tolist()
    return found


# ---- ordered columns ---------------------------------------------------------------------------


def test_a_number_is_in_the_bin_of_the_splits_that_are_not_above_it() -> None:
    feature = Feature(0, DOUBLE, splits=(-1.5, 0.0, 2.0))
    values = [-INF, -2.0, -1.5, -1e-300, -0.0, 0.0, 1.99, 2.0, INF, NAN, None]
    assert bins(feature, values, pa.float64()) == [0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 4]
    assert feature.size == 5


def test_without_splits_all_but_null_are_alike() -> None:
    feature = Feature(0, DOUBLE)
    assert feature.size == 2
    assert bins(feature, [1.0, NAN, None, -INF], pa.float64()) == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("type_", "arrow", "split", "below", "above"),
    [
        (BIGINT, pa.int64(), 2.0**62, 2**62 - 1024, 2**62),
        (Type("int", 8), pa.int8(), 5.0, 4, 5),
        (Type("float", 32), pa.float32(), 0.5, 0.25, 0.5),
        (Type("decimal", precision=10, scale=2), pa.decimal128(10, 2), 1.1,
         Decimal("1.09"), Decimal("1.10")),
        (Type("decimal", precision=38, scale=18), pa.decimal128(38, 18), 1e18,
         Decimal("9") * 10**17, Decimal(10**18)),
        (Type("date"), pa.date32(), 100.0, date(1970, 4, 10), date(1970, 4, 11)),
        (Type("timestamp"), pa.timestamp("us", "UTC"), MOMENT.timestamp() * 1e6,
         MOMENT.replace(hour=11), MOMENT),
        (Type("timestamp_ntz"), pa.timestamp("us"), MOMENT.timestamp() * 1e6,
         MOMENT.replace(hour=11, tzinfo=None), MOMENT.replace(tzinfo=None)),
    ],
)  # fmt: skip
def test_every_ordered_kind_is_compared_as_a_double(
    type_: Type, arrow: pa.DataType, split: float, below: Any, above: Any
) -> None:
    feature = Feature(0, type_, splits=(split,))
    assert bins(feature, [below, above, None], arrow) == [0, 1, 2]


def test_a_decimal_is_the_double_that_is_nearest() -> None:
    """As Spark casts it: 2^53 + 1 and 17 digits behind the point are in no double."""
    texts = ["90071992547409.93", "0.29999999999999999", "12345678901234567890.234567890123456789"]
    for text in texts:
        value = Decimal(text)
        type_ = Type("decimal", precision=38, scale=-value.as_tuple().exponent)
        feature = Feature(0, type_, splits=(float(value),))
        assert bins(feature, [value], pa.decimal128(38, type_.scale)) == [1]


@settings(deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=200),
    st.integers(2, 32),
)
def test_quantiles_ascend_lie_above_the_least_and_are_few(values: list[float], most: int) -> None:
    numbers = np.array(values, dtype=np.float64)
    found = quantiles(numbers, None, most)
    finite = numbers[np.isfinite(numbers)]
    assert len(found) < most
    assert list(found) == sorted(set(found))
    assert all(np.isfinite(each) and each > finite.min() for each in found)


def test_quantiles_cut_into_like_parts() -> None:
    numbers = np.random.default_rng(1).normal(500, 300, 32_000)
    feature = Feature(0, DOUBLE, splits=quantiles(numbers, None, 32))
    counts = np.bincount(feature.bins(pa.array(numbers)), minlength=33)
    assert counts[:32].tolist() == pytest.approx([1000] * 32, rel=0.02)


def test_times_that_differ_behind_six_digits_are_told_apart() -> None:
    micros = 1_714_564_800_000_000 + np.arange(3200) * 1000
    splits = quantiles(micros.astype(np.float64), None, 32)
    assert len(splits) == 31


def test_values_under_null_are_not_looked_at() -> None:
    numbers, valid = np.array([1.0, 1e9, 2.0, 3.0]), np.array([True, False, True, True])
    assert max(quantiles(numbers, valid, 3)) <= 3


# ---- columns of few values ---------------------------------------------------------------------


def test_values_have_a_bin_each_and_the_others_one() -> None:
    feature = Feature(0, STRING, values=("b", "a", ""))
    assert bins(feature, ["a", "b", "A", "", None, "zz"], pa.string()) == [1, 0, 3, 2, 4, 3]
    assert feature.size == 5


def test_a_dictionary_is_binned_as_its_values() -> None:
    feature = Feature(0, STRING, values=("b", "a"))
    column = pa.chunked_array([pa.array(["a", None, "c"]), pa.array(["b"])]).dictionary_encode()
    assert feature.bins(column).tolist() == [1, 3, 2, 0]


def test_booleans_have_two_bins_and_one_of_null() -> None:
    feature = feature_of(0, BOOL, pa.array([True, False, True, None]), 32, is_equal=False)
    assert feature is not None
    assert feature.values == (True, False)
    assert bins(feature, [None, False, True], pa.bool_()) == [3, 1, 0]


def test_the_most_frequent_values_are_taken_ties_by_value() -> None:
    seen = pa.array(["c", "a", "b", "c", "d", None, None, None])
    feature = feature_of(0, STRING, seen, 3, is_equal=True)
    assert feature is not None
    assert feature.values == ("c", "a", "b")


@pytest.mark.parametrize(
    ("count", "is_equal", "is_ordered"), [(5, False, False), (100, False, True), (100, True, False)]
)
def test_integers_are_cut_by_value_where_there_are_few_or_values_matter(
    count: int, is_equal: bool, is_ordered: bool
) -> None:
    seen = pa.array(np.arange(1000) % count)
    feature = feature_of(0, BIGINT, seen, 32, is_equal=is_equal)
    assert feature is not None
    assert feature.is_ordered == is_ordered
    assert feature.size <= 34


@pytest.mark.parametrize(
    ("type_", "arrow"), [(STRING, pa.string()), (BOOL, pa.bool_()), (Type("binary"), pa.binary())]
)
def test_what_cannot_be_cut_is_none(type_: Type, arrow: pa.DataType) -> None:
    assert feature_of(0, type_, pa.array([None, None], arrow), 32, is_equal=True) is None


def test_numbers_that_are_all_null_are_in_one_bin() -> None:
    feature = feature_of(0, BIGINT, pa.array([None, None], pa.int64()), 32, is_equal=True)
    assert feature is not None
    assert bins(feature, [None, 7], pa.int64()) == [1, 0]
