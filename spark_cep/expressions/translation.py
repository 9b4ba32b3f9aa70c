"""Translation of a conjunct's syntax tree into a typed expression for the engine.

Maximal parts over one variable are hoisted: Spark computes them as they are written. Operations
across variables are rebuilt by rules, one for each kind of node, from the operations that the
engine computes exactly as Spark does: a rule converts the operands to the types in which Spark
would evaluate the node, and raises InexactError where it cannot keep Spark's exact meaning. Then
Spark tests the conjunct after matching, or it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.conditions import (
    Conjunct,
    Guards,
    RowPart,
    TypeMismatch,
    is_column,
    navigation_argument,
    navigation_of,
    over_one_row,
    row_part,
    user_function_of,
)
from spark_cep.expressions.guards import guarded_operands
from spark_cep.expressions.lookups import (
    Lookups,
    RemoteSchema,
    TypeTree,
    describe_key_mismatch,
    describe_unfit_key,
    key_type,
)
from spark_cep.expressions.operands import ConstantOperand, Conversion, InexactError, RowOperand
from spark_cep.expressions.problems import list_names, nearest_name
from spark_cep.expressions.remote_calls import membership_array
from spark_cep.expressions.syntax import SyntaxProblem
from spark_cep.expressions.types import (
    COMPARABLE,
    NUMBERS,
    Operator,
    aggregate_type,
    arithmetic_rule,
    common_type,
    name_of,
    narrowest_decimal,
    parse_type,
    widens,
)
from spark_cep.udfs.expressions import (
    BIGINT,
    BOOL,
    DOUBLE,
    Call,
    Constant,
    Expression,
    Member,
    RemoteCall,
    Type,
    UserCall,
)

if TYPE_CHECKING:
    from spark_cep.expressions.remote_calls import RemoteCallText
    from spark_cep.expressions.schema import Typer


# Constant in one query, but not across actions: only Spark may evaluate them.
_NOW = frozenset(
    {
        "current_timestamp", "now", "current_date", "curdate", "localtimestamp",
        "unix_timestamp", "current_time",
    }
)  # fmt: skip
# Localtimestamp is a node since sqlglot 27.
_NOW_NODES = tuple(
    getattr(exp, name)
    for name in ("CurrentTimestamp", "CurrentDate", "CurrentTime", "Localtimestamp")
    if hasattr(exp, name)
)


@dataclass(frozen=True)
class CompilerSession:
    """What the meaning of an expression depends on besides its text and schema."""

    typer: Typer
    ansi: bool
    fixed_zone: bool
    lookups: Lookups = field(default_factory=Lookups)
    time_zone: str = "UTC"


class Translation:
    """Translates one conjunct. `types`: Spark's type for the text of each hoistable part."""

    def __init__(
        self, conjunct: Conjunct, session: CompilerSession, types: Mapping[str, Type]
    ) -> None:
        self.conjunct = conjunct
        self.session = session
        self.conversion = Conversion(session.typer, ansi=session.ansi)
        self._types = types

    def condition(self) -> Expression:
        """The whole conjunct as a BOOLEAN expression."""
        try:
            return self.boolean(self.conjunct.node, ())
        except RecursionError:
            message = "this is nested too deeply; compute a part of it before matching"
            raise SyntaxProblem(message, self.conjunct.place) from None

    def boolean(self, node: exp.Expr, guards: Guards) -> Expression:
        operand = self.build(node, guards)
        if operand.type.kind == "null":
            return Constant(None, BOOL)
        if operand.type != BOOL:
            raise not_boolean_error(self.conjunct, node, operand.type)
        return operand

    def build(self, node: exp.Expr, guards: Guards) -> Expression:
        part = row_part(self.conjunct, node)
        if part is not None:
            return self._hoisted(part, guards)
        if navigation_of(node) is not None:
            return self._folded(node)
        function = user_function_of(node)
        if function is not None:
            arguments = tuple(self.build(each, guards) for each in node.expressions)
            return UserCall(function.name, function.function, arguments, function.returns)
        looked_up = translate_remote(self, node, guards)
        if looked_up is not None:
            return looked_up
        if not self.conjunct.names_anything(node):
            return self.fixed(node)
        return self.by_rule(node, guards)

    def by_rule(self, node: exp.Expr, guards: Guards) -> Expression:
        """The node translated by its rule, with its operands."""
        rule = _RULES.get(type(node))
        try:
            if rule is None:
                raise InexactError(f"{self.describe(node)} over several variables")
            return rule(self, node, guards)
        except InexactError as inexact:
            # The innermost operation is the one that the reason is about.
            inexact.node = node if inexact.node is None else inexact.node
            raise

    def guarded(self, node: exp.Expr, guards: Guards) -> Iterator[tuple[exp.Expr, Guards]]:
        """The operands of a node in order, each with the guards of its evaluation."""
        for operand, own in guarded_operands(node, self.one_row):
            yield operand, guards + own

    def one_row(self, nodes: Sequence[exp.Expr]) -> tuple[int, tuple[str, ...]] | None:
        """The only variable that the nodes mention, and their texts on its row."""
        return over_one_row(self.conjunct, nodes)

    def describe(self, node: exp.Expr) -> str:
        """The operation at the root of a node, as users know it."""
        name = self.conjunct.parsed.call_name(node)
        if name is not None:
            return f"{name}()"
        return _SYMBOLS.get(type(node), self.conjunct.parsed.text_of(node))

    def _hoisted(self, part: RowPart, guards: Guards) -> RowOperand:
        type_ = self._types[part.text]
        if is_column(self.conjunct, part.node):
            return RowOperand(part.variable, part.text, type_)
        return RowOperand(part.variable, part.guarded(guards), type_, may_fail=True)

    def _folded(self, node: exp.Expr) -> RowOperand:
        how, argument = navigation_of(node), navigation_argument(node)
        assert how is not None
        assert argument is not None
        reference = self.conjunct.reference(argument)
        if how == "count" and reference is not None and reference.column is None:
            return RowOperand(reference.variable, None, BIGINT, "count")
        part = row_part(self.conjunct, argument)
        if part is None:
            raise InexactError(f"{self.conjunct.parsed.text_of(argument)} inside {how}()")
        hoisted = self._hoisted(part, ())
        result = aggregate_type(how, hoisted.type)
        if result is None:
            raise TypeMismatch(
                f"{how}() does not take {name_of(hoisted.type)}",
                node,
                f"give it a {'value that can be ordered' if how in {'min', 'max'} else 'number'}",
            )
        return replace(hoisted, type=result, reading=how)

    def fixed(self, node: exp.Expr) -> Expression:
        """A part without references."""
        text = self.conjunct.parsed.cut(node)
        names = {name for name, _ in self.conjunct.parsed.calls(node)}
        if names & _NOW or any(node.find_all(*_NOW_NODES)):
            raise InexactError("the current time in a condition over several variables")
        try:
            return ConstantOperand(self.conversion.constant(text), text)
        except ValueError as problem:
            raise TypeMismatch(str(problem), node) from None


