"""Vectors of the engine as Arrow arrays for looking up: strings by their few different codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.udfs.values.user_calls import as_arrow
from spark_cep.udfs.values.vectors import WORDS, Vector

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.values.vectors import Columns


def encoded(argument: Expression, vector: Vector, columns: Columns) -> pa.Array:
    """The values of an expression, in one dimension, as an array of its type. Codes of strings
    become a dictionary, so that each string is read once and not for every row."""
    shape = vector.values.shape
    values = vector.values.ravel()
    valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape).ravel()
    if argument.type.kind not in WORDS or values.dtype == object:
        return as_arrow(argument, Vector(values, valid), columns)
    codes = pa.array(values, mask=None if valid is None else ~valid).dictionary_encode()
    words = columns.words(argument.type.kind).decode(codes.dictionary.to_numpy(), None)
    return pa.DictionaryArray.from_arrays(codes.indices, words)
