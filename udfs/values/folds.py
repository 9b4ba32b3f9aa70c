"""Folds of a Kleene list: first, last, count, sum, avg, min, max over the last axis.

Always holds: like Spark's, aggregates skip NULL and give NULL if no value is left; first and last
are elements of the list and do not skip. Sums run from left to right, so floats round as a running
sum does, and an integer sum fails where a running sum would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.values.operators import Operation, apply_binary, check_decimal
from spark_cep.udfs.values.tally import ErrorTally, all_active
from spark_cep.udfs.values.vectors import Vector, dtype_of

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import CellReading, Type
    from spark_cep.udfs.values.arrow_values import Array


# avg of a decimal has this many digits more than its input; Spark divides to 39 digits first.
_AVG_DIGITS = 4
_QUOTIENT_DIGITS = 39


def fold_list(vector: Vector, reading: CellReading, type: Type, tally: ErrorTally) -> Vector:
    """Folds the last axis of a vector. For `count` of whole rows pass any vector without a mask."""
    if vector.valid is not None and vector.valid.shape != vector.values.shape:
        vector = Vector(vector.values, np.broadcast_to(vector.valid, vector.values.shape))
    with np.errstate(all="ignore"):
        if reading == "count":
            return Vector(_fold_count(vector))
        if vector.values.shape[-1] == 0:
            rows = vector.values.shape[:-1]
            return Vector(np.zeros(rows, dtype_of(type)), np.zeros(rows, np.bool_))
        if reading in ("first", "last"):
            at = 0 if reading == "first" else -1
            valid = None if vector.valid is None else vector.valid[..., at]
            return Vector(vector.values[..., at], valid, vector.nan_free)
        if reading == "sum":
            return _fold_sum(vector, type, tally)
        if reading == "avg":
            return _fold_avg(vector, type, tally)
        if reading in ("min", "max"):
            return _fold_extreme(vector, reading)
    raise CepError(f"{reading} does not fold a list")


def _fold_count(vector: Vector) -> Array:
    if vector.valid is None:
        return np.full(vector.values.shape[:-1], vector.values.shape[-1], np.int64)
    return np.asarray(vector.valid.sum(axis=-1, dtype=np.int64))


def _fold_sum(vector: Vector, type_: Type, tally: ErrorTally) -> Vector:
    valid, values = _any_valid(vector), _fill_nulls(vector, 0)
    if type_.kind == "float":
        # cumsum adds one after the other; sum would add in pairs and round differently.
        return Vector(np.cumsum(values, axis=-1, dtype=np.float64)[..., -1], valid)
    if type_.kind == "decimal":
        return check_decimal(_exact_sum(values), valid, type_, tally, all_active)
    if _fits_int64(values):
        return Vector(values.sum(axis=-1, dtype=np.int64), valid)
    adding = Operation("+", type_, (type_, type_), tally, all_active)
    result = Vector(np.zeros(values.shape[:-1], np.int64), valid)
    for element in range(values.shape[-1]):
        result = apply_binary(adding, result, Vector(values[..., element]))
    return result


def _fold_avg(vector: Vector, type_: Type, tally: ErrorTally) -> Vector:
    valid, values, count = _any_valid(vector), _fill_nulls(vector, 0), _fold_count(vector)
    if valid is not None:
        count = np.maximum(count, 1)
    if type_.kind == "float":
        total = np.cumsum(values.astype(np.float64, copy=False), axis=-1)[..., -1]
        return Vector(np.asarray(total / count), valid)
    if type_.kind != "decimal":
        return Vector(
            _round_half_up(_exact_sum(values).astype(object), count).astype(np.int64), valid
        )
    # Spark rounds twice: the quotient to 39 digits, then to the type's scale.
    scale = type_.scale - _AVG_DIGITS
    total = _exact_sum(values).astype(object) * 10 ** (_QUOTIENT_DIGITS - scale)
    quotient = _round_half_up(total, count)
    quotient = _round_half_up(quotient, np.asarray(10 ** (_QUOTIENT_DIGITS - type_.scale), object))
    return check_decimal(quotient, valid, type_, tally, all_active)


def _fold_extreme(vector: Vector, reading: CellReading) -> Vector:
    valid, values = _any_valid(vector), vector.values
    least = reading == "min"
    if values.dtype.kind == "f":
        # fmin ignores NaN and max returns it: both treat NaN as the largest value.
        filled = _fill_nulls(vector, np.nan if least else -np.inf)
        reduced = np.fmin.reduce(filled, axis=-1) if least else np.max(filled, axis=-1)
        return Vector(np.asarray(reduced), valid, vector.nan_free and vector.valid is None)
    if values.dtype == object:
        fill: object = 10**39 if least else -(10**39)
    elif values.dtype.kind == "b":
        fill = least
    else:
        limits = np.iinfo(values.dtype)
        fill = limits.max if least else limits.min
    filled = _fill_nulls(vector, fill)
    return Vector(np.asarray(filled.min(axis=-1) if least else filled.max(axis=-1)), valid)


def _any_valid(vector: Vector) -> Array | None:
    return None if vector.valid is None else np.asarray(vector.valid.any(axis=-1))


def _fill_nulls(vector: Vector, fill: object) -> Array:
    if vector.valid is None:
        return vector.values
    return np.where(vector.valid, vector.values, np.asarray(fill, vector.values.dtype))


def _fits_int64(values: Array) -> bool:
    largest = max(int(values.max()), -int(values.min())) if values.size else 0
    return bool(largest * values.shape[-1] < 1 << 63)


def _exact_sum(values: Array) -> Array:
    if values.dtype != object and _fits_int64(values):
        return np.asarray(values.sum(axis=-1, dtype=np.int64))
    return np.asarray(values.astype(object).sum(axis=-1), object)


def _round_half_up(dividend: Array, divisor: Array) -> Array:
    """The quotient of Python integers, halves rounded away from zero; divisors are positive."""
    divisor = divisor.astype(object)
    magnitude = (2 * np.abs(dividend) + divisor) // (2 * divisor)
    return np.asarray(np.where(dividend < 0, -magnitude, magnitude), object)
