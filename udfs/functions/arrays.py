"""Functions of arrays, maps and structs."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from spark_cep.udfs.functions.nested import (
    element_type,
    key_of,
    key_to_value,
    map_types,
    ranking,
    same,
)
from spark_cep.udfs.functions.registry import Binding, Failure, Run, bound_function, function

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type

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
    if any(each is not None and same(each, value) for each in values):
        return True
    return None if None in values else False


@function("array_position", "array element")
def _position(values: tuple[Any, ...], value: Any) -> int:
    places = (n for n, each in enumerate(values, 1) if each is not None and same(each, value))
    return next(places, 0)


@function("arrays_overlap", "array array")
def _overlap(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool | None:
    known = {key_of(each) for each in a if each is not None}
    if any(each is not None and key_of(each) in known for each in b):
        return True
    return None if a and b and (None in a or None in b) else False


# ---- extremes and order --------------------------------------------------------------------------


def _order(type_: Type | None) -> Any:
    assert type_ is not None
    return ranking(type_, type_.sql)


def _element_order(binding: Binding) -> Any:
    return _order(element_type(binding.arguments[0]))


@bound_function("array_max", "sortable")
def _most(binding: Binding) -> Run:
    rank = _element_order(binding)
    return lambda values: max((x for x in values if x is not None), key=rank, default=None)


@bound_function("array_min", "sortable")
def _least(binding: Binding) -> Run:
    rank = _element_order(binding)
    return lambda values: min((x for x in values if x is not None), key=rank, default=None)


@bound_function("sort_array", "sortable bool?")
def _sort(binding: Binding) -> Run:
    """NULLs are first, or last in descending order."""
    rank = _element_order(binding)
    return lambda values, up=True: tuple(sorted(values, key=rank, reverse=not up))


@bound_function("array_sort", "sortable")
def _sort_with_nulls_last(binding: Binding) -> Run:
    rank = _element_order(binding)

    def run(values: tuple[Any, ...]) -> tuple[Any, ...]:
        known = sorted((x for x in values if x is not None), key=rank)
        return (*known, *[None] * (len(values) - len(known)))

    return run


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
    return tuple(each for each in values if each is None or not same(each, value))


@function("slice", "array int int")
def _slice(values: tuple[Any, ...], start: int, length: int) -> tuple[Any, ...]:
    if start == 0 or length < 0:
        raise Failure(always=True)
    begin = start - 1 if start > 0 else start + len(values)
    return () if begin < 0 else values[begin : begin + length]


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    """Zeros come out as 0.0, also where they went in as -0.0."""
    found: dict[Any, Any] = {}
    for each in values:
        found.setdefault(key_of(each), 0.0 if isinstance(each, float) and not each else each)
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


@function("array_compact", "array")
def _compact(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each for each in values if each is not None)


@function("flatten", "array")
def _flatten(arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return None if None in arrays else tuple(each for array in arrays for each in array)


@function("array_repeat", "element_of_result int", takes_null=True)
def _repeat(value: Any, count: int | None) -> tuple[Any, ...] | None:
    if count is None:
        return None
    if count > _MOST_ELEMENTS:
        raise Failure(always=True)
    return (value,) * max(count, 0)


@function("array_insert", "result int element_of_result", takes_null=True)
def _insert(values: tuple[Any, ...] | None, place: int | None, value: Any) -> Any:
    if values is None or place is None:
        return None
    if place == 0 or abs(place) > _MOST_ELEMENTS:
        raise Failure(always=True)
    size = len(values)
    if place > 0:
        return (*values[: place - 1], *[None] * (place - 1 - size), value, *values[place - 1 :])
    at = size + place + 1
    if at >= 0:
        return (*values[:at], value, *values[at:])
    return (value, *[None] * -at, *values)


_MOST_ELEMENTS: Final = 2_147_483_632


@function("arrays_zip", "array*")
def _zip(*arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(zip_longest(*arrays))


@function("sequence", "element_of_result element_of_result element_of_result?")
def _sequence(start: int, stop: int, step: int | None = None) -> tuple[int, ...]:
    if step is None:
        step = 1 if start <= stop else -1
    if (step == 0 and start != stop) or (stop - start) * step < 0:
        raise Failure(always=True)
    if step and (stop - start) // step >= _MOST_ELEMENTS:
        raise Failure(always=True)
    return (start,) if step == 0 else tuple(range(start, stop + (1 if step > 0 else -1), step))


# ---- maps ----------------------------------------------------------------------------------------


def map_of(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A key that is NULL or comes twice is an error."""
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key is None or key in found:
            raise Failure(always=True)
        found[key] = value
    return found


@function("map", "any*", takes_null=True)
def _map(*parts: Any) -> dict[Any, Any]:
    return map_of(zip(parts[::2], parts[1::2], strict=True))


@function("map_from_arrays", "array array")
def _map_from_arrays(keys: tuple[Any, ...], values: tuple[Any, ...]) -> dict[Any, Any]:
    if len(keys) != len(values):
        raise Failure(always=True)
    return map_of(zip(keys, values, strict=True))


@function("map_from_entries", "array")
def _map_from_entries(entries: tuple[Any, ...]) -> dict[Any, Any] | None:
    return None if None in entries else map_of(entries)


@function("map_concat", "result*")
def _map_concat(*maps: dict[Any, Any]) -> dict[Any, Any]:
    return map_of(pair for each in maps for pair in each.items())


def _keys(binding: Binding) -> Any:
    types = map_types(binding.arguments[0])
    assert types is not None
    return lambda values: (key_to_value(key, types[0]) for key in values)


@bound_function("map_keys", "map")
def _map_keys(binding: Binding) -> Run:
    keys = _keys(binding)
    return lambda values: tuple(keys(values))


@function("map_values", "map")
def _map_values(values: dict[Any, Any]) -> tuple[Any, ...]:
    return tuple(values.values())


@bound_function("map_entries", "map")
def _map_entries(binding: Binding) -> Run:
    keys = _keys(binding)
    return lambda values: tuple(zip(keys(values), values.values(), strict=True))


# ---- structs, and nested values as a whole -------------------------------------------------------


@function("named_struct", "any*", takes_null=True)
def _struct(*values: Any) -> tuple[Any, ...]:
    return values


@function("field", "any int")
def _field(values: tuple[Any, ...], place: int) -> Any:
    return values[place]


@function("fields", "array int")
def _fields(values: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    """A field of every struct in an array."""
    return tuple(None if each is None else each[place] for each in values)


def _bind_comparison(name: str) -> Any:
    def bind(binding: Binding) -> Run:
        """NULLs inside are equal, and less than any value."""
        rank = _order(binding.arguments[0])
        compare = _COMPARE[name]
        return lambda a, b: compare(rank(a), rank(b))

    return bind


_COMPARE: Final[dict[str, Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
for _name in _COMPARE:
    bound_function(f"nested{_name}", "any any")(_bind_comparison(_name))
bound_function("nested<=>", "any any", takes_null=True)(_bind_comparison("<=>"))
_COMPARE["<=>"] = operator.eq


@bound_function("least_nested", "result*", takes_null=True)
def _least_nested(binding: Binding) -> Run:
    rank = _order(binding.result)
    return lambda *values: min((x for x in values if x is not None), key=rank, default=None)


@bound_function("greatest_nested", "result*", takes_null=True)
def _greatest_nested(binding: Binding) -> Run:
    rank = _order(binding.result)
    return lambda *values: max((x for x in values if x is not None), key=rank, default=None)
