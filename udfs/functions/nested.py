"""Types and values inside arrays, maps and structs.

Arrays are tuples, structs tuples of their fields, maps dicts in the order of their entries.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from spark_cep.udfs.expressions import Type

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES: Final = {
    "boolean": Type("bool"), "tinyint": Type("int", 8), "smallint": Type("int", 16),
    "int": Type("int", 32), "bigint": Type("int", 64), "float": Type("float", 32),
    "double": Type("float", 64), "string": Type("string"), "binary": Type("binary"),
    "date": Type("date"), "timestamp": Type("timestamp"), "timestamp_ntz": Type("timestamp_ntz"),
    "void": Type("null"),
}  # fmt: skip
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")


# ---- types ---------------------------------------------------------------------------------------


@lru_cache(1024)
def named_type(name: str) -> Type | None:
    """The type with a name of Spark; None if no function computes with it.

    >>> named_type("decimal(10,2)").scale, named_type("array<struct<x:int>>").sql
    (2, 'array<struct<x:int>>')
    """
    if name in _NAMES:
        return _NAMES[name]
    found = _DECIMAL.fullmatch(name)
    if found is not None:
        return Type("decimal", precision=int(found[1]), scale=int(found[2]))
    type_ = Type("other", sql=name)
    inside = element_type(type_) or map_types(type_) or struct_fields(type_)
    return None if inside is None else type_


def sql_of(type_: Type) -> str | None:
    """The name of Spark for a type; None for a type that cannot be inside of others."""
    if type_.kind == "decimal":
        return f"decimal({type_.precision},{type_.scale})"
    if type_.sql:
        return type_.sql
    return next((name for name, each in _NAMES.items() if each == type_), None)


def element_type(array: Type) -> Type | None:
    """The type of an array's elements; None if it is no array that functions compute with."""
    return named_type(array.sql[6:-1]) if array.sql.startswith("array<") else None


def array_of(element: Type) -> Type:
    return Type("other", sql=f"array<{sql_of(element)}>")


def map_types(type_: Type) -> tuple[Type, Type] | None:
    """The types of keys and values of a map.

    >>> map_types(Type("other", sql="map<string,decimal(4,2)>"))[1].scale
    2
    """
    if not type_.sql.startswith("map<"):
        return None
    key, value = (named_type(each) for each in _split(type_.sql[4:-1]))
    return None if key is None or value is None else (key, value)


def struct_fields(type_: Type) -> tuple[tuple[str, Type], ...] | None:
    """The names and types of a struct's fields.

    >>> [name for name, _ in struct_fields(Type("other", sql="struct<x:int,y:map<int,int>>"))]
    ['x', 'y']
    """
    if not type_.sql.startswith("struct<"):
        return None
    found = []
    for part in _split(type_.sql[7:-1]):
        name, _, inner = part.partition(":")
        known = named_type(inner)
        if known is None:
            return None
        found.append((name, known))
    return tuple(found)


def _split(inner: str) -> Iterator[str]:
    """The parts between the outer commas."""
    depth = begin = 0
    for place, each in enumerate(inner):
        depth += (each in "<(") - (each in ">)")
        if each == "," and not depth:
            yield inner[begin:place]
            begin = place + 1
    if inner:
        yield inner[begin:]


# ---- equality and order --------------------------------------------------------------------------


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def key_of(value: Any) -> Any:
    """What stands for a value in a dict or set: NaN equals NaN."""
    if isinstance(value, tuple):
        return tuple(map(key_of, value))
    return "NaN" if is_nan(value) else value


def key_to_value(key: Any, type_: Type) -> Any:
    """The key of a map for what stands for it."""
    return math.nan if type_.kind == "float" and key == "NaN" else key


def same(a: Any, b: Any) -> bool:
    return bool(key_of(a) == key_of(b))


@lru_cache(256)
def ranking(type_: Type, sql: str) -> Callable[[Any], Any] | None:  # noqa: PLR0911
    """A key by which Python orders values as Spark does; None for a type without an order. NULL is
    the least, NaN the greatest float. `sql`: of the type, which equal types need not share."""
    if type_.kind == "float":
        return lambda x: (0,) if x is None else (2,) if math.isnan(x) else (1, x)
    if type_.kind != "other":
        return lambda x: (0,) if x is None else (1, x)
    element, fields = element_type(type_), struct_fields(type_)
    if element is not None:
        inner = ranking(element, element.sql)
        if inner is None:
            return None
        return lambda x: (0,) if x is None else (1, tuple(map(inner, x)))
    if fields is None:
        return None
    each = [ranking(part, part.sql) for _, part in fields]
    known = [rank for rank in each if rank is not None]
    if len(known) < len(each):
        return None
    return lambda x: (0,) if x is None else (1, tuple(r(v) for r, v in zip(known, x, strict=True)))
