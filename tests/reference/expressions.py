"""SQL expressions, evaluated one binding at a time in plain Python.

An expression is sqlglot's tree; its values are Python's, NULL is None. There is no vector, no
mask and no type inference here, so an error of the engine's evaluator cannot be repeated. Only
the SQL that the tests write is known: anything else raises NotImplementedError.

Interpretation that the engine shares: `first` and `last` take the element as it is, NULL
included; the other folds skip NULLs, and a fold over nothing but NULLs is NULL (`count`: 0).
`count(b)` counts the elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

Value = bool | int | float | str | None
Values = Mapping[str, Value]

FOLDS = (exp.First, exp.Last, exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)


class AnsiError(Exception):
    """What Spark raises in ANSI mode, for example on a division by zero."""


@dataclass(frozen=True)
class Scope:
    """What the names of a conjunct mean at one moment.

    elements: the row that a variable is read at; before: the element before that one in its
    list; lists: all elements.
    """

    elements: Mapping[str, Values]
    before: Mapping[str, Values] = field(default_factory=dict)
    lists: Mapping[str, Sequence[Values]] = field(default_factory=dict)
    own: str | None = None


def evaluate(node: exp.Expr, scope: Scope) -> Value:
    """The value of an expression.

    >>> nan = float("nan")
    >>> import sqlglot
    >>> scope = Scope({"a": {"x": None, "f": nan}, "b": {"x": 2, "f": 1.0}})
    >>> def value(text): return evaluate(sqlglot.parse_one(text, dialect="spark"), scope)
    >>> value("a.x = b.x"), value("a.x = 1 OR b.x = 2"), value("a.x = 1 AND b.x = 3")
    (None, True, False)
    >>> value("a.f > b.f"), value("a.f = a.f"), value("-0.0 = 0.0"), value("a.x <=> NULL")
    (True, True, True, True)
    """
    rule = _RULES.get(type(node))
    if rule is None:
        raise NotImplementedError(f"the reference cannot evaluate {type(node).__name__}: {node}")
    return rule(node, scope)


def is_prev(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "prev"


# ---- leaves and lists --------------------------------------------------------------------------


def _column(node: exp.Column, scope: Scope) -> Value:
    return scope.elements[str(node.table) or scope.own or ""][node.name]


def _literal(node: exp.Literal, _: Scope) -> Value:
    if node.is_string:
        return str(node.this)
    return float(node.this) if set(node.this) & set(".eE") else int(node.this)


def _previous(node: exp.Anonymous, scope: Scope) -> Value:
    if not is_prev(node):
        raise NotImplementedError(f"the reference does not know the function {node.name}")
    return evaluate(node.expressions[0], Scope(scope.before, own=scope.own))


def _fold(node: exp.Expr, scope: Scope) -> Value:
    argument = node.this
    if isinstance(node, exp.Count) and not argument.table and argument.name in scope.lists:
        return len(scope.lists[argument.name])
    column = argument if isinstance(argument, exp.Column) else argument.find(exp.Column)
    variable = str(column.table) or scope.own or ""
    values = [
        evaluate(argument, Scope({variable: element}, own=scope.own))
        for element in scope.lists[variable]
    ]
    if isinstance(node, exp.First):
        return values[0]
    if isinstance(node, exp.Last):
        return values[-1]
    present = [value for value in values if value is not None]
    if isinstance(node, exp.Count):
        return len(present)
    return _FOLDED[type(node)](present) if present else None


_FOLDED: dict[type[exp.Expr], Callable[..., Value]] = {
    exp.Sum: sum,
    exp.Avg: lambda values: float(sum(values)) / len(values),
    exp.Min: lambda values: min(values, key=rank),
    exp.Max: lambda values: max(values, key=rank),
}


# ---- logic and comparison ----------------------------------------------------------------------


def rank(value: Value) -> tuple[bool, object]:
    """Python's order made Spark's: NaN equals NaN and is above all numbers."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0 if is_nan else value)


def _and(node: exp.And, scope: Scope) -> Value:
    left = evaluate(node.left, scope)
    if left is False:
        return False
    right = evaluate(node.right, scope)
    return False if right is False else (None if left is None or right is None else True)


def _or(node: exp.Or, scope: Scope) -> Value:
    left = evaluate(node.left, scope)
    if left is True:
        return True
    right = evaluate(node.right, scope)
    return True if right is True else (None if left is None or right is None else False)


def _not(node: exp.Not, scope: Scope) -> Value:
    value = evaluate(node.this, scope)
    return None if value is None else not value


def _compared(left: Value, right: Value, decide: Callable[[object, object], bool]) -> Value:
    return None if left is None or right is None else decide(rank(left), rank(right))


def _comparison(
    decide: Callable[[object, object], bool],
) -> Callable[[exp.Expr, Scope], Value]:
    return lambda node, scope: _compared(
        evaluate(node.this, scope), evaluate(node.expression, scope), decide
    )


