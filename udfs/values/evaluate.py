"""Evaluates cross-variable expressions over vectors, with Spark SQL's meaning.

Always holds: the result has the shape that all operands broadcast to; data never raises an error
(see `tally.py`). One walk of the tree evaluates each node over all elements, branches not taken
included: their errors do not count, and a vectorized CASE costs less than splitting the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import (
    Call,
    Cell,
    Constant,
    Expression,
    LambdaArgument,
    Member,
    RemoteCall,
    UserCall,
)
from spark_cep.udfs.functions.session import SessionFunction
from spark_cep.udfs.values.calls import (
    CellSource,
    call_function,
    check_column_member,
    check_remote_member,
    identify_keys,
    read_remote_value,
)
from spark_cep.udfs.values.folds import fold_list
from spark_cep.udfs.values.functions import (
    apply_function,
    as_objects,
    call_session_function,
    is_function,
)
from spark_cep.udfs.values.lambdas import LAMBDA_FUNCTIONS, apply_lambda
from spark_cep.udfs.values.operators import (
    COMPARISON_NAMES,
    Operation,
    apply_binary,
    apply_cast,
    apply_unary,
    choose_values,
    coalesce_values,
    compare,
    is_false,
    is_nan,
    is_null,
    is_true,
    least_or_greatest,
    logical_and,
    logical_not,
    logical_or,
    null_safe_equal,
    unify_words,
    valid_mask,
)
from spark_cep.udfs.values.tally import ActiveElements, ErrorTally, all_active
from spark_cep.udfs.values.vectors import EventColumns, Vector

if TYPE_CHECKING:
    from spark_cep.udfs.values.arrow_values import Array


__all__ = [
    "CellSource",
    "ErrorTally",
    "condition_holds",
    "evaluate_expression",
    "find_key_ids",
    "fold_list",
]

_T = TypeVar("_T")


def evaluate_expression(
    expression: Expression, read: CellSource, columns: EventColumns, tally: ErrorTally
) -> Vector:
    """The value of an expression; its shape is that to which the vectors of `read` broadcast."""
    with np.errstate(all="ignore"):
        vector = _Evaluator(read, columns, tally).value(expression, all_active)
    if vector.valid is None or vector.valid.shape == vector.values.shape:
        return vector
    shape = np.broadcast_shapes(vector.values.shape, vector.valid.shape)
    return Vector(
        np.broadcast_to(vector.values, shape),
        np.broadcast_to(vector.valid, shape),
        vector.nan_free,
    )


def find_key_ids(
    node: RemoteCall, read: CellSource, columns: EventColumns, tally: ErrorTally
) -> Array:
    """The ids of a call's keys in its remote source, for every element.

    A key whose evaluation fails has none; the error counts when the condition itself is evaluated.
    """
    with np.errstate(all="ignore"), tally.uncounted():
        return _Evaluator(read, columns, tally).ids(node, all_active)


def condition_holds(
    expression: Expression, read: CellSource, columns: EventColumns, tally: ErrorTally
) -> Array:
    """Where a condition is TRUE, not FALSE or NULL."""
    return tally.without_failed(is_true(evaluate_expression(expression, read, columns, tally)))


class _Evaluator:
    """`bound`: the elements that arguments of lambda functions stand for."""

    def __init__(
        self,
        read: CellSource,
        columns: EventColumns,
        tally: ErrorTally,
        bound: Mapping[int, Vector] | None = None,
    ) -> None:
        self._read = read
        self.columns = columns
        self.tally = tally
        self._bound = bound or {}

    def leaf(self, node: Cell | LambdaArgument) -> Vector:
        return self._read(node) if isinstance(node, Cell) else self._bound[node.number]

    def inside(
        self, take: Callable[[Vector], Vector], arguments: Mapping[int, Vector]
    ) -> _Evaluator:
        """The evaluator of a lambda function's body."""
        bound = {**{number: take(each) for number, each in self._bound.items()}, **arguments}
        return _Evaluator(lambda cell: take(self._read(cell)), self.columns, self.tally, bound)

    def value(self, node: Expression, active: ActiveElements) -> Vector:  # noqa: PLR0911
        if isinstance(node, Cell | LambdaArgument):
            return self.leaf(node)
        if isinstance(node, Constant):
            return self.columns.constant(node)
        if isinstance(node, UserCall):
            arguments = [self.value(argument, active) for argument in node.arguments]
            if isinstance(node.function, SessionFunction) and node.function.form == "rows":
                return call_session_function(node, node.function, arguments, self.columns)
            return call_function(node, arguments, self.columns)
        if isinstance(node, Call):
            return self._call(node, active)
        if isinstance(node, RemoteCall):
            return read_remote_value(node, self.ids(node, active), self.columns, self.tally)
        if isinstance(node, Member):
            return self._member(node, active)
        raise CepError(f"the engine cannot evaluate {type(node).__name__}")

    def _call(self, node: Call, active: ActiveElements) -> Vector:
        lazily = _EVALUATE_LAZILY.get(node.name)
        if lazily is not None:
            return lazily(self, node, active)
        arguments = [self.value(argument, active) for argument in node.arguments]
        if node.name in _NULL_TESTS:
            return _NULL_TESTS[node.name](*arguments)
        if node.name in _COMPARE:
            types = [argument.type for argument in node.arguments]
            return _COMPARE[node.name](node, unify_words(arguments, types, self.columns))
        if node.name in _COMPUTE:
            types_ = tuple(argument.type for argument in node.arguments)
            operation = Operation(node.name, node.type, types_, self.tally, active)
            return _COMPUTE[node.name](operation, *arguments)
        if is_function(node.name):
            return apply_function(node, arguments, self.columns, self.tally, active)
        raise CepError(f"the engine does not have the operation {node.name}")

    def ids(self, node: RemoteCall, active: ActiveElements) -> Array:
        """The ids of the keys of a remote call."""
        value = lambda argument: self.value(argument, active)  # noqa: E731
        return identify_keys(node, self._read, value, self.columns, self.tally)

    def _member(self, node: Member, active: ActiveElements) -> Vector:
        value = self.value(node.value, active)
        if isinstance(node.array, RemoteCall):
            ids = self.ids(node.array, active)
            return check_remote_member(node, ids, value, self.columns, self.tally)
        return check_column_member(node, self.value(node.array, active), value, self.columns)

    def and_(self, node: Call, active: ActiveElements) -> Vector:
        result = self.value(node.arguments[0], active)
        for argument in node.arguments[1:]:
            right = self.value(argument, _restrict_active(active, is_false, result))
            result = logical_and(result, right)
        return result

    def or_(self, node: Call, active: ActiveElements) -> Vector:
        result = self.value(node.arguments[0], active)
        for argument in node.arguments[1:]:
            right = self.value(argument, _restrict_active(active, is_true, result))
            result = logical_or(result, right)
        return result

    def in_(self, node: Call, active: ActiveElements) -> Vector:
        """An OR of equalities; the items after the first equal one are not active."""
        head, *items = node.arguments
        value = self.value(head, active)
        present = _restrict_active(active, lambda vector: ~valid_mask(vector), value)
        result = Vector(np.zeros(value.values.shape, np.bool_))
        for item in items:
            other = self.value(item, _restrict_active(present, is_true, result))
            equal = compare("=", *unify_words([value, other], [head.type, item.type], self.columns))
            result = logical_or(result, equal)
        return result

    def if_(self, node: Call, active: ActiveElements) -> Vector:
        condition, then, otherwise = node.arguments
        taken = is_true(self.value(condition, active))
        values = [
            self.value(then, _restrict_active(active, np.logical_not, taken)),
            self.value(otherwise, _restrict_active(active, np.asarray, taken)),
        ]
        if node.type.kind == "other":
            values = [
                as_objects(each, value, self.columns)
                for each, value in zip((then, otherwise), values, strict=True)
            ]
        first, second = unify_words(values, [then.type, otherwise.type], self.columns)
        return choose_values(taken, first, second, node.type)

    def coalesce(self, node: Call, active: ActiveElements) -> Vector:
        """The arguments after the first that is not NULL are not active."""
        result = Vector(np.zeros((), np.bool_), np.zeros((), np.bool_))
        for argument in node.arguments:
            value = self.value(argument, _restrict_active(active, valid_mask, result))
            first, second = unify_words([result, value], [node.type, argument.type], self.columns)
            result = coalesce_values(first, second, node.type)
        return result

    def nullif(self, node: Call, active: ActiveElements) -> Vector:
        left, right = (self.value(argument, active) for argument in node.arguments)
        types = [argument.type for argument in node.arguments]
        equal = is_true(compare("=", *unify_words([left, right], types, self.columns)))
        null = Vector(np.zeros((), left.values.dtype), np.zeros((), np.bool_))
        return choose_values(equal, null, left, node.type)

    def try_(self, node: Call, active: ActiveElements) -> Vector:
        """NULL where the argument fails, as under ANSI, and no error."""
        ansi = self.tally.ansi
        try:
            self.tally.ansi = True
            with self.tally.uncounted():
                return self.value(node.arguments[0], active)
        finally:
            self.tally.ansi = ansi


