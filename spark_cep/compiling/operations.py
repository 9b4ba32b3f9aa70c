"""The engine's operators: comparison, arithmetic, logic, tests for NULL.

Each rule takes a node of its operator, has the operands translated, and brings them to the types
in which Spark would evaluate it. A rule that cannot keep Spark's exact meaning raises `Inexact`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.compiling.literals import narrowest_decimal
from spark_cep.compiling.operands import Fixed, Hoisted, Inexact
from spark_cep.compiling.parts import NOT_FALSE, NOT_TRUE, Guards, guard
from spark_cep.compiling.types import (
    COMPARABLE,
    NUMBERS,
    Operator,
    arithmetic,
    common,
    name_of,
    named,
    widens,
)
from spark_cep.udfs.expressions import BOOL, DOUBLE, Call, Constant, Expression, Type

if TYPE_CHECKING:
    from spark_cep.compiling.translation import Translation

COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
ARITHMETIC: dict[type[exp.Expr], Operator] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
# sqlglot ranks these differently from Spark where they stand side by side without parentheses.
_RANKED = (exp.Predicate, exp.Not, exp.NullSafeEQ, exp.NullSafeNEQ)


# ---- comparison --------------------------------------------------------------------------------


def compared(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    _check_rank(node.this, node.expression)
    operands = (t.build(each, guards) for each in (node.this, node.expression))
    return comparison(t, COMPARISONS[type(node)], *operands)


def distinct(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """IS DISTINCT FROM."""
    _check_rank(node.this, node.expression)
    operands = (t.build(each, guards) for each in (node.this, node.expression))
    return negation(comparison(t, "<=>", *operands))


def between(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    if node.args.get("symmetric"):
        raise Inexact("BETWEEN SYMMETRIC")
    _check_rank(node.this)
    value, low, high = (t.build(node.args[key], guards) for key in ("this", "low", "high"))
    bounds = (comparison(t, ">=", value, low), comparison(t, "<=", value, high))
    return Call("and", bounds, BOOL)


def among(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """value IN (items)."""
    if not node.expressions:
        raise Inexact("IN without a list of values")
    _check_rank(node.this)
    items = [t.build(each, guards) for each in (node.this, *node.expressions)]
    return Call("in", tuple(alike(t, items)), BOOL)


def comparison(t: Translation, name: str, left: Expression, right: Expression) -> Expression:
    if left.type.kind == right.type.kind == "int":
        return Call(name, (left, right), BOOL)
    return Call(name, tuple(alike(t, _narrowed(left, right))), BOOL)


def alike(t: Translation, operands: Sequence[Expression]) -> list[Expression]:
    """The operands in the one type that Spark compares them in."""
    target = _common(t, [operand.type for operand in operands])
    if target.kind == "other":
        return _collation_keys(t, operands)
    if target.kind not in COMPARABLE:
        raise Inexact(f"{name_of(target)} values side by side")
    # Widening a number costs the engine next to nothing; other casts are cheaper once a row.
    in_engine = target.kind in {"int", "float"}
    return [t.conversion.to(each, target, in_engine=in_engine) for each in operands]


def _common(t: Translation, types: Sequence[Type]) -> Type:
    found = types[0]
    for type_ in types[1:]:
        wider = common(found, type_, ansi=t.session.ansi)
        if wider is None:
            raise Inexact(f"{name_of(found)} beside {name_of(type_)}")
        found = wider
    return found


def _collation_keys(t: Translation, operands: Sequence[Expression]) -> list[Expression]:
    """Strings of one collation compare as their keys do; anything else is Spark's."""
    hoisted = [each for each in operands if isinstance(each, Hoisted) and each.text]
    texts = [each.text or "" for each in hoisted]
    # An explicit COLLATE decides for both sides, so the key of the other would be a wrong one.
    if len(hoisted) < len(operands) or any("collate" in text.lower() for text in texts):
        raise Inexact("nested or collated values side by side")
    keys = [f"collation_key({text})" for text in texts]
    pairs = [f"({text}) = ({texts[0]})" for text in texts[1:]]
    types = t.session.typer.of_row([*keys, *pairs])
    if types != [Type("binary")] * len(keys) + [BOOL] * len(pairs):
        raise Inexact("nested or collated values side by side")
    return [
        replace(each, text=key, type=Type("binary"))
        for each, key in zip(hoisted, keys, strict=True)
    ]