def hoistable_parts(conjunct: Conjunct, node: exp.Expr | None = None) -> Iterator[RowPart]:
    """Every part that a translation of the conjunct would hoist."""
    node = conjunct.node if node is None else node
    part = row_part(conjunct, node)
    if part is not None:
        yield part
    elif (
        navigation_of(node) is not None
        or user_function_of(node) is not None
        or type(node) in _WALKED
    ):
        # Chains of AND and OR may be thousands of levels deep, so they are walked flat.
        is_flat = isinstance(node, exp.And | exp.Or)
        for child in node.flatten() if is_flat else node.iter_expressions():
            yield from hoistable_parts(conjunct, child)


def not_boolean_error(conjunct: Conjunct, node: exp.Expr, type_: Type) -> TypeMismatch:
    text = conjunct.parsed.text_of(node)
    return TypeMismatch(
        f"a condition must be TRUE or FALSE, but {text} is {name_of(type_)}",
        node,
        "compare it with something",
    )


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
# Chains of these without parentheses: sqlglot and Spark disagree on the precedence.
_OPERATORS_WITH_RANK = (exp.Predicate, exp.Not, exp.NullSafeEQ, exp.NullSafeNEQ)


# ---- comparison ----------------------------------------------------------------------------------


def translate_comparison(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    _check_rank(node.this, node.expression)
    operands = (t.build(each, guards) for each in (node.this, node.expression))
    return compare(t, COMPARISONS[type(node)], *operands)


def translate_distinct(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """IS DISTINCT FROM."""
    _check_rank(node.this, node.expression)
    operands = (t.build(each, guards) for each in (node.this, node.expression))
    return negate(compare(t, "<=>", *operands))


def translate_between(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    if node.args.get("symmetric"):
        raise InexactError("BETWEEN SYMMETRIC")
    _check_rank(node.this)
    value, low, high = (t.build(*operand) for operand in t.guarded(node, guards))
    bounds = (compare(t, ">=", value, low), compare(t, "<=", value, high))
    return Call("and", bounds, BOOL)


def translate_in(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """value IN (items)."""
    if not node.expressions:
        raise InexactError("IN without a list of values")
    _check_rank(node.this)
    items = [t.build(*operand) for operand in t.guarded(node, guards)]
    return Call("in", tuple(to_common_type(t, items)), BOOL)


def compare(t: Translation, name: str, left: Expression, right: Expression) -> Expression:
    if left.type.kind == right.type.kind == "int":
        return Call(name, (left, right), BOOL)
    return Call(name, tuple(to_common_type(t, _narrow_literals(left, right))), BOOL)


def to_common_type(t: Translation, operands: Sequence[Expression]) -> list[Expression]:
    """The operands in the type in which Spark compares them."""
    target = _find_common_type(t, [operand.type for operand in operands])
    if target.kind == "other":
        return _collation_keys(t, operands)
    if target.kind not in COMPARABLE:
        raise InexactError(f"comparisons of {name_of(target)} values")
    # Widening a number is cheap in the engine; other casts are cheaper in Spark, once for each row.
    in_engine = target.kind in {"int", "float"}
    return [t.conversion.to(each, target, in_engine=in_engine) for each in operands]


def _find_common_type(t: Translation, types: Sequence[Type]) -> Type:
    found = types[0]
    for type_ in types[1:]:
        wider = common_type(found, type_, ansi=t.session.ansi)
        if wider is None:
            raise InexactError(f"expressions that mix {name_of(found)} and {name_of(type_)}")
        found = wider
    return found


def _collation_keys(t: Translation, operands: Sequence[Expression]) -> list[Expression]:
    """The collation keys of strings of one collation, which compare as the strings do."""
    hoisted = [each for each in operands if isinstance(each, RowOperand) and each.text]
    texts = [each.text or "" for each in hoisted]
    # An explicit COLLATE applies to both sides, so the key of the other side would be wrong.
    if len(hoisted) < len(operands) or any("collate" in text.lower() for text in texts):
        raise InexactError("comparisons of nested or collated values")
    keys = [f"collation_key({text})" for text in texts]
    pairs = [f"({text}) = ({texts[0]})" for text in texts[1:]]
    types = t.session.typer.of_row([*keys, *pairs])
    if types != [Type("binary")] * len(keys) + [BOOL] * len(pairs):
        raise InexactError("comparisons of nested or collated values")
    return [
        replace(each, text=key, type=Type("binary"))
        for each, key in zip(hoisted, keys, strict=True)
    ]


def _check_rank(*operands: exp.Expr) -> None:
    if any(isinstance(operand, _OPERATORS_WITH_RANK) for operand in operands):
        raise InexactError("chained comparisons without parentheses")


# ---- arithmetic ----------------------------------------------------------------------------------


def translate_arithmetic(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    left, right = (t.build(each, guards) for each in (node.this, node.expression))
    left, right = _narrow_literals(left, right)
    if {left.type.kind, right.type.kind} == {"date", "timestamp"}:
        # Midnight of a date may not exist in the time zone; Spark converts to an instant first.
        left, right = (t.conversion.to(each, Type("timestamp")) for each in (left, right))
    name, session = ARITHMETIC[type(node)], t.session
    rule = arithmetic_rule(
        name, left.type, right.type, ansi=session.ansi, fixed_zone=session.fixed_zone
    )
    if rule is None:
        raise InexactError(f"{name_of(left.type)} {name} {name_of(right.type)}")
    if not left.type.kind == right.type.kind == rule.left.kind == "int":
        left = t.conversion.to(left, rule.left, in_engine=True)
        right = t.conversion.to(right, rule.right, in_engine=True)
    return Call(name, (left, right), rule.type)


def translate_sign(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """Minus, and abs()."""
    operand = t.build(node.this, guards)
    name, shown = ("neg", "unary minus") if isinstance(node, exp.Neg) else ("abs", "abs()")
    if operand.type.kind not in NUMBERS | {"interval"}:
        raise InexactError(f"{shown} of {name_of(operand.type)}")
    return Call(name, (operand,), operand.type)


def translate_cast(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    operand, target = t.build(node.this, guards), parse_type(node.args["to"].sql("spark"))
    if target is None or not widens(operand.type, target):
        raise InexactError("a cast of a value computed from several rows")
    return t.conversion.to(operand, target, in_engine=True)


def translate_is_nan(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    operand = t.build(node.this, guards)
    if operand.type.kind not in NUMBERS:
        raise InexactError(f"isnan() of {name_of(operand.type)}")
    if operand.type.kind != "float":
        operand = t.conversion.to(operand, DOUBLE, in_engine=True)
    return Call("isnan", (operand,), BOOL)


def _narrow_literals(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """In an operation with a decimal, an integer literal has only the digits that it needs."""
    if isinstance(left, ConstantOperand) and right.type.kind == "decimal":
        return _literal_as_decimal(left), right
    if isinstance(right, ConstantOperand) and left.type.kind == "decimal":
        return left, _literal_as_decimal(right)
    return left, right


def _literal_as_decimal(fixed: ConstantOperand) -> ConstantOperand:
    if fixed.type.kind != "int":
        return fixed
    return ConstantOperand(
        Constant(fixed.constant.value, narrowest_decimal(fixed.constant)), fixed.text
    )


# ---- logic and NULL ------------------------------------------------------------------------------


def translate_logic(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """AND, OR. An operand is evaluated only where those before it do not decide the result."""
    arguments = tuple(t.boolean(*operand) for operand in t.guarded(node, guards))
    return Call("and" if isinstance(node, exp.And) else "or", arguments, BOOL)


def translate_not(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    return negate(t.boolean(node.this, guards))


def negate(operand: Expression) -> Expression:
    return Call("not", (operand,), BOOL)


def translate_is(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """IS NULL, IS TRUE, IS FALSE, IS UNKNOWN."""
    _check_rank(node.this)
    if isinstance(node.expression, exp.Null):
        return Call("is_null", (t.build(node.this, guards),), BOOL)
    if isinstance(node.expression, exp.Boolean):
        value = Constant(bool(node.expression.this), BOOL)
        return Call("<=>", (t.boolean(node.this, guards), value), BOOL)
    raise InexactError(f"{t.describe(node)} over several variables")


def translate_null_test(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """isnull(x), isnotnull(x): functions without a node class of their own."""
    name = {"isnull": "is_null", "isnotnull": "is_not_null"}.get(node.name.lower())
    if name is None or len(node.expressions) != 1:
        raise InexactError(f"{t.describe(node)} over several variables")
    return Call(name, (t.build(node.expressions[0], guards),), BOOL)


# ---- CASE, IF, NVL2, COALESCE, LEAST, GREATEST, NULLIF -------------------------------------------


_NULL = Constant(None, Type("null"))
_FIRST_OF: dict[type[exp.Expr], str] = {
    exp.Coalesce: "coalesce",
    exp.Least: "least",
    exp.Greatest: "greatest",
}


def translate_case(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """CASE WHEN test THEN ..., and CASE value WHEN other THEN ..., which compares. A branch is
    translated under its guards, so that what is hoisted from it is computed only where the branch
    can be taken. The results are converted to one type, as Spark does."""
    operands = t.guarded(node, guards)
    subject = node.args.get("this")
    value = None if subject is None else t.build(*next(operands))
    tests, results = [], []
    for _ in node.args["ifs"]:
        test, test_guards = next(operands)
        if value is None:
            tests.append(t.boolean(test, test_guards))
        else:
            tests.append(compare(t, "=", value, t.build(test, test_guards)))
        results.append(t.build(*next(operands)))
    return _nest_ifs(t, tests, [*results, _translate_default(t, operands)])


def translate_if(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    operands = t.guarded(node, guards)
    test, then = t.boolean(*next(operands)), t.build(*next(operands))
    return _nest_ifs(t, [test], [then, _translate_default(t, operands)])


def translate_nvl2(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    value, *results = (t.build(*operand) for operand in t.guarded(node, guards))
    return _nest_ifs(t, [negate(Call("is_null", (value,), BOOL))], results)


def translate_first_of(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """COALESCE, LEAST, GREATEST."""
    operands = _results_to_common_type(
        t, [t.build(*operand) for operand in t.guarded(node, guards)]
    )
    return Call(_FIRST_OF[type(node)], tuple(operands), operands[0].type)


def translate_nullif(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    left, right = (t.build(each, guards) for each in (node.this, node.expression))
    equal = compare(t, "=", left, right)
    return Call("if", (equal, Constant(None, left.type), left), left.type)


def _translate_default(t: Translation, operands: Iterator[tuple[exp.Expr, Guards]]) -> Expression:
    """The remaining operand: ELSE, or NULL without one."""
    default = next(operands, None)
    return _NULL if default is None else t.build(*default)


def _nest_ifs(
    t: Translation, tests: Sequence[Expression], results: Sequence[Expression]
) -> Expression:
    """Nested ifs, from the last branch inwards."""
    *branches, default = _results_to_common_type(t, results)
    pairs = reversed(list(zip(tests, branches, strict=True)))
    return reduce(
        lambda otherwise, pair: Call("if", (*pair, otherwise), otherwise.type), pairs, default
    )


def _results_to_common_type(t: Translation, operands: Sequence[Expression]) -> list[Expression]:
    if all(operand.type.kind == "null" for operand in operands):
        raise InexactError("an expression whose branches are all NULL")
    return to_common_type(t, operands)


# ---- remote calls --------------------------------------------------------------------------------


def translate_remote(t: Translation, node: exp.Expr, guards: Guards) -> Expression | None:
    """The node, if it is a remote call or a membership in a remote array; otherwise None.

    The fields of a value are read where it is looked up, so `remote('limits', a.org).max` is one
    operand. Arrays support only membership and tests for NULL; the engine computes with no other
    nested value.
    """
    call = remote_call_of(t, node)
    if call is not None:
        return translate_remote_call(t, *call, guards)
    return translate_membership(t, node, guards) if is_remote_membership(t, node) else None


def remote_call_of(
    t: Translation, node: exp.Expr
) -> tuple[RemoteCallText, tuple[exp.Expr, ...]] | None:
    """The remote call of a node, with the fields that are read of its value."""
    fields: list[exp.Expr] = []
    while isinstance(node, exp.Dot | exp.Paren):
        if isinstance(node, exp.Dot):
            fields.insert(0, node.expression)
        node = node.this
    call = t.conjunct.call(node)
    return None if call is None else (call, tuple(fields))


def translate_remote_call(
    t: Translation, call: RemoteCallText, fields: tuple[exp.Expr, ...], guards: Guards
) -> RemoteCall:
    """A call that the engine evaluates."""
    lookups = t.session.lookups
    known = lookups.known[call.name]
    path, shape = _path(t, known, fields)
    keys = tuple(_key(t, known, place, node, guards) for place, node in enumerate(call.keys))
    types = tuple(key.type for key in keys)
    place = lookups.place_of(known, types)
    if not isinstance(place, int):
        before, now = (" and ".join(map(name_of, each)) for each in (place, types))
        hint = "cast the key in one of the two"
        if len(place) != len(types):
            hint = "use the same number of key columns in every call"
        message = f"the key of {known.name!r} is {now} here, but {before} in another call"
        raise TypeMismatch(message, call.node, hint)
    return RemoteCall(place, keys, shape.type, path)


def _key(
    t: Translation, known: RemoteSchema, place: int, node: exp.Expr, guards: Guards
) -> Expression:
    key = t.build(node, guards)
    column = known.keys[place][1].type if known.keys is not None else None
    target = key_type(key.type, column, ansi=t.session.ansi)
    if target is not None:
        return t.conversion.to(key, target, in_engine=target.kind in {"int", "float"})
    if known.keys is None or key_type(key.type) is None:
        message, hint = describe_unfit_key(known, key.type)
        raise TypeMismatch(message, node, hint)
    message, hint = describe_key_mismatch(known, key.type, *known.keys[place])
    raise TypeMismatch(message, node, hint)


def _path(
    t: Translation, known: RemoteSchema, fields: tuple[exp.Expr, ...]
) -> tuple[tuple[str, ...], TypeTree]:
    path, shape = [], known.value
    for part in fields:
        found = shape.field(part.name, case_sensitive=t.session.lookups.case_sensitive)
        if found is None:
            names = [name for name, _ in shape.fields]
            nearest = nearest_name(part.name, names)
            hint = f"did you mean {nearest}?" if nearest else f"its fields are {list_names(names)}"
            raise TypeMismatch(
                f"the value of {known.name!r}, {shape.sql.upper()}, has no field {part.name}",
                part.parent or part,
                hint if names else f"write remote('{known.name}', ...) without a field",
            )
        path.append(found[0])
        shape = found[1]
    return tuple(path), shape


# ---- membership ----------------------------------------------------------------------------------


def is_remote_membership(t: Translation, node: exp.Expr) -> bool:
    """x IN remote(...), or array_contains(remote(...), x)."""
    if isinstance(node, exp.In):
        return membership_array(node) is not None
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "array_contains":
        return False
    return len(node.expressions) == 2 and _type_of_lookup(t, node.expressions[0]) is not None


def translate_membership(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    if isinstance(node, exp.In):
        value, array = node.this, membership_array(node)
    else:
        array, value = node.expressions
    assert array is not None
    operand = t.build(value, guards)
    if isinstance(array, exp.Coalesce) and _is_coalesce_to_empty(array):
        return _membership_or_empty(t, (operand, value), array.this, guards)
    return _membership(t, (operand, value), array, guards)


def _is_coalesce_to_empty(node: exp.Coalesce) -> bool:
    """coalesce(..., array())"""
    (*_, last) = (node.this, *node.expressions)
    is_empty = isinstance(last, exp.Anonymous) and last.name.lower() == "array"
    return len(node.expressions) == 1 and is_empty and not last.expressions


def _membership_or_empty(
    t: Translation, value: tuple[Expression, exp.Expr], array: exp.Expr, guards: Guards
) -> Expression:
    """Membership in coalesce(..., array()): FALSE for an empty array, NULL for a NULL value."""
    found = _membership(t, value, array, guards)
    assert isinstance(found, Member)
    is_missing = Call("is_null", (found.array,), BOOL)
    is_unknown = Call("is_null", (found.value,), BOOL)
    empty = Call("if", (is_unknown, Constant(None, BOOL), Constant(False, BOOL)), BOOL)
    return Call("if", (is_missing, empty, found), BOOL)


def _membership(
    t: Translation, value: tuple[Expression, exp.Expr], node: exp.Expr, guards: Guards
) -> Expression:
    operand, value_node = value
    shape = _type_of_lookup(t, node)
    text = t.conjunct.parsed.text_of(node)
    if shape is None:
        raise InexactError(f"membership in {text}")
    if shape.element is None:
        hint = "compare it with =, or use a field that is an array"
        raise TypeMismatch(f"{text} is {shape.sql.upper()}, not an array", node, hint)
    array, element = t.build(node, guards), shape.element.type
    if element.kind == "other":
        raise InexactError("membership in an array of nested values")
    both = _membership_type(operand.type, element, ansi=t.session.ansi)
    if both is None:
        raise TypeMismatch(
            f"{text} is {shape.sql.upper()}, so it cannot contain {name_of(operand.type)}",
            value_node,
            "cast the value to the type of the elements",
        )
    if both != element and not isinstance(array, RowOperand):
        raise InexactError(
            f"membership of {name_of(operand.type)} in an array of {name_of(element)}"
        )
    if both != element and isinstance(array, RowOperand):
        cast = f"CAST({array.text} AS ARRAY<{name_of(both)}>)"
        array = RowOperand(array.variable, cast, array.type, array.reading, array.may_fail)
    return Member(t.conversion.to(operand, both, in_engine=True), array)


def _membership_type(value: Type, element: Type, *, ansi: bool) -> Type | None:
    """The type in which Spark compares a value with elements: only numbers are cast."""
    if value == element:
        return element
    if {value.kind, element.kind} <= {"int", "float"}:
        return common_type(value, element, ansi=ansi)
    return None


def _type_of_lookup(t: Translation, node: exp.Expr) -> TypeTree | None:
    """The type of a remote value, whether it is a call of the engine or a column."""
    if isinstance(node, exp.Coalesce) and _is_coalesce_to_empty(node):
        node = node.this
    found = remote_call_of(t, node)
    lookups = t.session.lookups
    if found is not None:
        return _path(t, lookups.known[found[0].name], found[1])[1]
    fields: list[exp.Expr] = []
    while isinstance(node, exp.Dot | exp.Paren):
        if isinstance(node, exp.Dot):
            fields.insert(0, node.expression)
        node = node.this
    reference = t.conjunct.reference(node)
    column = reference.column if reference is not None else None
    known = lookups.of_column(column.name) if column is not None else None
    return None if known is None else _path(t, known, tuple(fields))[1]


# ---- the rule of each node -----------------------------------------------------------------------


_Rule = Callable[[Translation, "exp.Expr", Guards], Expression]
_RULES: dict[type[exp.Expr], _Rule] = {
    exp.Paren: lambda t, node, guards: t.build(node.this, guards),
    **dict.fromkeys(COMPARISONS, translate_comparison),
    exp.NullSafeNEQ: translate_distinct,
    exp.Between: translate_between,
    exp.In: translate_in,
    **dict.fromkeys(ARITHMETIC, translate_arithmetic),
    exp.Neg: translate_sign,
    exp.Abs: translate_sign,
    exp.Cast: translate_cast,
    exp.TryCast: translate_cast,
    exp.IsNan: translate_is_nan,
    exp.And: translate_logic,
    exp.Or: translate_logic,
    exp.Not: translate_not,
    exp.Is: translate_is,
    exp.Anonymous: translate_null_test,
    exp.Case: translate_case,
    exp.If: translate_if,
    exp.Nvl2: translate_nvl2,
    exp.Coalesce: translate_first_of,
    exp.Least: translate_first_of,
    exp.Greatest: translate_first_of,
    exp.Nullif: translate_nullif,
}
# A field name is not an expression: a Dot is walked only to find the keys of a call.
_WALKED = frozenset({*_RULES, exp.Dot})
_SYMBOLS: dict[type[exp.Expr], str] = {
    exp.Like: "LIKE",
    exp.ILike: "ILIKE",
    exp.RegexpLike: "RLIKE",
    exp.DPipe: "||",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseNot: "~",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    exp.Collate: "COLLATE",
}
