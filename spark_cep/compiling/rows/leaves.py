"""The leaves of an engine expression before its columns are shipped, and how they are.

While a condition is translated its leaves still are text, so that an operand can be brought to
another type by a CAST in it (operands.py): `Hoisted` reads a text at a row, by the row's number;
`Folded` aggregates one; `Label` is the name of the variable that a row is bound to.

A label is a string to the rules of types. The engine knows numbers only, so a comparison of a
label with a constant becomes one of numbers, and any other use a choice between the names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_cep.compiling.operands import Fixed, Hoisted
from spark_cep.udfs.expressions import BOOL, Call, Constant, Expression, Type
from spark_cep.udfs.rows.program import Aggregate, Classifier, Read, Variables

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import Shipment
    from spark_cep.compiling.rows.aggregates import EngineName
    from spark_cep.compiling.rows.texts import Row

STRING = Type("string")
NUMBER = Type("int", 32)
_EQUALITIES = {"=", "<>", "<=>"}


@dataclass(frozen=True)
class Label(Expression):
    """CLASSIFIER at a row. `known`: it is this variable, whatever the row."""

    row: Row
    known: int | None = None
    type: Type = STRING


@dataclass(frozen=True)
class Present(Expression):
    """Whether there is such a row."""

    row: Row
    type: Type = BOOL


@dataclass(frozen=True)
class Folded(Expression):
    """An aggregate of a text over a row; `text` None: of `argument`, or of the rows themselves."""

    name: EngineName
    text: str | None
    variables: Variables
    type: Type
    distinct: bool = False
    argument: Expression | None = None


@dataclass(frozen=True)
class Shipping:
    """What leaves are shipped with: the rows by number, and the names of the variables."""

    shipment: Shipment
    rows: Sequence[Row]
    names: Sequence[str]


def shipped(expression: Expression, to: Shipping) -> Expression:  # noqa: PLR0911
    """The tree as the engine takes it."""
    if isinstance(expression, Fixed):
        return expression.constant
    if isinstance(expression, Hoisted):
        assert expression.text is not None
        column = to.shipment.column(expression.text)
        return read(to.rows[expression.variable], column, expression.type)
    if isinstance(expression, Present):
        return read(expression.row, None, BOOL)
    if isinstance(expression, Folded):
        return _aggregate(expression, to)
    if isinstance(expression, Label):
        return _spelled(expression, to)
    if isinstance(expression, Call):
        compared = _compared(expression, to)
        if compared is not None:
            return compared
        return replace(expression, arguments=_all(expression.arguments, to))
    return expression


def read(row: Row, column: int | None, type_: Type) -> Read:
    # The rows of an aggregate are read one by one: each is the current one of its argument.
    if row.anchor == "each":
        return Read("current", column, type_)
    return Read(row.anchor, column, type_, row.variables, row.offset, row.shift, row.final)


def classifier(row: Row) -> Classifier:
    if row.anchor == "each":
        return Classifier(NUMBER)
    return Classifier(NUMBER, row.anchor, row.variables, row.offset, row.shift, row.final)


def _all(arguments: Sequence[Expression], to: Shipping) -> tuple[Expression, ...]:
    return tuple(shipped(argument, to) for argument in arguments)


def _aggregate(folded: Folded, to: Shipping) -> Aggregate:
    return Aggregate(
        folded.name,
        None if folded.text is None else to.shipment.column(folded.text),
        folded.type,
        folded.variables,
        folded.distinct,
        argument=None if folded.argument is None else shipped(folded.argument, to),
    )


# ---- labels ------------------------------------------------------------------------------------


def _spelled(label: Label, to: Shipping) -> Expression:
    """The label as a string."""
    if label.known is not None:
        return Constant(to.names[label.known], STRING)
    return chosen(classifier(label.row), [Constant(name, STRING) for name in to.names])


def chosen(
    number: Classifier, values: Sequence[Expression], none: Expression | None = None
) -> Call:
    """One value for each variable; `none` where the row is bound to no variable."""
    type_ = values[0].type
    found = Constant(None, type_) if none is None else none
    for place in reversed(range(len(values))):
        is_it = Call("=", (number, Constant(place, NUMBER)), BOOL)
        found = Call("if", (is_it, values[place], found), type_)
    assert isinstance(found, Call)
    return found


def _compared(call: Call, to: Shipping) -> Expression | None:
    """A label against constants, as numbers."""
    labels = [each for each in call.arguments if isinstance(each, Label)]
    names = [_constant(each) for each in call.arguments if not isinstance(each, Label)]
    if call.name not in _EQUALITIES | {"in"} or len(labels) != 1 or None in names:
        return None
    if call.name == "in" and call.arguments[0] is not labels[0]:
        return None
    label = labels[0]
    numbers = [_number(each.value, to.names) for each in names if each is not None]
    if label.known is None:
        own: Expression = classifier(label.row)
        arguments = [own if each is label else numbers.pop(0) for each in call.arguments]
        return replace(call, arguments=tuple(arguments))
    return _decided(call.name, label.known, [each.value for each in numbers])


def _decided(name: str, known: int, numbers: Sequence[int | None]) -> Constant:
    """A comparison of what is known with constants."""
    is_equal = known in numbers
    if name == "<=>":
        return Constant(is_equal, BOOL)
    if name == "<>":
        return Constant(None if None in numbers else not is_equal, BOOL)
    return Constant(True if is_equal else (None if None in numbers else False), BOOL)


def _constant(expression: Expression) -> Constant | None:
    if isinstance(expression, Fixed):
        expression = expression.constant
    return expression if isinstance(expression, Constant) else None


def _number(name: object, names: Sequence[str]) -> Constant:
    """The number of a variable that is spelled so; -1 for what none is called."""
    if name is None:
        return Constant(None, NUMBER)
    return Constant(names.index(name) if name in names else -1, NUMBER)