def _restrict_active(
    active: ActiveElements, decides: Callable[[_T], Array], left: _T
) -> ActiveElements:
    """`active` without the elements that `left` decides."""

    def mask() -> Array | None:
        outer, open_ = active(), ~decides(left)
        return open_ if outer is None else outer & open_

    return mask


_NULL_TESTS: dict[str, Callable[..., Vector]] = {
    "not": logical_not,
    "is_null": is_null,
    "is_not_null": lambda vector: logical_not(is_null(vector)),
    "isnan": is_nan,
}
_COMPARE: dict[str, Callable[[Call, list[Vector]], Vector]] = {
    **dict.fromkeys(COMPARISON_NAMES, lambda node, operands: compare(node.name, *operands)),
    "<=>": lambda _, operands: null_safe_equal(*operands),
    "least": least_or_greatest,
    "greatest": least_or_greatest,
}
_COMPUTE: dict[str, Callable[..., Vector]] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "div"), apply_binary),
    **dict.fromkeys(("neg", "abs"), apply_unary),
    "cast": apply_cast,
}
_EVALUATE_LAZILY: dict[str, Callable[[_Evaluator, Call, ActiveElements], Vector]] = {
    "and": _Evaluator.and_,
    "or": _Evaluator.or_,
    "in": _Evaluator.in_,
    "if": _Evaluator.if_,
    "coalesce": _Evaluator.coalesce,
    "nullif": _Evaluator.nullif,
    "try": _Evaluator.try_,
    **dict.fromkeys(LAMBDA_FUNCTIONS, apply_lambda),
}
