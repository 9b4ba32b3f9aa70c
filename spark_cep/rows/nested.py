"""Structs, maps and lambda functions between rows of the match.

What is made here are calls of the worker's functions (udfs/functions/arrays.py) and of functions
with lambdas (udfs/values/lambdas.py). Spark says of every node whether it is valid and what type it
has; an argument of a lambda is a NULL of its type there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spark_cep.expressions.operands import InexactError
from spark_cep.expressions.translation import COMPARISONS, negate
from spark_cep.rows.functions import convert, sql_name_of
from spark_cep.udfs.expressions import BOOL, Call, Constant, Expression, LambdaArgument, Type
from spark_cep.udfs.functions.nested import (
    array_of,
    element_type,
    map_types,
    named_type,
    ranking,
    struct_fields,
)

if TYPE_CHECKING:
    from spark_cep.expressions.conditions import Guards
    from spark_cep.rows.conditions import ConditionTranslation

_INT: Final = Type("int", 32)


def translate_nested(t: ConditionTranslation, node: exp.Expr, guards: Guards) -> Expression | None:  # noqa: PLR0911
    """The node, if it is about structs, maps, whole arrays or lambda functions; otherwise None."""
    if isinstance(node, exp.Dot):
        return _field(t, node, guards)
    if isinstance(node, exp.Tuple):
        return _struct(t, node, node.expressions, guards)
    if isinstance(node, exp.Anonymous):
        rule = _BY_NAME.get(node.name.lower())
        return None if rule is None else rule(t, node, guards)
    if type(node) in COMPARISONS:
        left, right = (t.build(each, guards) for each in (node.this, node.expression))
        return _compare(t, node, COMPARISONS[type(node)], (left, right))
    if isinstance(node, exp.NullSafeNEQ):
        left, right = (t.build(each, guards) for each in (node.this, node.expression))
        found = _compare(t, node, "<=>", (left, right))
        return None if found is None else negate(found)
    if isinstance(node, exp.In) and node.expressions:
        value, *items = (t.build(each, guards) for each in (node.this, *node.expressions))
        equal = [_compare(t, node, "=", (value, item)) for item in items]
        known = tuple(each for each in equal if each is not None)
        return Call("or", known, BOOL) if len(known) == len(equal) else None
    rule = _CHOICES.get(type(node))
    return None if rule is None else rule(t, node, guards)


def _between(t: ConditionTranslation, node: exp.Expr, guards: Guards) -> Expression | None:
    if node.args.get("symmetric"):
        return None
    value, low, high = (t.build(*each) for each in t.guarded(node, guards))
    bounds = [_compare(t, node, ">=", (value, low)), _compare(t, node, "<=", (value, high))]
    known = tuple(each for each in bounds if each is not None)
    return Call("and", known, BOOL) if len(known) == len(bounds) else None


def _nullif(t: ConditionTranslation, node: exp.Expr, guards: Guards) -> Expression | None:
    left, right = (t.build(each, guards) for each in (node.this, node.expression))
    equal = _compare(t, node, "=", (left, right))
    nothing = Constant(None, left.type)
    return None if equal is None else Call("if", (equal, nothing, left), left.type)


def _equal_null(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> Expression | None:
    left, right = (t.build(each, guards) for each in node.expressions)
    return _compare(t, node, "<=>", (left, right))


def _refuse(t: ConditionTranslation, node: exp.Expr, type_: Type) -> InexactError:
    return InexactError(f"{t.describe(node)} of {sql_name_of(type_)}", node)


def _nested(t: ConditionTranslation, node: exp.Expr) -> Type:
    """The type of a node that is nested."""
    result = t.type_between_rows(node)
    if named_type(result.sql) is None:
        raise _refuse(t, node, result)
    return result


# ---- structs -------------------------------------------------------------------------------------


def _struct(
    t: ConditionTranslation, node: exp.Expr, parts: Sequence[exp.Expr], guards: Guards
) -> Expression:
    result = _nested(t, node)
    fields = struct_fields(result)
    assert fields is not None
    values = [
        convert(t, t.build(_unnamed(each), guards), type_, node)
        for each, (_, type_) in zip(parts, fields, strict=True)
    ]
    return Call("named_struct", tuple(values), result)


def _unnamed(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Alias) else node


def _of_fields(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> Expression:
    return _struct(t, node, node.expressions, guards)


def _of_named_fields(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> Expression:
    return _struct(t, node, node.expressions[1::2], guards)


def _field(t: ConditionTranslation, node: exp.Dot, guards: Guards) -> Expression | None:
    """x.city of a struct, and of every struct in an array."""
    value, name = t.build(node.this, guards), node.expression.name.casefold()
    element = element_type(value.type)
    fields = struct_fields(value.type if element is None else element)
    if fields is None:
        return None
    places = [n for n, (each, _) in enumerate(fields) if each.casefold() == name]
    if len(places) != 1:
        t.type_between_rows(node)
        raise InexactError(f"the field {node.expression.name}", node)
    type_ = fields[places[0]][1]
    is_array = element is not None
    result = array_of(type_) if is_array else type_
    place = Constant(places[0], _INT)
    return Call("fields" if is_array else "field", (value, place), result)


def _compare(
    t: ConditionTranslation, node: exp.Expr, name: str, sides: tuple[Expression, Expression]
) -> Expression | None:
    """A comparison of nested values, of which NULLs inside are equal."""
    left, right = sides
    nested = [each.type for each in sides if each.type.kind == "other"]
    if not nested:
        return None
    if "null" in {left.type.kind, right.type.kind}:
        left, right = (convert(t, each, nested[0], node) for each in sides)
    elif len(nested) < len(sides):
        return None
    if ranking(nested[0], nested[0].sql) is None or named_type(nested[0].sql) is None:
        raise _refuse(t, node, nested[0])
    # Spark compares arrays of integers of two widths, but not of decimals of two scales.
    t.type_between_rows(node)
    try:
        left = convert(t, left, right.type, node)
    except InexactError:
        right = convert(t, right, left.type, node)
    return Call(f"nested{name}", (left, right), BOOL)


# ---- CASE and its kin ----------------------------------------------------------------------------


def _case(t: ConditionTranslation, node: exp.Expr, guards: Guards) -> Expression | None:
    operands = [t.build(*each) for each in t.guarded(node, guards)]
    result = t.type_between_rows(node)
    if result.kind != "other":
        return None
    if node.args.get("this") is not None and isinstance(node, exp.Case):
        return None
    default: Expression = Constant(None, result)
    if len(operands) % 2:
        default = convert(t, operands.pop(), result, node)
    pairs = list(zip(operands[::2], operands[1::2], strict=True))
    for test, value in reversed(pairs):
        default = Call("if", (test, convert(t, value, result, node), default), result)
    return default


def _coalesce(t: ConditionTranslation, node: exp.Expr, guards: Guards) -> Expression | None:
    result = t.type_between_rows(node)
    if result.kind != "other":
        return None
    values = [convert(t, t.build(each, own), result, node) for each, own in t.guarded(node, guards)]
    return reduce(
        lambda rest, value: Call(
            "if", (negate(Call("is_null", (value,), BOOL)), value, rest), result
        ),
        reversed(values[:-1]),
        values[-1],
    )


def _extreme(name: str) -> _Rule:
    def rule(t: ConditionTranslation, node: exp.Expr, guards: Guards) -> Expression | None:
        result = t.type_between_rows(node)
        if result.kind != "other":
            return None
        if ranking(result, result.sql) is None or named_type(result.sql) is None:
            raise _refuse(t, node, result)
        values = (t.build(each, own) for each, own in t.guarded(node, guards))
        return Call(name, tuple(convert(t, each, result, node) for each in values), result)

    return rule


# ---- maps ----------------------------------------------------------------------------------------


def _check_keys(t: ConditionTranslation, node: exp.Expr, result: Type) -> tuple[Type, Type]:
    """Refuses keys whose equality is not that of Python: floats, and values with floats inside.
    With another policy for keys that come twice, Spark keeps one of them."""
    types = map_types(result)
    if types is None or types[0].kind in {"float", "other"}:
        raise _refuse(t, node, result)
    try:
        t.conversion.constant("size(map(1, 1, 1, 2))")
    except ValueError:
        return types
    raise InexactError(f"{t.describe(node)} with spark.sql.mapKeyDedupPolicy = LAST_WIN", node)


def _map(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> Expression:
    result = _nested(t, node)
    types = _check_keys(t, node, result)
    values = [
        convert(t, t.build(each, guards), types[place % 2], node)
        for place, each in enumerate(node.expressions)
    ]
    return Call("map", tuple(values), result)


def _of_arrays(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> Expression | None:
    """map_concat, map_from_arrays, map_from_entries"""
    _check_keys(t, node, _nested(t, node))
    return None


def _sequence(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> None:
    """Of numbers; those of times step by the calendar."""
    element = element_type(t.type_between_rows(node))
    if element is None or element.kind != "int":
        raise InexactError(f"{t.describe(node)} of times", node)


def _without_comparison(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> None:
    if any(isinstance(each, exp.Lambda) for each in node.expressions):
        raise InexactError(f"{t.describe(node)} with a comparison over several variables", node)


# ---- lambda functions ----------------------------------------------------------------------------


def _lambda(
    t: ConditionTranslation,
    node: exp.Expr,
    types: Sequence[Type],
    guards: Guards,
    wanted: Type | None = None,
) -> Call:
    """The lambda function, with arguments of these types; its result is converted to `wanted`."""
    if not isinstance(node, exp.Lambda):
        raise InexactError(f"{t.describe(node)} in place of a lambda function", node)
    bound = []
    for each, type_ in zip(node.expressions, types, strict=False):
        number = t.conjunct.arguments[id(each)]
        t.arguments[number] = LambdaArgument(number, type_)
        bound.append(t.arguments[number])
    body = t.build(node.this, guards)
    if wanted is not None:
        body = convert(t, body, wanted, node.this)
    return Call("->", (body, *bound), body.type)


def _over_array(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> Expression | None:
    """transform, filter, exists, forall"""
    result, name = t.type_between_rows(node), node.name.lower()
    array = t.build(node.expressions[0], guards)
    element = _element(t, node, array)
    wanted = element_type(_nested(t, node)) if name == "transform" else BOOL
    function = _lambda(t, node.expressions[1], (element, _INT), guards, wanted)
    return Call(name, (array, function), result)


def _element(t: ConditionTranslation, node: exp.Expr, array: Expression) -> Type:
    element = element_type(array.type)
    if element is None:
        raise _refuse(t, node, array.type)
    return element


def _aggregate(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> Expression:
    result = t.type_between_rows(node)
    array, zero = (t.build(each, guards) for each in node.expressions[:2])
    element = _element(t, node, array)
    merge = _lambda(t, node.expressions[2], (zero.type, element), guards)
    if merge.type != zero.type or merge.type.sql != zero.type.sql:
        raise InexactError(
            f"{t.describe(node)} that begins with {sql_name_of(zero.type)} and goes on with "
            f"{sql_name_of(merge.type)}",
            node,
        )
    functions = [merge]
    if len(node.expressions) > len(("array", "zero", "merge")):
        functions.append(_lambda(t, node.expressions[3], (zero.type,), guards, result))
    return Call("aggregate", (array, zero, *functions), result)


def _zip_with(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> Expression:
    result = _nested(t, node)
    arrays = [t.build(each, guards) for each in node.expressions[:2]]
    types = [_element(t, node, each) for each in arrays]
    function = _lambda(t, node.expressions[2], types, guards, element_type(result))
    return Call("zip_with", (*arrays, function), result)


def _over_map(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> Expression:
    """map_filter, transform_values, transform_keys"""
    result, name = _nested(t, node), node.name.lower()
    given = t.build(node.expressions[0], guards)
    types, results = map_types(given.type), map_types(result)
    if types is None or results is None or types[0].kind == "other":
        raise _refuse(t, node, given.type)
    if name == "transform_keys":
        _check_keys(t, node, result)
    wanted = {"map_filter": BOOL, "transform_values": results[1], "transform_keys": results[0]}
    function = _lambda(t, node.expressions[1], types, guards, wanted[name])
    return Call(name, (given, function), result)


def _map_zip_with(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> Expression:
    result = _nested(t, node)
    maps = [t.build(each, guards) for each in node.expressions[:2]]
    types, results = [map_types(each.type) for each in maps], map_types(result)
    if None in types or results is None:
        raise _refuse(t, node, maps[0].type)
    (key, left), (other, right) = (each for each in types if each is not None)
    if key != other or key.kind == "other":
        raise _refuse(t, node, maps[0].type)
    function = _lambda(t, node.expressions[2], (key, left, right), guards, results[1])
    return Call("map_zip_with", (*maps, function), result)


_Rule = Callable[["ConditionTranslation", "exp.Expr", "Guards"], "Expression | None"]
_BY_NAME: Final[dict[str, Callable[..., Expression | None]]] = {
    "struct": _of_fields,
    "named_struct": _of_named_fields,
    "equal_null": _equal_null,
    "map": _map,
    **dict.fromkeys(("map_concat", "map_from_arrays", "map_from_entries"), _of_arrays),
    "sequence": _sequence,
    "array_sort": _without_comparison,
    **dict.fromkeys(("transform", "filter", "exists", "forall"), _over_array),
    **dict.fromkeys(("aggregate", "reduce"), _aggregate),
    "zip_with": _zip_with,
    **dict.fromkeys(("map_filter", "transform_values", "transform_keys"), _over_map),
    "map_zip_with": _map_zip_with,
}
_CHOICES: Final[dict[type[exp.Expr], _Rule]] = {
    exp.Case: _case,
    exp.If: _case,
    exp.Coalesce: _coalesce,
    exp.Between: _between,
    exp.Nullif: _nullif,
    exp.Least: _extreme("least_nested"),
    exp.Greatest: _extreme("greatest_nested"),
}
