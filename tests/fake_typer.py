"""A typer without Spark, for tests of what does not depend on Spark: it types what the engine's
own rules cover, over columns whose types it is told, and evaluates plain constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from spark_cep.expressions.syntax import SyntaxProblem, parse_expression
from spark_cep.expressions.types import (
    arithmetic_rule,
    common_type,
    name_of,
    parse_literal,
    parse_type,
)
from spark_cep.udfs.expressions import BOOL, DOUBLE, Constant, Type

if TYPE_CHECKING:
    from spark_cep.expressions.schema import ColumnInfo

_STRING = Type("string")
_OPERATORS: dict[type[exp.Expr], Any] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div",
}  # fmt: skip
_BOOLEAN = (
    exp.Is, exp.In, exp.Between, exp.Like, exp.RegexpLike, exp.IsNan, exp.ArrayContains, exp.Exists,
)  # fmt: skip


_FUNCTIONS = {
    **dict.fromkeys(("upper", "lower", "concat"), _STRING),
    **dict.fromkeys(("isnull", "isnotnull", "exists", "array_contains"), BOOL),
    **dict.fromkeys(("power", "round"), DOUBLE),
    "unix_date": Type("int", 32),
    "timestampdiff": Type("int", 64),
}


class _Untypable(Exception):
    pass


class LocalTyper:
    """Types over `columns`; names may have a variable in front (of_match)."""

    def __init__(self, columns: Mapping[str, Type], *, ansi: bool = True) -> None:
        self._columns = {name.casefold(): type_ for name, type_ in columns.items()}
        self._ansi = ansi
        self.asked: list[str] = []

    def of_row(self, expressions: Sequence[Any]) -> list[Type | str]:
        self.asked += [str(each) for each in expressions]
        return [self._answer(each) for each in expressions]

    def of_match(
        self, expressions: Sequence[str], variables: Mapping[str, bool]
    ) -> list[Type | str]:
        return [self._answer(each) for each in expressions]

    def session_function(self, text: str, name: str) -> None:
        """No session, no functions."""

    def add_aggregates(self, aggregates: Sequence[tuple[str, str]]) -> list[str | None]:
        self._columns.update({name: Type("other") for name, _ in aggregates})
        return [None] * len(aggregates)

    def constants(self, expressions: Sequence[str]) -> list[Constant | str]:
        return [_constant(each) for each in expressions]

    def _answer(self, expression: Any) -> Type | str:
        if not isinstance(expression, str):
            return getattr(expression, "type", BOOL)
        try:
            return self._type(parse_expression(expression).root)
        except (SyntaxProblem, _Untypable) as problem:
            return f"cannot type {expression}: {problem}"
        except RecursionError:
            return "cannot type an expression of this depth"

    def _type(self, node: exp.Expr) -> Type:  # noqa: PLR0911, PLR0912
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Paren):
            return self._type(node.this)
        if isinstance(node, exp.Interval):
            return Type("interval")
        if isinstance(node, exp.Neg | exp.Abs):
            return self._type(node.this)
        known = parse_literal(node.sql("spark", comments=False))
        if known is not None:
            return known.type
        if type(node) in _OPERATORS:
            return self._arithmetic(node)
        if isinstance(node, exp.Cast | exp.TryCast):
            return parse_type(node.to.sql("spark").replace("TIMESTAMP", "timestamp")) or Type(
                "other"
            )
        if isinstance(node, _BOOLEAN):
            return BOOL
        if isinstance(node, exp.And | exp.Or | exp.Not):
            for child in node.iter_expressions():
                if self._type(child).kind not in {"bool", "null"}:
                    raise _Untypable(f"{child} is not boolean")
            return BOOL
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ | exp.Predicate):
            self._common(node.this, node.expression)
            return BOOL
        if isinstance(node, exp.Case):
            branches = [each.args["true"] for each in node.args["ifs"]]
            default = node.args.get("default")
            return self._common(*branches, *([default] if default is not None else []))
        if isinstance(node, exp.If):
            return self._common(node.args["true"], node.args["false"])
        if isinstance(node, exp.Coalesce | exp.Greatest | exp.Least):
            return self._common(node.this, *node.expressions)
        if isinstance(node, exp.Nullif):
            return self._type(node.this)
        if isinstance(node, exp.DPipe):
            return _STRING
        if isinstance(node, exp.Window):
            return self._type(node.this.expressions[0])
        if isinstance(node, exp.Anonymous) and node.name.lower() in _FUNCTIONS:
            return _FUNCTIONS[node.name.lower()]
        raise _Untypable(f"{type(node).__name__} is not known here")

    def _column(self, node: exp.Column) -> Type:
        """A variable may stand in front; fields of structs are taken for strings."""
        names = [part.name.casefold() for part in node.parts]
        if len(names) > 1 and names[1] in self._columns and names[0] not in self._columns:
            names = names[1:]
        if names[0] not in self._columns:
            raise _Untypable(f"no column {names[0]}")
        found = self._columns[names[0]]
        return _STRING if len(names) > 1 and found.kind == "other" else found

    def _common(self, *nodes: exp.Expr) -> Type:
        found = self._type(nodes[0])
        for node in nodes[1:]:
            wider = common_type(found, self._type(node), ansi=self._ansi)
            if wider is None:
                raise _Untypable(f"{name_of(found)} beside {name_of(self._type(node))}")
            found = wider
        return found

    def _arithmetic(self, node: exp.Expr) -> Type:
        left, right = self._type(node.this), self._type(node.expression)
        rule = arithmetic_rule(
            _OPERATORS[type(node)], left, right, ansi=self._ansi, fixed_zone=True
        )
        if rule is None:
            raise _Untypable(f"{name_of(left)} and {name_of(right)}")
        return rule.type


class FakeTyper(LocalTyper):
    """The same, from the compiler's column descriptions."""

    def __init__(self, columns: Sequence[ColumnInfo]) -> None:
        super().__init__({column.name: column.type for column in columns})


def _constant(text: str) -> Constant | str:
    known = parse_literal(text)
    if known is not None:
        return known
    root = parse_expression(text).root.unnest()
    if isinstance(root, exp.Mul | exp.Add | exp.Sub):
        sides = [_constant(each.sql("spark")) for each in (root.this, root.expression)]
        left, right = (each.value if isinstance(each, Constant) else None for each in sides)
        if isinstance(left, int) and isinstance(right, int) and isinstance(sides[0], Constant):
            value = {exp.Mul: left * right, exp.Add: left + right, exp.Sub: left - right}
            return Constant(value[type(root)], sides[0].type)
    return f"{text} is no constant that can be evaluated here"
