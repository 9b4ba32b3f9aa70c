"""What a row says of its chances: values of columns, put into few bins.

A `Feature` cuts one shipped column, either at quantiles of what was seen (numbers and times) or by
its most frequent values. Its last bin is NULL; the bin before it, of values, is all the others.

Always holds: `bins` here and the SQL text that the driver makes of the same feature
(`spark_cep/shedding/column.py`) agree: a number's bin is how many splits are not above it, and NaN
is above all, as in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.values.arrow_values import plain, validity, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.expressions import Kind, Type

# Kinds whose order may be cut at quantiles; all are compared as doubles.
ORDERED: Final[frozenset[Kind]] = frozenset(
    {"int", "float", "decimal", "date", "timestamp", "timestamp_ntz"}
)
# Kinds whose values can be written into a condition as they are.
NAMED: Final[frozenset[Kind]] = frozenset({"int", "string", "bool"})
# Integers and powers of ten that doubles hold exactly.
_EXACT: Final = 2.0**53
_EXACT_SCALE: Final = 22

Bins = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Feature:
    """`splits` of an ordered column, ascending; else `values`, the ones that have a bin each."""

    column: int
    type: Type
    splits: tuple[float, ...] = ()
    values: tuple[Any, ...] = ()

    @property
    def is_ordered(self) -> bool:
        return not self.values

    @property
    def size(self) -> int:
        """How many bins there are, the one of NULL included."""
        return len(self.values or self.splits) + 2

    def bins(self, column: pa.ChunkedArray | pa.Array) -> Bins:
        """The bin of each row."""
        return self._of_values(column) if self.values else self._of_numbers(column)

    def _of_numbers(self, column: pa.ChunkedArray | pa.Array) -> Bins:
        numbers, valid = as_numbers(column, self.type)
        found = np.searchsorted(np.array(self.splits), numbers, side="right").astype(np.int64)
        if valid is not None:
            found[~valid] = self.size - 1
        return found

    def _of_values(self, column: pa.ChunkedArray | pa.Array) -> Bins:
        array = whole(column)
        known = pa.array(list(self.values), array.type)
        found = pc.fill_null(pc.index_in(array, value_set=known), len(self.values))
        bins: Bins = found.to_numpy(zero_copy_only=False).astype(np.int64)
        valid = validity(array)
        if valid is not None:
            bins[~valid] = self.size - 1
        return bins


def as_numbers(
    column: pa.ChunkedArray | pa.Array, type_: Type
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_] | None]:
    """An ordered column as doubles, arbitrary under NULL: times in microseconds, dates in days."""
    array = whole(column)
    numbers, valid = plain(array).astype(np.float64), validity(array)
    if type_.kind == "decimal":
        seen = numbers if valid is None else numbers[valid]
        if type_.scale <= _EXACT_SCALE and np.abs(seen).max(initial=0.0) < _EXACT:
            return numbers / 10.0**type_.scale, valid
        # A quotient of two numbers that are rounded already may not be the nearest double.
        numbers = np.array([float(value or 0) for value in array.to_pylist()])
    return numbers, valid


def feature_of(
    column: int, type_: Type, seen: pa.Array, most: int, *, is_equal: bool
) -> Feature | None:
    """The cuts of a column of at most `most` bins, by values that were seen; None if it cannot be
    cut. `is_equal`: it is compared for equality, so that values themselves matter."""
    if type_.kind in NAMED:
        counts = pc.value_counts(seen.drop_null())
        frequent = _most_frequent(counts, most)
        if frequent and (len(counts) <= most or is_equal or type_.kind not in ORDERED):
            return Feature(column, type_, values=frequent)
    if type_.kind in ORDERED:
        numbers, valid = as_numbers(seen, type_)
        return Feature(column, type_, splits=quantiles(numbers, valid, most))
    return None


def _most_frequent(counts: pa.StructArray, most: int) -> tuple[Any, ...]:
    """Ties by value, so that the same rows always give the same cuts."""
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    found = sorted(pairs, key=lambda each: (-each[1], each[0]))
    return tuple(value for value, _ in found[:most])


def quantiles(
    numbers: npt.NDArray[np.float64], valid: npt.NDArray[np.bool_] | None, most: int
) -> tuple[float, ...]:
    """Splits between bins with about as many values each."""
    if valid is not None:
        numbers = numbers[valid]
    numbers = np.sort(numbers[np.isfinite(numbers)])
    if not len(numbers):
        return ()
    at = (np.arange(1, most) * len(numbers)) // most
    # Few digits are as good, and stand in Spark's plans; where values differ later, all of them.
    exact = np.unique(numbers[at])
    short = np.unique([float(f"{split:.6g}") for split in exact])
    splits = short if len(short) == len(exact) else exact
    # Below the least value nothing was seen.
    return tuple(float(each) for each in splits if each > numbers[0])


def equal_columns(names: Sequence[str]) -> bool:
    """Whether one of these operations asks for equal values."""
    return bool({"=", "<=>", "<>", "in"} & set(names))