def _check_rank(*operands: exp.Expr) -> None:
    if any(isinstance(operand, _RANKED) for operand in operands):
        raise Inexact("comparisons side by side without parentheses")


# ---- arithmetic --------------------------------------------------------------------------------


def computed(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    left, right = (t.build(each, guards) for each in (node.this, node.expression))
    left, right = _narrowed(left, right)
    if {left.type.kind, right.type.kind} == {"date", "timestamp"}:
        # A date's midnight may be missing in the zone; Spark makes it an instant first.
        left, right = (t.conversion.to(each, Type("timestamp")) for each in (left, right))
    name, session = ARITHMETIC[type(node)], t.session
    rule = arithmetic(name, left.type, right.type, ansi=session.ansi, fixed_zone=session.fixed_zone)
    if rule is None:
        raise Inexact(f"{name_of(left.type)} {name} {name_of(right.type)}")
    if not left.type.kind == right.type.kind == rule.left.kind == "int":
        left = t.conversion.to(left, rule.left, in_engine=True)
        right = t.conversion.to(right, rule.right, in_engine=True)
    return Call(name, (left, right), rule.type)


def signed(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """Minus, and abs()."""
    operand = t.build(node.this, guards)
    name = "neg" if isinstance(node, exp.Neg) else "abs"
    if operand.type.kind not in NUMBERS | {"interval"}:
        raise Inexact(f"{name} of {name_of(operand.type)}")
    return Call(name, (operand,), operand.type)


def cast(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    operand, target = t.build(node.this, guards), named(node.args["to"].sql("spark"))
    if target is None or not widens(operand.type, target):
        raise Inexact("a cast of a value computed from several rows")
    return t.conversion.to(operand, target, in_engine=True)


def is_nan(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    operand = t.build(node.this, guards)
    if operand.type.kind not in NUMBERS:
        raise Inexact(f"isnan of {name_of(operand.type)}")
    if operand.type.kind != "float":
        operand = t.conversion.to(operand, DOUBLE, in_engine=True)
    return Call("isnan", (operand,), BOOL)


def _narrowed(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Beside a decimal an integer literal has as many digits as it needs."""
    if isinstance(left, Fixed) and right.type.kind == "decimal":
        return _as_decimal(left), right
    if isinstance(right, Fixed) and left.type.kind == "decimal":
        return left, _as_decimal(right)
    return left, right


def _as_decimal(fixed: Fixed) -> Fixed:
    if fixed.type.kind != "int":
        return fixed
    return Fixed(Constant(fixed.constant.value, narrowest_decimal(fixed.constant)), fixed.text)


# ---- logic and NULL ----------------------------------------------------------------------------


def connected(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """AND, OR. An operand is evaluated only where those before it leave the result open."""
    is_and = isinstance(node, exp.And)
    arguments = []
    for operand in node.flatten():
        arguments.append(t.boolean(operand, guards))
        guards += guard(t.conjunct, operand, NOT_FALSE if is_and else NOT_TRUE)
    return Call("and" if is_and else "or", tuple(arguments), BOOL)


def negated(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    return negation(t.boolean(node.this, guards))


def negation(operand: Expression) -> Expression:
    return Call("not", (operand,), BOOL)


def tested(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """IS NULL, IS TRUE, IS FALSE, IS UNKNOWN."""
    _check_rank(node.this)
    if isinstance(node.expression, exp.Null):
        return Call("is_null", (t.build(node.this, guards),), BOOL)
    if isinstance(node.expression, exp.Boolean):
        value = Constant(bool(node.expression.this), BOOL)
        return Call("<=>", (t.boolean(node.this, guards), value), BOOL)
    raise Inexact(f"{t.described(node)} over several variables")


def called(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """isnull(x), isnotnull(x): functions that the parser does not know by a class."""
    name = {"isnull": "is_null", "isnotnull": "is_not_null"}.get(node.name.lower())
    if name is None or len(node.expressions) != 1:
        raise Inexact(f"{t.described(node)} over several variables")
    return Call(name, (t.build(node.expressions[0], guards),), BOOL)
