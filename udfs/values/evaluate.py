"""Evaluates cross-variable expressions over vectors, with Spark SQL's meaning.

Always holds: the result has the shape that all operands broadcast to; nothing is raised for the
data's sake (see tally.py). One walk of the tree evaluates each node over all elements, branches
not taken included: their errors do not count, and a vectorized CASE costs less than splitting
the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import (
    Call,
    Cell,
    Constant,
    Expression,
    Member,
    RemoteCall,
    UserCall,
)
from spark_cep.udfs.values.arithmetic import Operation, binary, unary
from spark_cep.udfs.values.comparison import (
    COMPARISONS,
    both,
    compare,
    either,
    is_false,
    is_nan,
    is_null,
    is_true,
    negate,
    null_safe_equal,
    valid_mask,
)
from spark_cep.udfs.values.conversion import cast
from spark_cep.udfs.values.folds import fold
from spark_cep.udfs.values.remote_values import (
    ids_of,
    remote_member,
    remote_value,
    shipped_member,
)
from spark_cep.udfs.values.selection import alike, choose, coalesce, extreme
from spark_cep.udfs.values.tally import Active, Tally, everywhere
from spark_cep.udfs.values.user_calls import call
from spark_cep.udfs.values.vectors import Columns, Vector

if TYPE_CHECKING:
    from spark_cep.udfs.values.arrow_values import Array

__all__ = ["Read", "Tally", "evaluate", "fold", "holds", "ids_in"]

Read = Callable[[Cell], Vector]
_T = TypeVar("_T")


def evaluate(expression: Expression, read: Read, columns: Columns, tally: Tally) -> Vector:
    """The expression's value over whatever shapes `read` gives."""
    with np.errstate(all="ignore"):
        vector = _Walk(read, columns, tally).value(expression, everywhere)
    if vector.valid is None or vector.valid.shape == vector.values.shape:
        return vector
    shape = np.broadcast_shapes(vector.values.shape, vector.valid.shape)
    return Vector(
        np.broadcast_to(vector.values, shape),
        np.broadcast_to(vector.valid, shape),
        vector.nan_free,
    )


def ids_in(node: RemoteCall, read: Read, columns: Columns, tally: Tally) -> Array:
    """What a remote source knows the keys of a call by, wherever they will be asked for. A key
    that fails is none; it counts when the condition itself is evaluated."""
    with np.errstate(all="ignore"), tally.unnoticed():
        return _Walk(read, columns, tally).ids(node, everywhere)


def holds(expression: Expression, read: Read, columns: Columns, tally: Tally) -> Array:
    """Where a condition is TRUE, which is neither FALSE nor NULL."""
    return tally.without_failed(is_true(evaluate(expression, read, columns, tally)))


