"""Functions of arrays, which are tuples, and of maps, which are dicts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final

from spark_cep.udfs.expressions import Type
from spark_cep.udfs.functions.registry import Binding, Failure, Run, bound_function, function

_NAMES: Final = {
    "boolean": Type("bool"), "tinyint": Type("int", 8), "smallint": Type("int", 16),
    "int": Type("int", 32), "bigint": Type("int", 64), "float": Type("float", 32),
    "double": Type("float", 64), "string": Type("string"), "binary": Type("binary"),
    "date": Type("date"), "timestamp": Type("timestamp"), "timestamp_ntz": Type("timestamp_ntz"),
    "void": Type("null"),
}  # fmt: skip
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")


def named_type(name: str) -> Type | None:
    """The type with a name of Spark; None if no function computes with it.

    >>> named_type("decimal(10,2)").scale, named_type("array<int>").sql
    (2, 'array<int>')
    """
    if name in _NAMES:
        return _NAMES[name]
    found = _DECIMAL.fullmatch(name)
    if found is not None:
        return Type("decimal", precision=int(found[1]), scale=int(found[2]))
    is_nested = name.startswith("array<") and named_type(name[6:-1]) is not None
    return Type("other", sql=name) if is_nested else None


def element_type(array: Type) -> Type | None:
    """The type of an array's elements; None if it is no array that functions compute with."""
    return named_type(array.sql[6:-1]) if array.sql.startswith("array<") else None


def map_types(type_: Type) -> tuple[Type, Type] | None:
    """The types of keys and values of a map.

    >>> map_types(Type("other", sql="map<string,decimal(4,2)>"))[1].scale
    2
    """
    if not type_.sql.startswith("map<"):
        return None
    inner, depth = type_.sql[4:-1], 0
    for place, each in enumerate(inner):
        depth += (each in "<(") - (each in ">)")
        if each == "," and not depth:
            key, value = named_type(inner[:place]), named_type(inner[place + 1 :])
            return None if key is None or value is None else (key, value)
    return None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (_is_nan(a) and _is_nan(b))


def key_of(value: Any) -> Any:
    """What stands for a value in a dict or set: NaN equals NaN."""
    return "NaN" if _is_nan(value) else value


# ---- sizes and elements --------------------------------------------------------------------------


@bound_function("size cardinality", "any", takes_null=True)
def _size(binding: Binding) -> Run:
    """The size of NULL is -1 outside of ANSI."""
    nothing = None if binding.ansi else -1
    return lambda values: nothing if values is None else len(values)


@function("array_size", "array")
def _array_size(values: tuple[Any, ...]) -> int:
    return len(values)


@function("element_at_array", "array int")
def _element_at(values: tuple[Any, ...], place: int) -> Any:
    if place == 0:
        raise Failure(always=True)
    if abs(place) > len(values):
        raise Failure
    return values[place - 1 if place > 0 else place]


@function("try_element_at_array", "array int")
def _try_element_at(values: tuple[Any, ...], place: int) -> Any:
    if place == 0:
        raise Failure(always=True)
    return None if abs(place) > len(values) else values[place - 1 if place > 0 else place]


@function("array_item", "array int")
def _item(values: tuple[Any, ...], place: int) -> Any:
    if not 0 <= place < len(values):
        raise Failure
    return values[place]


@function("get", "array int")
def _get(values: tuple[Any, ...], place: int) -> Any:
    return values[place] if 0 <= place < len(values) else None


@function("map_item", "map key")
def _map_item(values: dict[Any, Any], key: Any) -> Any:
    return values.get(key_of(key))


@function("map_contains_key", "map key")
def _has_key(values: dict[Any, Any], key: Any) -> bool:
    return key_of(key) in values


# ---- search --------------------------------------------------------------------------------------


@function("array_contains", "array element")
def _contains(values: tuple[Any, ...], value: Any) -> bool | None:
    if any(each is not None and _same(each, value) for each in values):
        return True
    return None if None in values else False


@function("array_position", "array element")
def _position(values: tuple[Any, ...], value: Any) -> int:
    places = (n for n, each in enumerate(values, 1) if each is not None and _same(each, value))
    return next(places, 0)


@function("arrays_overlap", "array array")
def _overlap(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool | None:
    known = {key_of(each) for each in a if each is not None}
    if any(each is not None and key_of(each) in known for each in b):
        return True
    return None if a and b and (None in a or None in b) else False


# ---- extremes and order --------------------------------------------------------------------------


def _rank(value: Any) -> Any:
    """NaN is the largest float."""
    return (_is_nan(value), 0.0 if _is_nan(value) else value) if isinstance(value, float) else value


@function("array_max", "array")
def _most(values: tuple[Any, ...]) -> Any:
    return max((each for each in values if each is not None), key=_rank, default=None)


@function("array_min", "array")
def _least(values: tuple[Any, ...]) -> Any:
    return min((each for each in values if each is not None), key=_rank, default=None)


@function("sort_array", "array bool?")
def _sort(values: tuple[Any, ...], ascending: bool = True) -> tuple[Any, ...]:
    known = sorted((each for each in values if each is not None), key=_rank, reverse=not ascending)
    missing = (None,) * (len(values) - len(known))
    return (*missing, *known) if ascending else (*known, *missing)


@function("reverse_array", "array")
def _reverse(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values[::-1]


# ---- making arrays of arrays ---------------------------------------------------------------------


@function("array", "element_of_result*", takes_null=True)
def _array(*values: Any) -> tuple[Any, ...]:
    return values


@function("concat_arrays", "result*")
def _concat(*arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each for array in arrays for each in array)


@function("array_append", "result element_of_result", takes_null=True)
def _append(values: tuple[Any, ...] | None, value: Any) -> tuple[Any, ...] | None:
    return None if values is None else (*values, value)


@function("array_prepend", "result element_of_result", takes_null=True)
def _prepend(values: tuple[Any, ...] | None, value: Any) -> tuple[Any, ...] | None:
    return None if values is None else (value, *values)


@function("array_remove", "array element")
def _remove(values: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return tuple(each for each in values if each is None or not _same(each, value))


@function("slice", "array int int")
def _slice(values: tuple[Any, ...], start: int, length: int) -> tuple[Any, ...]:
    if start == 0 or length < 0:
        raise Failure(always=True)
    begin = start - 1 if start > 0 else start + len(values)
    return () if begin < 0 else values[begin : begin + length]


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    found: dict[Any, Any] = {}
    for each in values:
        found.setdefault(key_of(each), each)
    return tuple(found.values())


@function("array_distinct", "array")
def _distinct_values(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return _distinct(values)


@function("array_union", "result result")
def _union(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return _distinct((*a, *b))


@function("array_intersect", "result result")
def _intersect(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    known = set(map(key_of, b))
    return tuple(each for each in _distinct(a) if key_of(each) in known)


@function("array_except", "result result")
def _except(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    known = set(map(key_of, b))
    return tuple(each for each in _distinct(a) if key_of(each) not in known)


@function("array_join", "strings string string?", takes_null=True)
def _join(values: tuple[Any, ...] | None, separator: str | None, *rest: str | None) -> str | None:
    if values is None or separator is None or None in rest:
        return None
    instead = rest[0] if rest else None
    words = (instead if each is None else each for each in values)
    return separator.join(each for each in words if each is not None)
