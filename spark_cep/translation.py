"""From a conjunct's syntax tree to a typed tree for the engine.

Maximal parts over one variable are hoisted: Spark computes them as they are written. What ties
variables together is rebuilt from the operations that the engine computes exactly as Spark does;
everything else raises `Inexact`, and the conjunct is Spark's to test after matching, or refused.

Hoisting must not wake an error that a guard in the text keeps asleep: in
`a.kind <> 'n' OR CAST(a.payload AS INT) > b.x` the cast is computed only where its own
variable's earlier alternatives leave the question open. Guards over other variables cannot be
kept, as their rows are not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from sqlglot import exp

from spark_cep.compiled import Typer
from spark_cep.conditions import Conjunct, navigated, reading, user_function
from spark_cep.literals import narrowest_decimal
from spark_cep.operands import Conversion, Fixed, Hoisted, Inexact
from spark_cep.problems import Place
from spark_cep.types import (
    COMPARABLE,
    NUMBERS,
    Operator,
    arithmetic,
    common,
    folded,
    name_of,
    named,
    widens,
)
from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Call, Constant, Expression, Type
from spark_cep.udfs.expressions import UserCall as EngineCall

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: dict[type[exp.Expr], Operator] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
# sqlglot ranks these differently from Spark where they stand side by side without parentheses.
_RANKED = (exp.Predicate, exp.Not, exp.NullSafeEQ, exp.NullSafeNEQ)
_NULL = Constant(None, Type("null"))
# These stay the same during a query, but not from one action to the next: Spark evaluates them.
_NOW = frozenset(
    "current_timestamp now current_date curdate localtimestamp unix_timestamp "
    "current_time".split()
)


class TypeMismatch(Exception):
    """The user's mistake: an operation on types that it has not."""

    def __init__(self, message: str, place: Place, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint


@dataclass(frozen=True)
class Session:
    """What the meaning of an expression depends on besides its text."""

    typer: Typer
    ansi: bool
    fixed_zone: bool


@dataclass(frozen=True)
class Part:
    """A maximal sub-expression over one variable: its node, variable and text on a row."""

    node: exp.Expr
    variable: int
    text: str


# Conditions of the text on one variable that must leave open whether a part is evaluated.
_TRUE, _NOT_TRUE, _NOT_FALSE = "({})", "(NOT (({}) <=> TRUE))", "(NOT (({}) <=> FALSE))"
Guards = tuple[tuple[int, str], ...]


class Translation:
    """Translates one conjunct. `types`: for each part's text the type that Spark gives it."""

    def __init__(self, conjunct: Conjunct, session: Session, types: Mapping[str, Type]) -> None:
        self._conjunct = conjunct
        self._session = session
        self._types = types
        self._conversion = Conversion(session.typer, ansi=session.ansi)

    def condition(self) -> Expression:
        """The whole conjunct, which must be boolean."""
        result = self._build(self._conjunct.node, ())
        if result.type != BOOL:
            raise TypeMismatch(
                f"a condition must be TRUE or FALSE, but {self._conjunct.text} is "
                f"{name_of(result.type)}",
                self._conjunct.place,
                "compare it with something",
            )
        return result

    # ---- leaves --------------------------------------------------------------------------------

    def _build(self, node: exp.Expr, guards: Guards) -> Expression:
        part = row_part(self._conjunct, node)
        if part is not None:
            return self._hoisted(part, guards)
        if reading(node) is not None:
            return self._folded(node)
        function = user_function(node)
        if function is not None:
            arguments = tuple(self._build(each, guards) for each in node.expressions)
            return EngineCall(function.name, function.function, arguments, function.returns)
        if not self._conjunct.named(node) and self._is_plain(node):
            return self._fixed(node)
        rule = _RULES.get(type(node))
        if rule is None:
            raise Inexact(f"{_described(self._conjunct, node)} over several variables")
        return rule(self, node, guards)

    def _hoisted(self, part: Part, guards: Guards) -> Hoisted:
        text, type_ = part.text, self._types[part.text]
        if is_column(self._conjunct, part.node):
            return Hoisted(part.variable, text, type_)
        open_ = " AND ".join(guard for variable, guard in guards if variable == part.variable)
        if open_:
            text = f"CASE WHEN {open_} THEN {text} END"
        return Hoisted(part.variable, text, type_, may_fail=True)

    def _folded(self, node: exp.Expr) -> Hoisted:
        how, argument = reading(node), navigated(node)
        assert how is not None and argument is not None
        reference = self._conjunct.reference(argument)
        if how == "count" and reference is not None and reference.column is None:
            return Hoisted(reference.variable, None, BIGINT, "count")
        part = row_part(self._conjunct, argument)
        if part is None:
            raise Inexact(f"{self._conjunct.parsed.text_of(argument)} inside {how}()")
        hoisted = self._hoisted(part, ())
        result = folded(how, hoisted.type)
        if result is None:
            raise TypeMismatch(
                f"{how} cannot take {part.text}, which is {name_of(hoisted.type)}",
                self._conjunct.parsed.place(node),
                f"{how} takes " + ("values that can be ordered" if "m" == how[0] else "numbers"),
            )
        return replace(hoisted, type=result, reading=how)

    def _fixed(self, node: exp.Expr) -> Expression:
        text = self._conjunct.parsed.cut(node)
        if any(name in _NOW for name, _ in self._conjunct.parsed.calls(node)) or any(
            node.find_all(exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp)
        ):
            raise Inexact("the current time beside several variables")
        try:
            return Fixed(self._conversion.constant(text), text)
        except ValueError as problem:
            raise TypeMismatch(str(problem), self._conjunct.parsed.place(node)) from None

    def _is_plain(self, node: exp.Expr) -> bool:
        return not any(reading(n) or user_function(n) for n in node.walk())

    # ---- operations ----------------------------------------------------------------------------

    def _paren(self, node: exp.Expr, guards: Guards) -> Expression:
        return self._build(node.this, guards)

    def _compared(self, node: exp.Expr, guards: Guards) -> Expression:
        for side in (node.this, node.expression):
            if isinstance(side, _RANKED):
                raise Inexact("comparisons side by side without parentheses")
        left, right = self._build(node.this, guards), self._build(node.expression, guards)
        return self._comparison(_COMPARISONS[type(node)], left, right)

    def _differs(self, node: exp.Expr, guards: Guards) -> Expression:
        left, right = self._build(node.this, guards), self._build(node.expression, guards)
        return _not(self._comparison("<=>", left, right))

    def _comparison(self, name: str, left: Expression, right: Expression) -> Expression:
        if left.type.kind == right.type.kind == "int":
            return Call(name, (left, right), BOOL)
        left, right = self._alike([*_narrowed(left, right)])
        return Call(name, (left, right), BOOL)

    def _alike(self, operands: Sequence[Expression]) -> list[Expression]:
        """The operands in the one type that Spark compares them in."""
        target = self._common([operand.type for operand in operands])
        if target.kind == "other":
            return self._collation_keys(operands)
        if target.kind not in COMPARABLE:
            raise Inexact(f"{name_of(target)} values side by side")
        # Floats beside numbers cost the engine nothing; other casts are cheaper once a row.
        in_engine = target.kind in {"int", "float"}
        return [self._conversion.to(each, target, in_engine=in_engine) for each in operands]

    def _common(self, types: Sequence[Type]) -> Type:
        found = types[0]
        for type_ in types[1:]:
            wider = common(found, type_, ansi=self._session.ansi)
            if wider is None:
                raise Inexact(f"{name_of(found)} beside {name_of(type_)}")
            found = wider
        return found

    def _collation_keys(self, operands: Sequence[Expression]) -> list[Expression]:
        """Strings of one collation compare as their keys do; anything else is Spark's."""
        hoisted = [each for each in operands if isinstance(each, Hoisted) and each.text]
        texts = [each.text or "" for each in hoisted]
        if len(hoisted) < len(operands) or any("collate" in text.lower() for text in texts):
            raise Inexact("nested or collated values side by side")
        keys = [f"collation_key({text})" for text in texts]
        pairs = [f"({text}) = ({texts[0]})" for text in texts[1:]]
        types = self._session.typer.of_row([*keys, *pairs])
        if types != [Type("binary")] * len(keys) + [BOOL] * len(pairs):
            raise Inexact("nested or collated values side by side")
        return [
            replace(each, text=key, type=Type("binary"))
            for each, key in zip(hoisted, keys, strict=True)
        ]

    def _computed(self, node: exp.Expr, guards: Guards) -> Expression:
        left, right = self._build(node.this, guards), self._build(node.expression, guards)
        left, right = _narrowed(left, right)
        name = _ARITHMETIC[type(node)]
        if {left.type.kind, right.type.kind} == {"date", "timestamp"}:
            # A date's midnight may be missing in the zone; it becomes an instant first.
            left, right = (self._conversion.to(each, Type("timestamp")) for each in (left, right))
        rule = arithmetic(
            name,
            left.type,
            right.type,
            ansi=self._session.ansi,
            fixed_zone=self._session.fixed_zone,
        )
        if rule is None:
            raise Inexact(f"{name_of(left.type)} {name} {name_of(right.type)}")
        if not left.type.kind == right.type.kind == "int" or rule.left.kind != "int":
            left = self._conversion.to(left, rule.left, in_engine=True)
            right = self._conversion.to(right, rule.right, in_engine=True)
        return Call(name, (left, right), rule.type)

    def _unary(self, node: exp.Expr, guards: Guards) -> Expression:
        operand = self._build(node.this, guards)
        name = "neg" if isinstance(node, exp.Neg) else "abs"
        if operand.type.kind not in NUMBERS | {"interval"}:
            raise Inexact(f"{name} of {name_of(operand.type)}")
        return Call(name, (operand,), operand.type)

    def _boolean(self, node: exp.Expr, guards: Guards) -> Expression:
        operand = self._build(node, guards)
        if operand.type.kind == "null":
            return Constant(None, BOOL)
        if operand.type != BOOL:
            parsed = self._conjunct.parsed
            raise TypeMismatch(
                f"{parsed.text_of(node)} must be TRUE or FALSE, but is {name_of(operand.type)}",
                parsed.place(node),
                "compare it with something",
            )
        return operand

    def _connected(self, node: exp.Expr, guards: Guards) -> Expression:
        is_and = isinstance(node, exp.And)
        undecided = _NOT_FALSE if is_and else _NOT_TRUE
        arguments = []
        for operand in node.flatten():
            arguments.append(self._boolean(operand, guards))
            guards += self._guard(operand, undecided)
        return Call("and" if is_and else "or", tuple(arguments), BOOL)

    def _guard(self, node: exp.Expr, form: str) -> Guards:
        """What the node says about the rows of the one variable that it is about."""
        part = row_part(self._conjunct, node)
        return () if part is None else ((part.variable, form.format(part.text)),)

    def _negated(self, node: exp.Expr, guards: Guards) -> Expression:
        return _not(self._boolean(node.this, guards))

    def _is(self, node: exp.Expr, guards: Guards) -> Expression:
        if isinstance(node.this, _RANKED):
            raise Inexact("comparisons side by side without parentheses")
        if isinstance(node.expression, exp.Null):
            return Call("is_null", (self._build(node.this, guards),), BOOL)
        if isinstance(node.expression, exp.Boolean):
            value = Constant(bool(node.expression.this), BOOL)
            return Call("<=>", (self._boolean(node.this, guards), value), BOOL)
        raise Inexact(_described(self._conjunct, node))

    def _null_test(self, node: exp.Expr, guards: Guards) -> Expression:
        name = {"isnull": "is_null", "isnotnull": "is_not_null"}.get(node.name.lower())
        if name is None or len(node.expressions) != 1:
            raise Inexact(f"{_described(self._conjunct, node)} over several variables")
        return Call(name, (self._build(node.expressions[0], guards),), BOOL)

    def _between(self, node: exp.Expr, guards: Guards) -> Expression:
        if node.args.get("symmetric"):
            raise Inexact("BETWEEN SYMMETRIC")
        value, low, high = (self._build(node.args[k], guards) for k in ("this", "low", "high"))
        bounds = (self._comparison(">=", value, low), self._comparison("<=", value, high))
        return Call("and", bounds, BOOL)

    def _in(self, node: exp.Expr, guards: Guards) -> Expression:
        if not node.expressions:
            raise Inexact("IN without a list of values")
        items = [self._build(each, guards) for each in (node.this, *node.expressions)]
        return Call("in", tuple(self._alike(items)), BOOL)

    def _case(self, node: exp.Expr, guards: Guards) -> Expression:
        value = node.args.get("this")
        default = node.args.get("default")
        tests, results = [], []
        for branch in node.args["ifs"]:
            if value is None:
                tests.append(self._boolean(branch.this, guards))
                taken = guards + self._guard(branch.this, _TRUE)
                guards += self._guard(branch.this, _NOT_TRUE)
            else:
                operands = (self._build(each, guards) for each in (value, branch.this))
                tests.append(self._comparison("=", *operands))
                taken = guards
            results.append(self._build(branch.args["true"], taken))
        results.append(_NULL if default is None else self._build(default, guards))
        return self._chosen(tests, results)

    def _if(self, node: exp.Expr, guards: Guards) -> Expression:
        then = guards + self._guard(node.this, _TRUE)
        otherwise = guards + self._guard(node.this, _NOT_TRUE)
        default = node.args.get("false")
        results = [
            self._build(node.args["true"], then),
            _NULL if default is None else self._build(default, otherwise),
        ]
        return self._chosen([self._boolean(node.this, guards)], results)

    def _nvl2(self, node: exp.Expr, guards: Guards) -> Expression:
        test = Call("is_null", (self._build(node.this, guards),), BOOL)
        results = [self._build(node.args[k], guards) for k in ("true", "false")]
        return self._chosen([_not(test)], results)

    def _chosen(self, tests: Sequence[Expression], results: Sequence[Expression]) -> Expression:
        """CASE as nested ifs, from the last branch inwards."""
        *branches, default = self._alike_or_null(results)
        pairs = reversed(list(zip(tests, branches, strict=True)))
        return reduce(
            lambda otherwise, pair: Call("if", (*pair, otherwise), otherwise.type), pairs, default
        )

    def _alike_or_null(self, operands: Sequence[Expression]) -> list[Expression]:
        if all(operand.type.kind == "null" for operand in operands):
            raise Inexact("nothing but NULL")
        return self._alike(operands)

    def _first_of(self, node: exp.Expr, guards: Guards) -> Expression:
        """COALESCE, LEAST, GREATEST."""
        name = {exp.Coalesce: "coalesce", exp.Least: "least", exp.Greatest: "greatest"}[type(node)]
        operands = [self._build(each, guards) for each in (node.this, *node.expressions)]
        alike = self._alike_or_null(operands)
        return Call(name, tuple(alike), alike[0].type)

    def _nullif(self, node: exp.Expr, guards: Guards) -> Expression:
        left, right = self._build(node.this, guards), self._build(node.expression, guards)
        equal = self._comparison("=", left, right)
        return Call("if", (equal, Constant(None, left.type), left), left.type)

    def _isnan(self, node: exp.Expr, guards: Guards) -> Expression:
        operand = self._build(node.this, guards)
        if operand.type.kind not in NUMBERS:
            raise Inexact(f"isnan of {name_of(operand.type)}")
        if operand.type.kind != "float":
            operand = self._conversion.to(operand, DOUBLE)
        return Call("isnan", (operand,), BOOL)

    def _cast(self, node: exp.Expr, guards: Guards) -> Expression:
        operand, target = self._build(node.this, guards), named(node.to.sql("spark"))
        if target is None or not widens(operand.type, target):
            raise Inexact("a cast of a value computed from several rows")
        return self._conversion.to(operand, target, in_engine=True)


def row_part(conjunct: Conjunct, node: exp.Expr) -> Part | None:
    """The node as a part over one variable, if it is one that Spark can evaluate on a row."""
    named_here = conjunct.named(node)
    if len(named_here) != 1 or any(reading(n) or user_function(n) for n in node.walk()):
        return None
    reference = conjunct.reference(node)
    if reference is not None and reference.column is None:
        return None
    return Part(node, next(iter(named_here)), conjunct.row_text(node))


def is_column(conjunct: Conjunct, node: exp.Expr) -> bool:
    """Whether the node is a plain column (or a field of one), which cannot fail on any row."""
    while isinstance(node, exp.Paren | exp.Dot):
        node = node.this
    reference = conjunct.reference(node)
    return reference is not None and reference.column is not None


def parts(conjunct: Conjunct, node: exp.Expr | None = None) -> Iterator[Part]:
    """Every part that a translation of the conjunct would hoist."""
    node = conjunct.node if node is None else node
    part = row_part(conjunct, node)
    if part is not None:
        yield part
    elif reading(node) is not None or user_function(node) is not None or type(node) in _RULES:
        for child in node.iter_expressions():
            if not isinstance(child, exp.DataType):
                yield from parts(conjunct, child)
    elif isinstance(node, exp.If):
        for child in node.iter_expressions():
            yield from parts(conjunct, child)


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


def _not(operand: Expression) -> Expression:
    return Call("not", (operand,), BOOL)


def _described(conjunct: Conjunct, node: exp.Expr) -> str:
    """What stands at the root of a node, as the user knows it."""
    first = next(conjunct.parsed.calls(node), None)
    text = conjunct.parsed.text_of(node)
    if first is not None and text.lower().startswith(first[0]):
        return f"{first[0]}()"
    return _NAMES.get(type(node), text)


_NAMES: dict[type[exp.Expr], str] = {
    exp.Like: "LIKE",
    exp.ILike: "ILIKE",
    exp.RegexpLike: "RLIKE",
    exp.DPipe: "||",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}
_Rule = Callable[[Translation, exp.Expr, Guards], Expression]
_RULES: dict[type[exp.Expr], _Rule] = {
    exp.Paren: Translation._paren,
    **dict.fromkeys(_COMPARISONS, Translation._compared),
    exp.NullSafeNEQ: Translation._differs,
    **dict.fromkeys(_ARITHMETIC, Translation._computed),
    exp.Neg: Translation._unary,
    exp.Abs: Translation._unary,
    exp.And: Translation._connected,
    exp.Or: Translation._connected,
    exp.Not: Translation._negated,
    exp.Is: Translation._is,
    exp.Anonymous: Translation._null_test,
    exp.Between: Translation._between,
    exp.In: Translation._in,
    exp.Case: Translation._case,
    exp.If: Translation._if,
    exp.Nvl2: Translation._nvl2,
    exp.Coalesce: Translation._first_of,
    exp.Least: Translation._first_of,
    exp.Greatest: Translation._first_of,
    exp.Nullif: Translation._nullif,
    exp.IsNan: Translation._isnan,
    exp.Cast: Translation._cast,
    exp.TryCast: Translation._cast,
}