class _Walk:
    def __init__(self, read: Read, columns: Columns, tally: Tally) -> None:
        self._read = read
        self._columns = columns
        self._tally = tally

    def value(self, node: Expression, active: Active) -> Vector:
        if isinstance(node, Cell):
            return self._read(node)
        if isinstance(node, Constant):
            return self._columns.constant(node)
        if isinstance(node, UserCall):
            arguments = [self.value(argument, active) for argument in node.arguments]
            return call(node, arguments, self._columns)
        if isinstance(node, Call):
            return self._call(node, active)
        if isinstance(node, RemoteCall):
            return remote_value(node, self.ids(node, active), self._columns, self._tally)
        if isinstance(node, Member):
            return self._member(node, active)
        raise CepError(f"the engine cannot evaluate {type(node).__name__}")

    def _call(self, node: Call, active: Active) -> Vector:
        lazily = _LAZY.get(node.name)
        if lazily is not None:
            return lazily(self, node, active)
        arguments = [self.value(argument, active) for argument in node.arguments]
        if node.name in _SIMPLE:
            return _SIMPLE[node.name](*arguments)
        if node.name in _RELATIONS:
            types = [argument.type for argument in node.arguments]
            return _RELATIONS[node.name](node, alike(arguments, types, self._columns))
        if node.name in _NUMERIC:
            types_ = tuple(argument.type for argument in node.arguments)
            operation = Operation(node.name, node.type, types_, self._tally, active)
            return _NUMERIC[node.name](operation, *arguments)
        raise CepError(f"the engine does not know the operation {node.name}")

    def ids(self, node: RemoteCall, active: Active) -> Array:
        """What remote keys are known by."""
        value = lambda argument: self.value(argument, active)  # noqa: E731
        return ids_of(node, self._read, value, self._columns, self._tally)

    def _member(self, node: Member, active: Active) -> Vector:
        value = self.value(node.value, active)
        if isinstance(node.array, RemoteCall):
            ids = self.ids(node.array, active)
            return remote_member(node, ids, value, self._columns, self._tally)
        return shipped_member(node, self.value(node.array, active), value, self._columns)

    def and_(self, node: Call, active: Active) -> Vector:
        result = self.value(node.arguments[0], active)
        for argument in node.arguments[1:]:
            right = self.value(argument, _unless(active, is_false, result))
            result = both(result, right)
        return result

    def or_(self, node: Call, active: Active) -> Vector:
        result = self.value(node.arguments[0], active)
        for argument in node.arguments[1:]:
            right = self.value(argument, _unless(active, is_true, result))
            result = either(result, right)
        return result

    def in_(self, node: Call, active: Active) -> Vector:
        """An OR of equalities; the items after the first equal one are not evaluated."""
        head, *items = node.arguments
        value = self.value(head, active)
        present = _unless(active, lambda vector: ~valid_mask(vector), value)
        result = Vector(np.zeros(value.values.shape, np.bool_))
        for item in items:
            there = self.value(item, _unless(present, is_true, result))
            equal = compare("=", *alike([value, there], [head.type, item.type], self._columns))
            result = either(result, equal)
        return result

    def if_(self, node: Call, active: Active) -> Vector:
        condition, then, otherwise = node.arguments
        taken = is_true(self.value(condition, active))
        values = [
            self.value(then, _unless(active, np.logical_not, taken)),
            self.value(otherwise, _unless(active, np.asarray, taken)),
        ]
        first, second = alike(values, [then.type, otherwise.type], self._columns)
        return choose(taken, first, second, node.type)

    def coalesce(self, node: Call, active: Active) -> Vector:
        """The arguments after the first that is not NULL are not evaluated."""
        result = Vector(np.zeros((), np.bool_), np.zeros((), np.bool_))
        for argument in node.arguments:
            value = self.value(argument, _unless(active, valid_mask, result))
            first, second = alike([result, value], [node.type, argument.type], self._columns)
            result = coalesce(first, second, node.type)
        return result

    def nullif(self, node: Call, active: Active) -> Vector:
        left, right = (self.value(argument, active) for argument in node.arguments)
        types = [argument.type for argument in node.arguments]
        equal = is_true(compare("=", *alike([left, right], types, self._columns)))
        nothing = Vector(np.zeros((), left.values.dtype), np.zeros((), np.bool_))
        return choose(equal, nothing, left, node.type)


def _unless(active: Active, decides: Callable[[_T], Array], left: _T) -> Active:
    """`active` without the elements that `left` decides."""

    def mask() -> Array | None:
        outer, open_ = active(), ~decides(left)
        return open_ if outer is None else outer & open_

    return mask


_SIMPLE: dict[str, Callable[..., Vector]] = {
    "not": negate,
    "is_null": is_null,
    "is_not_null": lambda vector: negate(is_null(vector)),
    "isnan": is_nan,
}
_RELATIONS: dict[str, Callable[[Call, list[Vector]], Vector]] = {
    **dict.fromkeys(COMPARISONS, lambda node, operands: compare(node.name, *operands)),
    "<=>": lambda _, operands: null_safe_equal(*operands),
    "least": extreme,
    "greatest": extreme,
}
_NUMERIC: dict[str, Callable[..., Vector]] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "div"), binary),
    **dict.fromkeys(("neg", "abs"), unary),
    "cast": cast,
}
_LAZY: dict[str, Callable[[_Walk, Call, Active], Vector]] = {
    "and": _Walk.and_,
    "or": _Walk.or_,
    "in": _Walk.in_,
    "if": _Walk.if_,
    "coalesce": _Walk.coalesce,
    "nullif": _Walk.nullif,
}
