"""Spark's scalar functions over vectors: the values of the arguments as Python's, and back.

Each element is a call in Python, of 1 to 20 us, or a lookup among results that are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import Cell, Constant
from spark_cep.udfs.functions import (
    arrays,
    conversion,
    decimals,
    formats,
    hashes,
    numbers,
    patterns,
    strings,
    times,
)
from spark_cep.udfs.functions.nested import key_of
from spark_cep.udfs.functions.registry import FUNCTIONS, Binding, BoundFunction, Function
from spark_cep.udfs.values.arrow_values import is_plain, plain_values, to_single_array, validity
from spark_cep.udfs.values.codes import is_words
from spark_cep.udfs.values.vectors import WORD_KINDS, Vector, dtype_of

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Call, Expression, Type, UserCall
    from spark_cep.udfs.functions.session import SessionFunction
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ActiveElements, ErrorTally
    from spark_cep.udfs.values.vectors import EventColumns


# Importing a module registers its functions.
MODULES = (arrays, conversion, decimals, formats, hashes, numbers, patterns, strings, times)


def is_function(name: str) -> bool:
    return name in FUNCTIONS


def find_function(name: str) -> Function | None:
    return FUNCTIONS.get(name)


def apply_function(
    node: Call,
    arguments: list[Vector],
    columns: EventColumns,
    tally: ErrorTally,
    active: ActiveElements,
) -> Vector:
    shape = np.broadcast_shapes(*(vector.values.shape for vector in arguments))
    shape = np.broadcast_shapes(
        shape, *(each.valid.shape for each in arguments if each.valid is not None)
    )
    values = [
        _values(argument, vector, shape, columns)
        for argument, vector in zip(node.arguments, arguments, strict=True)
    ]
    types = tuple(argument.type for argument in node.arguments)
    sql = tuple(type_.sql for type_ in (*types, node.type))
    bound = _bind(node.name, Binding(types, node.type, tally.ansi), sql)
    results, failed, always = bound.evaluate(values)
    vector = vector_of(results, node.type, shape)
    for places, in_any_session in ((failed, False), (always, True)):
        if places:
            mask = np.zeros(len(results), np.bool_)
            mask[places] = True
            tally.fail(mask.reshape(shape), None, active, always=in_any_session)
    return vector


@lru_cache(256)
def _bind(name: str, binding: Binding, sql: tuple[str, ...]) -> BoundFunction:
    """`sql`: the names of the types, which equal types need not share."""
    return BoundFunction(name, binding)


def call_session_function(
    node: UserCall, function: SessionFunction, arguments: list[Vector], columns: EventColumns
) -> Vector:
    """A Python function of the session, for each element."""
    shape = np.broadcast_shapes(*(vector.values.shape for vector in arguments))
    values = [
        _values(argument, vector, shape, columns)
        for argument, vector in zip(node.arguments, arguments, strict=True)
    ]
    types = [argument.type for argument in node.arguments]
    return vector_of(function.call_rows(values, types, node.type), node.type, shape)


# ---- arguments -----------------------------------------------------------------------------------


def _values(
    argument: Expression, vector: Vector, shape: tuple[int, ...], columns: EventColumns
) -> list[Any]:
    size = int(np.prod(shape))
    if vector.values.ndim == 0 and (vector.valid is None or vector.valid.ndim == 0):
        shape = ()
    values = np.broadcast_to(vector.values, shape).ravel()
    valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape).ravel()
    found = python_values(argument, Vector(values, valid), columns)
    return found * size if shape == () else found


def as_objects(argument: Expression, vector: Vector, columns: EventColumns) -> Vector:
    """Arrays or maps as Python objects, so that those of several columns can be in one vector."""
    if vector.values.dtype == object:
        return vector
    values = python_values(argument, Vector(vector.values.ravel(), _ravel(vector.valid)), columns)
    objects = np.empty(len(values), object)
    for place, each in enumerate(values):
        objects[place] = () if each is None else each
    return Vector(objects.reshape(vector.values.shape), vector.valid)


def _ravel(valid: Array | None) -> Array | None:
    return None if valid is None else valid.ravel()


def python_values(argument: Expression, vector: Vector, columns: EventColumns) -> list[Any]:
    kind, valid = argument.type.kind, vector.valid
    if kind == "null" or (isinstance(argument, Constant) and argument.value is None):
        return [None] * len(vector.values)
    if kind == "other" and vector.values.dtype != object:
        if not isinstance(argument, Cell) or argument.column is None:
            raise CepError(f"the engine cannot read values of type {argument.type.sql}")
        missing = None if valid is None else ~valid
        return list(arrow_values(columns.shipped(argument.column, vector.values, missing)))
    if kind in WORD_KINDS and vector.values.dtype != object:
        if valid is not None and not valid.any():
            return [None] * len(vector.values)
        if valid is not None:
            vector = Vector(np.where(valid, vector.values, vector.values[valid][0]), valid)
        words: list[Any] = columns.words(kind).decode(vector.values, valid).to_pylist()
        return words
    values: list[Any] = vector.values.tolist()
    if valid is None:
        return values
    return [each if known else None for each, known in zip(values, valid.tolist(), strict=True)]


def arrow_values(array: pa.Array) -> Iterator[Any]:
    """The values of an Arrow array as those of a vector: lists and structs as tuples, maps as
    dicts."""
    array = to_single_array(array)
    type_ = array.type
    valid = validity(array)
    known = [True] * len(array) if valid is None else valid.tolist()
    if pa.types.is_map(type_) or pa.types.is_list(type_) or pa.types.is_large_list(type_):
        offsets = array.offsets.to_pylist()
        if pa.types.is_map(type_):
            keys, items = list(arrow_values(array.keys)), list(arrow_values(array.items))
            pairs = list(zip(map(key_of, keys), items, strict=True))
            for number, is_known in enumerate(known):
                yield dict(pairs[offsets[number] : offsets[number + 1]]) if is_known else None
        else:
            elements = list(arrow_values(array.values))
            for number, is_known in enumerate(known):
                begin, end = offsets[number], offsets[number + 1]
                yield tuple(elements[begin:end]) if is_known else None
        return
    if pa.types.is_struct(type_):
        fields = [list(arrow_values(each)) for each in array.flatten()]
        for number, is_known in enumerate(known):
            yield tuple(each[number] for each in fields) if is_known else None
        return
    if is_words(type_):
        yield from array.to_pylist()
        return
    if not is_plain(type_):
        raise CepError(f"the engine cannot read values of type {type_}")
    for value, is_known in zip(plain_values(array).tolist(), known, strict=True):
        yield value if is_known else None


# ---- results -------------------------------------------------------------------------------------


def vector_of(results: list[Any], type_: Type, shape: tuple[int, ...]) -> Vector:
    valid: Array | None = None
    if None in results:
        valid = np.array([each is not None for each in results], np.bool_).reshape(shape)
    kind = type_.kind
    if kind in WORD_KINDS or kind == "other":
        nothing: Any = "" if kind == "string" else b"" if kind == "binary" else ()
        values = np.empty(len(results), object)
        for place, each in enumerate(results):
            values[place] = nothing if each is None else each
        return Vector(values.reshape(shape), valid)
    filled = [0 if each is None else each for each in results]
    return Vector(np.array(filled, dtype_of(type_)).reshape(shape), valid)
