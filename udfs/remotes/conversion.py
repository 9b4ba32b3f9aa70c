"""Python values that a source gave, as an Arrow array of the declared type, or not at all.

Always holds: nothing is cast silently. An integer may become a double or a decimal where that is
exact, a naive datetime counts as UTC for a type with a time zone, a float may be rounded to 32
bits; everything else must be of the declared type already. pyarrow alone would cut fractions off
for an integer type, take text for bytes, text for a list of letters, a number for a date.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.errors import CepError

if TYPE_CHECKING:
    from collections.abc import Callable

_INT: Final = (int, np.integer)
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (pa.types.is_boolean, (bool, np.bool_)),
    (pa.types.is_integer, _INT),
    (pa.types.is_floating, (float, np.floating, *_INT)),
    (pa.types.is_decimal, (Decimal, *_INT)),
    (pa.types.is_string, (str,)),
    (pa.types.is_large_string, (str,)),
    (pa.types.is_binary, (bytes, bytearray, memoryview)),
    (pa.types.is_large_binary, (bytes, bytearray, memoryview)),
    (pa.types.is_timestamp, (datetime, np.datetime64)),
    (pa.types.is_date, (date,)),
    (pa.types.is_duration, (timedelta, np.timedelta64)),
    (pa.types.is_null, ()),
)
_LISTS: Final = (list, tuple, set, frozenset, np.ndarray)


class Garbage(CepError):
    """A value is not of the declared type. It is not in the text: it may be a secret."""


def to_arrow(values: list[Any], type_: pa.DataType) -> pa.Array:
    """The values as an array of the type; Garbage if one cannot be."""
    try:
        return pa.array(_fitting(values, type_), type_)
    except Garbage:
        raise
    except Exception as error:  # also what a value's own methods raise
        given = ", ".join(sorted({type(v).__name__ for v in values if v is not None}))
        raise Garbage(f"{given} that does not fit {type_}") from error


def _fitting(values: list[Any], type_: pa.DataType) -> list[Any]:
    """The values in a form that pyarrow takes for the type."""
    if is_list(type_):
        return _lists(values, type_)
    if pa.types.is_struct(type_):
        _check(values, (Mapping,), type_)
        for field in type_:
            inner = [None if v is None else v.get(field.name) for v in values]
            if _needs_form(field.type):
                fitted = _fitting(inner, field.type)
                values = [
                    None if v is None else {**v, field.name: part}
                    for v, part in zip(values, fitted, strict=True)
                ]
            else:
                _fitting(inner, field.type)
        return values
    if pa.types.is_map(type_):
        _check(values, (Mapping,), type_)
        return [None if v is None else _entries(v, type_) for v in values]
    allowed = next((kinds for test, kinds in _PLAIN if test(type_)), (object,))
    _check(values, allowed, type_)
    if pa.types.is_float32(type_):
        _check_range(values, type_)
    return values


def _lists(values: list[Any], type_: pa.DataType) -> list[Any]:
    _check(values, _LISTS, type_)
    if any(isinstance(v, np.ndarray) and v.ndim != 1 for v in values):
        raise Garbage(f"an array of several dimensions instead of {type_}")
    if _needs_form(type_.value_type):
        return [None if v is None else _fitting(list(v), type_.value_type) for v in values]
    _fitting(list(chain.from_iterable(v for v in values if v is not None)), type_.value_type)
    return [list(v) if isinstance(v, set | frozenset) else v for v in values]


def _entries(value: Mapping[Any, Any], type_: pa.DataType) -> list[tuple[Any, Any]]:
    keys = _fitting(list(value.keys()), type_.key_type)
    return list(zip(keys, _fitting(list(value.values()), type_.item_type), strict=True))


def is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _needs_form(type_: pa.DataType) -> bool:
    return is_list(type_) or pa.types.is_struct(type_) or pa.types.is_map(type_)


def _check(values: Iterable[Any], allowed: tuple[type, ...], type_: pa.DataType) -> None:
    for kind in set(map(type, values)):
        if kind is type(None):
            continue
        # bool is an int and datetime a date for Python, and neither is for Spark.
        excluded = (kind is bool and bool not in allowed and allowed != (object,)) or (
            issubclass(kind, datetime) and pa.types.is_date(type_)
        )
        if excluded or not issubclass(kind, allowed):
            raise Garbage(f"{kind.__name__} instead of {type_}")


def _check_range(values: list[Any], type_: pa.DataType) -> None:
    largest = float(np.finfo(np.float32).max)
    if any(v is not None and math.isfinite(v) and abs(v) > largest for v in values):
        raise Garbage(f"a number beyond the range of {type_}")
