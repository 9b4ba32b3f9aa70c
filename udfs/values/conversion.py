"""Casts that Spark inserts to give two operands one type: they only widen.

Integers to wider integers, floats or decimals; floats to doubles; decimals to more digits or to
double; dates to timestamps without zone. Anything else depends on the session or may fail, and
is Spark's to compute before the rows are shipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.values.arithmetic import Operation, checked_decimal, rescaled
from spark_cep.udfs.values.vectors import Vector, dtype_of

if TYPE_CHECKING:
    from spark_cep.udfs.values.arrow_values import Array

_DAY_US = 86_400_000_000
# Both sides of a division below these are exact doubles, so its result is correctly rounded.
_EXACT_DOUBLE = 1 << 53
_EXACT_POWER = 22


def cast(operation: Operation, vector: Vector) -> Vector:
    target, source = operation.type, operation.operands[0]
    dtype = dtype_of(target)
    if source.kind == "null":
        return Vector(np.zeros(vector.values.shape, dtype), vector.valid)
    if target.kind == "decimal" and source.kind in ("int", "decimal"):
        digits = target.scale - (source.scale if source.kind == "decimal" else 0)
        if digits >= 0:
            wide = (
                vector.values if vector.values.dtype == object else vector.values.astype(np.int64)
            )
            scaled = rescaled(wide, digits)
            return checked_decimal(scaled, vector.valid, target, operation.tally, operation.active)
    elif target.kind == "float" and source.kind == "decimal" and target.bits == 64:
        return Vector(_to_double(vector.values, source.scale), vector.valid, nan_free=True)
    elif target.kind == "timestamp_ntz" and source.kind == "date":
        return Vector(np.asarray(vector.values * _DAY_US), vector.valid)
    elif (source.kind, target.kind) == ("int", "float"):
        return Vector(vector.values.astype(dtype), vector.valid, nan_free=True)
    elif source.kind == target.kind and source.bits <= target.bits:
        keep = source.kind not in ("int", "float")
        values = vector.values if keep else vector.values.astype(dtype, copy=False)
        return Vector(values, vector.valid, vector.nan_free)
    raise CepError(
        f"the engine does not cast {source.kind} to {target.kind} exactly",
        hint="write the cast on one variable, where Spark computes it",
    )


def _to_double(values: Array, scale: int) -> Array:
    """Correctly rounded, as BigDecimal.doubleValue is."""
    if values.dtype != object and scale <= _EXACT_POWER:
        largest = max(int(values.max()), -int(values.min())) if values.size else 0
        if largest <= _EXACT_DOUBLE:
            return np.asarray(values / float(10**scale))
    # Division of Python integers is correctly rounded whatever their size.
    return np.asarray(values.astype(object) / 10**scale, np.float64)