def _null_safe_equal(node: exp.NullSafeEQ, scope: Scope) -> Value:
    left, right = evaluate(node.this, scope), evaluate(node.expression, scope)
    if left is None or right is None:
        return left is right
    return rank(left) == rank(right)


def _is(node: exp.Is, scope: Scope) -> Value:
    if not isinstance(node.expression, exp.Null):
        raise NotImplementedError("the reference knows IS NULL only")
    return evaluate(node.this, scope) is None


def _between(node: exp.Between, scope: Scope) -> Value:
    value = evaluate(node.this, scope)
    above = _compared(evaluate(node.args["low"], scope), value, lambda a, b: a <= b)  # type: ignore[operator]
    if above is False:
        return False
    below = _compared(value, evaluate(node.args["high"], scope), lambda a, b: a <= b)  # type: ignore[operator]
    if below is False:
        return False
    return None if above is None or below is None else True


def _in(node: exp.In, scope: Scope) -> Value:
    """Spark looks no further than the first item that is equal."""
    value, found = evaluate(node.this, scope), []
    for item in node.expressions:
        found.append(_compared(value, evaluate(item, scope), lambda a, b: a == b))
        if found[-1]:
            return True
    return None if None in found else False


# ---- choice and arithmetic ---------------------------------------------------------------------


def _case(node: exp.Case, scope: Scope) -> Value:
    for arm in node.args["ifs"]:
        if node.this is None:
            taken = evaluate(arm.this, scope)
        else:
            taken = _compared(
                evaluate(node.this, scope), evaluate(arm.this, scope), lambda a, b: a == b
            )
        if taken is True:
            return evaluate(arm.args["true"], scope)
    default = node.args.get("default")
    return None if default is None else evaluate(default, scope)


def _if(node: exp.If, scope: Scope) -> Value:
    arm = "true" if evaluate(node.this, scope) is True else "false"
    chosen = node.args.get(arm)
    return None if chosen is None else evaluate(chosen, scope)


def _arguments(node: exp.Expr, scope: Scope) -> list[Value]:
    return [evaluate(item, scope) for item in (node.this, *node.expressions)]


def _coalesce(node: exp.Expr, scope: Scope) -> Value:
    return next((value for value in _arguments(node, scope) if value is not None), None)


def _extreme(choose: Callable[..., Value]) -> Callable[[exp.Expr, Scope], Value]:
    """LEAST and GREATEST skip NULLs."""

    def chosen(node: exp.Expr, scope: Scope) -> Value:
        present = [value for value in _arguments(node, scope) if value is not None]
        return choose(present, key=rank) if present else None

    return chosen


def _nullif(node: exp.Nullif, scope: Scope) -> Value:
    left, right = evaluate(node.this, scope), evaluate(node.expression, scope)
    return None if _compared(left, right, lambda a, b: a == b) else left


def _arithmetic(
    compute: Callable[..., Value],
) -> Callable[[exp.Expr, Scope], Value]:
    def computed(node: exp.Expr, scope: Scope) -> Value:
        operands = [evaluate(child, scope) for child in node.iter_expressions()]
        return None if None in operands else compute(*operands)

    return computed


def _divide(left: float, right: float) -> Value:
    if right == 0:
        raise AnsiError("division by zero")
    return left / right


def _whole_divide(left: int, right: int) -> Value:
    if right == 0:
        raise AnsiError("division by zero")
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _remainder(left: int, right: int) -> Value:
    """The sign is that of the dividend."""
    if right == 0:
        raise AnsiError("division by zero")
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


_RULES: dict[type[exp.Expr], Callable[..., Value]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: lambda node, _: bool(node.this),
    exp.Null: lambda _node, _: None,
    exp.Paren: lambda node, scope: evaluate(node.this, scope),
    exp.Anonymous: _previous,
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.EQ: _comparison(lambda a, b: a == b),
    exp.NEQ: _comparison(lambda a, b: a != b),
    exp.LT: _comparison(lambda a, b: a < b),  # type: ignore[operator]
    exp.LTE: _comparison(lambda a, b: a <= b),  # type: ignore[operator]
    exp.GT: _comparison(lambda a, b: a > b),  # type: ignore[operator]
    exp.GTE: _comparison(lambda a, b: a >= b),  # type: ignore[operator]
    exp.NullSafeEQ: _null_safe_equal,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Least: _extreme(min),
    exp.Greatest: _extreme(max),
    exp.Nullif: _nullif,
    exp.IsNan: lambda node, scope: rank(evaluate(node.this, scope))[0],
    exp.Neg: _arithmetic(lambda value: -value),
    exp.Abs: _arithmetic(abs),
    exp.Add: _arithmetic(lambda a, b: a + b),
    exp.Sub: _arithmetic(lambda a, b: a - b),
    exp.Mul: _arithmetic(lambda a, b: a * b),
    exp.Div: _arithmetic(_divide),
    exp.IntDiv: _arithmetic(_whole_divide),
    exp.Mod: _arithmetic(_remainder),
    **dict.fromkeys(FOLDS, _fold),
}
