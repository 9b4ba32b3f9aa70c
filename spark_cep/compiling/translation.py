"""From a conjunct's syntax tree to a typed tree for the engine.

Maximal parts over one variable are hoisted: Spark computes them as they are written. What ties
variables together is rebuilt from the operations that the engine computes exactly as Spark does,
by the rules in operations.py and choices.py; everything else raises `Inexact`, and the conjunct
is Spark's to test after matching, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.compiling import conditionals as choices
from spark_cep.compiling import operations, remote_operations
from spark_cep.compiling.conditions import Conjunct, navigated, reading, user_function
from spark_cep.compiling.lookups import Lookups
from spark_cep.compiling.operands import Conversion, Fixed, Hoisted, Inexact
from spark_cep.compiling.parts import Guards, Part, TypeMismatch, is_column, row_part
from spark_cep.compiling.types import folded, name_of
from spark_cep.udfs.expressions import BIGINT, BOOL, Constant, Expression, Type, UserCall

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import Typer

# Constant during a query, but not from one action to the next: only Spark may evaluate them.
_NOW = frozenset(
    {
        "current_timestamp", "now", "current_date", "curdate", "localtimestamp",
        "unix_timestamp", "current_time",
    }
)  # fmt: skip
_NOW_NODES = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Localtimestamp)


@dataclass(frozen=True)
class Session:
    """What the meaning of an expression depends on besides its text."""

    typer: Typer
    ansi: bool
    fixed_zone: bool
    lookups: Lookups = field(default_factory=Lookups)


class Translation:
    """Translates one conjunct. `types`: for each part's text the type that Spark gives it."""

    def __init__(self, conjunct: Conjunct, session: Session, types: Mapping[str, Type]) -> None:
        self.conjunct = conjunct
        self.session = session
        self.conversion = Conversion(session.typer, ansi=session.ansi)
        self._types = types

    def condition(self) -> Expression:
        """The whole conjunct, which must be TRUE or FALSE."""
        return self.boolean(self.conjunct.node, ())

    def boolean(self, node: exp.Expr, guards: Guards) -> Expression:
        operand = self.build(node, guards)
        if operand.type.kind == "null":
            return Constant(None, BOOL)
        if operand.type != BOOL:
            raise not_boolean(self.conjunct, node, operand.type)
        return operand

    def build(self, node: exp.Expr, guards: Guards) -> Expression:
        part = row_part(self.conjunct, node)
        if part is not None:
            return self._hoisted(part, guards)
        if reading(node) is not None:
            return self._folded(node)
        function = user_function(node)
        if function is not None:
            arguments = tuple(self.build(each, guards) for each in node.expressions)
            return UserCall(function.name, function.function, arguments, function.returns)
        looked_up = remote_operations.translated(self, node, guards)
        if looked_up is not None:
            return looked_up
        if not self.conjunct.names_anything(node):
            return self.fixed(node)
        return self.by_rule(node, guards)

    def by_rule(self, node: exp.Expr, guards: Guards) -> Expression:
        """What the engine computes of it, its operands translated one by one."""
        rule = _RULES.get(type(node))
        if rule is None:
            raise Inexact(f"{self.described(node)} over several variables")
        return rule(self, node, guards)

    def described(self, node: exp.Expr) -> str:
        """What stands at the root of a node, as the user knows it."""
        text = self.conjunct.parsed.text_of(node)
        first = next(self.conjunct.parsed.calls(node), None)
        if first is not None and text.lower().startswith(first[0]):
            return f"{first[0]}()"
        return _SYMBOLS.get(type(node), text)

    def _hoisted(self, part: Part, guards: Guards) -> Hoisted:
        type_ = self._types[part.text]
        if is_column(self.conjunct, part.node):
            return Hoisted(part.variable, part.text, type_)
        return Hoisted(part.variable, part.guarded(guards), type_, may_fail=True)

    def _folded(self, node: exp.Expr) -> Hoisted:
        how, argument = reading(node), navigated(node)
        assert how is not None
        assert argument is not None
        reference = self.conjunct.reference(argument)
        if how == "count" and reference is not None and reference.column is None:
            return Hoisted(reference.variable, None, BIGINT, "count")
        part = row_part(self.conjunct, argument)
        if part is None:
            raise Inexact(f"{self.conjunct.parsed.text_of(argument)} inside {how}()")
        hoisted = self._hoisted(part, ())
        result = folded(how, hoisted.type)
        if result is None:
            raise TypeMismatch(
                f"{how}() does not take {name_of(hoisted.type)}",
                node,
                f"give it a {'value that can be ordered' if how in {'min', 'max'} else 'number'}",
            )
        return replace(hoisted, type=result, reading=how)

    def fixed(self, node: exp.Expr) -> Expression:
        """A part without names."""
        text = self.conjunct.parsed.cut(node)
        names = {name for name, _ in self.conjunct.parsed.calls(node)}
        if names & _NOW or any(node.find_all(*_NOW_NODES)):
            raise Inexact("the current time beside several variables")
        try:
            return Fixed(self.conversion.constant(text), text)
        except ValueError as problem:
            raise TypeMismatch(str(problem), node) from None


def parts(conjunct: Conjunct, node: exp.Expr | None = None) -> Iterator[Part]:
    """Every part that a translation of the conjunct would hoist."""
    node = conjunct.node if node is None else node
    part = row_part(conjunct, node)
    if part is not None:
        yield part
    elif reading(node) is not None or user_function(node) is not None or type(node) in _WALKED:
        # ANDs and ORs may be thousands of levels deep as trees, so they are walked flat.
        is_flat = isinstance(node, exp.And | exp.Or)
        for child in node.flatten() if is_flat else node.iter_expressions():
            yield from parts(conjunct, child)


def not_boolean(conjunct: Conjunct, node: exp.Expr, type_: Type) -> TypeMismatch:
    text = conjunct.parsed.text_of(node)
    return TypeMismatch(
        f"a condition must be TRUE or FALSE, but {text} is {name_of(type_)}",
        node,
        "compare it with something",
    )


_Rule = Callable[[Translation, exp.Expr, Guards], Expression]
_RULES: dict[type[exp.Expr], _Rule] = {
    exp.Paren: lambda t, node, guards: t.build(node.this, guards),
    **dict.fromkeys(operations.COMPARISONS, operations.compared),
    exp.NullSafeNEQ: operations.distinct,
    exp.Between: operations.between,
    exp.In: operations.among,
    **dict.fromkeys(operations.ARITHMETIC, operations.computed),
    exp.Neg: operations.signed,
    exp.Abs: operations.signed,
    exp.Cast: operations.cast,
    exp.TryCast: operations.cast,
    exp.IsNan: operations.is_nan,
    exp.And: operations.connected,
    exp.Or: operations.connected,
    exp.Not: operations.negated,
    exp.Is: operations.tested,
    exp.Anonymous: operations.called,
    exp.Case: choices.case,
    exp.If: choices.if_,
    exp.Nvl2: choices.nvl2,
    exp.Coalesce: choices.first_of,
    exp.Least: choices.first_of,
    exp.Greatest: choices.first_of,
    exp.Nullif: choices.nullif,
}
# A field's name is no expression, so a Dot is walked to find the keys of a call only.
_WALKED = frozenset({*_RULES, exp.Dot})
_SYMBOLS: dict[type[exp.Expr], str] = {
    exp.Like: "LIKE",
    exp.ILike: "ILIKE",
    exp.RegexpLike: "RLIKE",
    exp.DPipe: "||",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}
