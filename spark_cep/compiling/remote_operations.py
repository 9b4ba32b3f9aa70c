"""What the engine does with looked-up values: a call as an operand, and membership of an array.

A value's fields are read where it is looked up, so `remote('limits', a.org).max` is one operand.
Whole arrays are for membership and tests for NULL only; the engine computes on no other nested
value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.compiling.lookups import Known, Shape, key_type, unfit_key
from spark_cep.compiling.memberships import array_of
from spark_cep.compiling.operands import Hoisted, Inexact
from spark_cep.compiling.parts import Guards, TypeMismatch
from spark_cep.compiling.problems import listed, nearest
from spark_cep.compiling.types import common, name_of
from spark_cep.udfs.expressions import BOOL, Call, Constant, Expression, Member, RemoteCall, Type

if TYPE_CHECKING:
    from spark_cep.compiling.remote_calls import RemoteText
    from spark_cep.compiling.translation import Translation


def translated(t: Translation, node: exp.Expr, guards: Guards) -> Expression | None:
    """The node, if it is about looked-up values in a way of its own."""
    call = call_of(t, node)
    if call is not None:
        return looked_up(t, *call, guards)
    return member(t, node, guards) if is_member(t, node) else None


def call_of(t: Translation, node: exp.Expr) -> tuple[RemoteText, tuple[exp.Expr, ...]] | None:
    """The call that a node is, and the fields that are read of its value."""
    fields: list[exp.Expr] = []
    while isinstance(node, exp.Dot | exp.Paren):
        if isinstance(node, exp.Dot):
            fields.insert(0, node.expression)
        node = node.this
    call = t.conjunct.call(node)
    return None if call is None else (call, tuple(fields))


def looked_up(
    t: Translation, call: RemoteText, fields: tuple[exp.Expr, ...], guards: Guards
) -> RemoteCall:
    """A call of the engine."""
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
            hint = "a source has one kind of key; give it all parts everywhere"
        message = f"{known.name!r} is asked with {now} here, and with {before} elsewhere"
        raise TypeMismatch(message, call.node, hint)
    return RemoteCall(place, keys, shape.type, path)


def _key(t: Translation, known: Known, place: int, node: exp.Expr, guards: Guards) -> Expression:
    key = t.build(node, guards)
    column = known.keys[place][1].type if known.keys is not None else None
    target = key_type(key.type, column, ansi=t.session.ansi)
    if target is not None:
        return t.conversion.to(key, target, in_engine=target.kind in {"int", "float"})
    if known.keys is None or key_type(key.type) is None:
        raise TypeMismatch(unfit_key(known, key.type)[0], node, unfit_key(known, key.type)[1])
    name, shape = known.keys[place]
    raise TypeMismatch(
        f"the key of {known.name!r} is {name_of(key.type)}, and its column {name} is "
        f"{shape.sql.upper()}",
        node,
        "cast one of the two",
    )


def _path(
    t: Translation, known: Known, fields: tuple[exp.Expr, ...]
) -> tuple[tuple[str, ...], Shape]:
    path, shape = [], known.value
    for field in fields:
        found = shape.field(field.name, case_sensitive=t.session.lookups.case_sensitive)
        if found is None:
            names = [name for name, _ in shape.fields]
            meant = nearest(field.name, names)
            hint = f"did you mean {meant}?" if meant else f"its fields are {listed(names)}"
            raise TypeMismatch(
                f"what {known.name!r} gives, {shape.sql.upper()}, has no field {field.name}",
                field.parent or field,
                hint if names else "name no field: remote('limits', a.org)",
            )
        path.append(found[0])
        shape = found[1]
    return tuple(path), shape


# ---- membership --------------------------------------------------------------------------------


def is_member(t: Translation, node: exp.Expr) -> bool:
    """x IN remote(...), or array_contains(remote(...), x) of what was looked up."""
    if isinstance(node, exp.In):
        return array_of(node) is not None
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "array_contains":
        return False
    return len(node.expressions) == 2 and _looked_up_shape(t, node.expressions[0]) is not None


def member(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    if isinstance(node, exp.In):
        value, array = node.this, array_of(node)
    else:
        array, value = node.expressions
    assert array is not None
    operand = t.build(value, guards)
    if isinstance(array, exp.Coalesce) and _is_or_empty(array):
        return _of_array_or_empty(t, (operand, value), array.this, guards)
    return _member(t, (operand, value), array, guards)


def _is_or_empty(node: exp.Coalesce) -> bool:
    """coalesce(..., array())"""
    (*_, last) = (node.this, *node.expressions)
    is_empty = isinstance(last, exp.Anonymous) and last.name.lower() == "array"
    return len(node.expressions) == 1 and is_empty and not last.expressions


def _of_array_or_empty(
    t: Translation, value: tuple[Expression, exp.Expr], array: exp.Expr, guards: Guards
) -> Expression:
    """In an empty array is nothing, and of NULL it is not known."""
    found = _member(t, value, array, guards)
    assert isinstance(found, Member)
    is_missing = Call("is_null", (found.array,), BOOL)
    is_unknown = Call("is_null", (found.value,), BOOL)
    empty = Call("if", (is_unknown, Constant(None, BOOL), Constant(False, BOOL)), BOOL)
    return Call("if", (is_missing, empty, found), BOOL)


def _member(
    t: Translation, value: tuple[Expression, exp.Expr], node: exp.Expr, guards: Guards
) -> Expression:
    operand, value_node = value
    shape = _looked_up_shape(t, node)
    text = t.conjunct.parsed.text_of(node)
    if shape is None:
        raise Inexact(f"membership of {text}")
    if shape.element is None:
        hint = "compare with =, or name a field that is an array"
        raise TypeMismatch(f"{text} is {shape.sql.upper()}, no array", node, hint)
    array, element = t.build(node, guards), shape.element.type
    if element.kind == "other":
        raise Inexact("membership among nested values")
    both = _tightest(operand.type, element, ansi=t.session.ansi)
    if both is None:
        raise TypeMismatch(
            f"{text} is {shape.sql.upper()}, and what is looked for in it {name_of(operand.type)}",
            value_node,
            "cast it to the type of the elements",
        )
    if both != element and not isinstance(array, Hoisted):
        raise Inexact(
            f"{name_of(operand.type)} among elements of {name_of(element)}, which would have to "
            f"be cast"
        )
    if both != element and isinstance(array, Hoisted):
        cast = f"CAST({array.text} AS ARRAY<{name_of(both)}>)"
        array = Hoisted(array.variable, cast, array.type, array.reading, array.may_fail)
    return Member(t.conversion.to(operand, both, in_engine=True), array)


def _tightest(value: Type, element: Type, *, ansi: bool) -> Type | None:
    """The type in which Spark looks for a value among elements: it casts numbers only."""
    if value == element:
        return element
    if {value.kind, element.kind} <= {"int", "float"}:
        return common(value, element, ansi=ansi)
    return None


def _looked_up_shape(t: Translation, node: exp.Expr) -> Shape | None:
    """The type of what was looked up, by the engine or as a column."""
    if isinstance(node, exp.Coalesce) and _is_or_empty(node):
        node = node.this
    found = call_of(t, node)
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
