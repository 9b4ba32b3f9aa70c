"""Functions that take lambda functions: transform, filter, exists, aggregate and their kin.

The bodies are evaluated over the elements of many arrays at once: what a body reads of rows is
repeated for each element of the row's array. `aggregate` goes from place to place, over the arrays
that are long enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from spark_cep.udfs.expressions import Call, Cell, LambdaArgument
from spark_cep.udfs.functions.arrays import map_of
from spark_cep.udfs.functions.nested import key_to_value, map_types
from spark_cep.udfs.functions.registry import Failure
from spark_cep.udfs.values.functions import python_values, vector_of
from spark_cep.udfs.values.vectors import Vector

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ActiveElements, ErrorTally
    from spark_cep.udfs.values.vectors import EventColumns


class Evaluation(Protocol):
    """The evaluation of an expression around a lambda function."""

    columns: EventColumns
    tally: ErrorTally

    def value(self, node: Expression, active: ActiveElements) -> Vector: ...

    def leaf(self, node: Cell | LambdaArgument) -> Vector: ...

    def inside(
        self, take: Callable[[Vector], Vector], arguments: Mapping[int, Vector]
    ) -> Evaluation: ...


def apply_lambda(around: Evaluation, node: Call, active: ActiveElements) -> Vector:
    given = [each for each in node.arguments if not _is_lambda(each)]
    lambdas = [each for each in node.arguments if _is_lambda(each)]
    operands = [around.value(each, active) for each in given]
    leaves = [
        around.leaf(leaf)
        for each in lambdas
        for leaf in each.walk()
        if isinstance(leaf, Cell)
        or (isinstance(leaf, LambdaArgument) and leaf not in _bound_below(each))
    ]
    shapes = [
        part.shape
        for vector in (*operands, *leaves)
        for part in (vector.values, vector.valid)
        if part is not None
    ]
    shape = np.broadcast_shapes(*shapes)
    values = [
        python_values(each, _spread(vector, shape), around.columns)
        for each, vector in zip(given, operands, strict=True)
    ]
    work = _Application(around, node, lambdas, active, shape)
    results = _FUNCTIONS[node.name](work, *values)
    failed = np.array([isinstance(each, Failure) for each in results], np.bool_)
    vector = vector_of([None if f else r for f, r in zip(failed, results, strict=True)],
                       node.type, shape)  # fmt: skip
    if failed.any():
        around.tally.fail(failed.reshape(shape), None, active, always=True)
    return vector


def _is_lambda(node: Expression) -> bool:
    return isinstance(node, Call) and node.name == "->"


def _bound_below(node: Expression) -> set[Expression]:
    return {
        argument
        for each in node.walk()
        if isinstance(each, Call) and each.name == "->"
        for argument in each.arguments[1:]
    }


def _spread(vector: Vector, shape: tuple[int, ...]) -> Vector:
    valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape).ravel()
    return Vector(np.broadcast_to(vector.values, shape).ravel(), valid)


# An error of the evaluation itself, which is one only under ANSI, has been decided by the tally.
_FAILED = Failure(always=True)


@dataclass
class _Application:
    """One call. `shape`: that of the result, whose elements are numbered as if it were flat."""

    around: Evaluation
    node: Call
    lambdas: Sequence[Expression]
    active: ActiveElements
    shape: tuple[int, ...]

    def run(
        self, which: int, places: Sequence[int], arguments: Sequence[Sequence[Any]]
    ) -> list[Any]:
        """The body of a lambda, for elements at these places of the result; `arguments` has a list
        for each argument. An element that fails is a Failure."""
        if not len(places):
            return []
        body, *variables = self.lambdas[which].children()
        at = np.asarray(places, np.int64)

        def take(vector: Vector) -> Vector:
            spread = _spread(vector, self.shape)
            return Vector(spread.values[at], None if spread.valid is None else spread.valid[at])

        def active() -> Array | None:
            mask = self.active()
            return None if mask is None else np.broadcast_to(mask, self.shape).ravel()[at]

        bound = {
            variable.number: vector_of(list(values), variable.type, (len(at),))
            for variable, values in zip(variables, arguments, strict=False)
            if isinstance(variable, LambdaArgument)
        }
        inner = self.around.inside(take, bound)
        with self.around.tally.separate() as failures:
            vector = inner.value(body, active)
        found = python_values(body, _spread(vector, (len(at),)), self.around.columns)
        for each in failures:
            for place in np.flatnonzero(np.broadcast_to(each, (len(at),))):
                found[place] = _FAILED
        return found

    def each(self, which: int, arrays: Sequence[Sequence[Sequence[Any]] | None]) -> list[list[Any]]:
        """The body for each element of each array; an element is a row of arguments."""
        places = [n for n, array in enumerate(arrays) if array is not None for _ in array]
        elements = [element for array in arrays if array is not None for element in array]
        found = iter(self.run(which, places, list(zip(*elements, strict=True))))
        return [[] if array is None else [next(found) for _ in array] for array in arrays]


def _numbered(array: Sequence[Any] | None) -> list[tuple[Any, int]] | None:
    return None if array is None else [(each, n) for n, each in enumerate(array)]


def _failing(elements: Sequence[Any]) -> bool:
    return any(isinstance(each, Failure) for each in elements)


# ---- arrays --------------------------------------------------------------------------------------


def _transform(work: _Application, arrays: list[Any]) -> list[Any]:
    found = work.each(0, [_numbered(each) for each in arrays])
    return [
        None if array is None else _FAILED if _failing(each) else tuple(each)
        for array, each in zip(arrays, found, strict=True)
    ]


def _filter(work: _Application, arrays: list[Any]) -> list[Any]:
    found = work.each(0, [_numbered(each) for each in arrays])
    return [
        None
        if array is None
        else _FAILED
        if _failing(holds)
        else tuple(x for x, kept in zip(array, holds, strict=True) if kept)
        for array, holds in zip(arrays, found, strict=True)
    ]


def _decide(decisive: bool) -> Callable[[_Application, list[Any]], list[Any]]:
    """exists (TRUE decides) and forall: elements behind a decisive one are not evaluated."""

    def decided(holds: Sequence[Any]) -> Any:
        for each in holds:
            if isinstance(each, Failure) or each is decisive:
                return each
        return None if None in holds else not decisive

    def run(work: _Application, arrays: list[Any]) -> list[Any]:
        found = work.each(0, [_numbered(each) for each in arrays])
        return [
            None if array is None else decided(holds)
            for array, holds in zip(arrays, found, strict=True)
        ]

    return run


def _aggregate(work: _Application, arrays: list[Any], zeros: list[Any]) -> list[Any]:
    found = [None if array is None else zero for array, zero in zip(arrays, zeros, strict=True)]
    longest = max((len(array) for array in arrays if array is not None), default=0)
    for step in range(longest):
        places = [
            n
            for n, array in enumerate(arrays)
            if array is not None and len(array) > step and not isinstance(found[n], Failure)
        ]
        elements = [arrays[n][step] for n in places]
        merged = work.run(0, places, [[found[n] for n in places], elements])
        for n, each in zip(places, merged, strict=True):
            found[n] = each
    if len(work.lambdas) > 1:
        places = [
            n
            for n, array in enumerate(arrays)
            if array is not None and not isinstance(found[n], Failure)
        ]
        for n, each in zip(places, work.run(1, places, [[found[n] for n in places]]), strict=True):
            found[n] = each
    return found


def _zip_with(work: _Application, left: list[Any], right: list[Any]) -> list[Any]:
    pairs = [
        None if a is None or b is None else list(zip_longest(a, b))
        for a, b in zip(left, right, strict=True)
    ]
    return [
        None if pair is None else _FAILED if _failing(each) else tuple(each)
        for pair, each in zip(pairs, work.each(0, pairs), strict=True)
    ]


# ---- maps ----------------------------------------------------------------------------------------


def _entries(work: _Application, maps: list[Any]) -> list[Any]:
    """The entries of the maps as rows of arguments."""
    types = map_types(work.node.arguments[0].type)
    assert types is not None
    return [
        None
        if each is None
        else [(key_to_value(key, types[0]), value) for key, value in each.items()]
        for each in maps
    ]


def _of_entries(
    make: Callable[[dict[Any, Any], list[Any]], Any],
) -> Callable[[_Application, list[Any]], list[Any]]:
    def run(work: _Application, maps: list[Any]) -> list[Any]:
        found = work.each(0, _entries(work, maps))
        return [
            None if given is None else _FAILED if _failing(each) else make(given, each)
            for given, each in zip(maps, found, strict=True)
        ]

    return run


def _new_keys(given: dict[Any, Any], keys: list[Any]) -> Any:
    try:
        return map_of(zip(keys, given.values(), strict=True))
    except Failure as failure:
        return failure


def _map_zip_with(work: _Application, left: list[Any], right: list[Any]) -> list[Any]:
    types = map_types(work.node.arguments[0].type)
    assert types is not None
    maps = [
        None if a is None or b is None else {key: (a.get(key), b.get(key)) for key in {**a, **b}}
        for a, b in zip(left, right, strict=True)
    ]
    rows = [
        None if each is None else [(key_to_value(k, types[0]), *pair) for k, pair in each.items()]
        for each in maps
    ]
    return [
        None
        if given is None
        else _FAILED
        if _failing(each)
        else dict(zip(given, each, strict=True))
        for given, each in zip(maps, work.each(0, rows), strict=True)
    ]


_FUNCTIONS: dict[str, Callable[..., list[Any]]] = {
    "transform": _transform,
    "filter": _filter,
    "exists": _decide(True),
    "forall": _decide(False),
    "aggregate": _aggregate,
    "zip_with": _zip_with,
    "map_filter": _of_entries(
        lambda given, holds: {
            k: v for (k, v), kept in zip(given.items(), holds, strict=True) if kept
        }
    ),
    "transform_values": _of_entries(lambda given, values: dict(zip(given, values, strict=True))),
    "transform_keys": _of_entries(_new_keys),
    "map_zip_with": _map_zip_with,
}
LAMBDA_FUNCTIONS = frozenset(_FUNCTIONS)
