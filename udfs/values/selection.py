"""Choosing between vectors: CASE, COALESCE, LEAST, GREATEST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.expressions import Type
from spark_cep.udfs.values.comparison import compare_values, valid_mask
from spark_cep.udfs.values.vectors import WORDS, Vector, dtype_of

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Call
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.vectors import Columns


def alike(vectors: list[Vector], types: Sequence[Type], columns: Columns) -> list[Vector]:
    """The vectors with one representation: words that a user function gave have no code, so
    where one is among them all become Python objects, which order as their bytes do."""
    is_object = [vector.values.dtype == object for vector in vectors]
    kind = next((type_.kind for type_ in types if type_.kind in WORDS), None)
    if kind is None or not any(is_object):
        return vectors
    return [
        vector if done else columns.as_words(vector, Type(kind))
        for vector, done in zip(vectors, is_object, strict=True)
    ]


def choose(taken: Array, first: Vector, second: Vector, type_: Type) -> Vector:
    """`first` where `taken`, else `second`."""
    values = np.where(taken, *_typed([first, second], type_))
    nan_free = first.nan_free and second.nan_free
    if first.valid is None and second.valid is None:
        return Vector(values, None, nan_free)
    return Vector(values, np.where(taken, valid_mask(first), valid_mask(second)), nan_free)


def coalesce(first: Vector, second: Vector, type_: Type) -> Vector:
    values = np.where(valid_mask(first), *_typed([first, second], type_))
    nan_free = first.nan_free and second.nan_free
    if first.valid is None or second.valid is None:
        return Vector(values, None, nan_free)
    return Vector(values, first.valid | second.valid, nan_free)


def extreme(call: Call, vectors: list[Vector]) -> Vector:
    """LEAST and GREATEST skip NULLs; only all NULL gives NULL."""
    comparison = "<" if call.name == "least" else ">"
    result = vectors[0]
    for other in vectors[1:]:
        better = compare_values(comparison, other, result)
        if other.valid is not None:
            better = better & other.valid
        if result.valid is not None:
            better = better | ~result.valid
        values = np.where(better, *_typed([other, result], call.type))
        valid = None
        if other.valid is not None and result.valid is not None:
            valid = other.valid | result.valid
        result = Vector(values, valid, other.nan_free and result.nan_free)
    return result


def _typed(vectors: Sequence[Vector], type_: Type) -> list[Array]:
    dtype = dtype_of(type_)
    if any(vector.values.dtype == object for vector in vectors):
        dtype = np.dtype(object)
    return [vector.values.astype(dtype, copy=False) for vector in vectors]
