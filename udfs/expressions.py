"""Cross-variable expressions as the driver ships them: typed trees over hoisted columns.

A leaf `Cell` names a column of the shipped events and the variable whose row it is read at; Spark
has already computed every expression over one variable. `values/evaluate.py` evaluates the trees.

Always holds: types are resolved; the operands of a comparison have one kind and, for decimals, one
scale (the driver hoists or inserts a `cast`); every operation has exactly Spark's result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

TypeKind = Literal[
    "bool",
    "int",  # bits: 8, 16, 32, 64
    "float",  # bits: 32, 64
    "decimal",  # precision, scale
    "string",  # UTF8_BINARY, or the collation key as binary
    "binary",
    "date",
    "timestamp",  # microseconds since the epoch, UTC instant
    "timestamp_ntz",
    "interval",  # day-time, microseconds
    "months",  # year-month, months
    "null",
    "other",  # may only feed `is_null` and user functions
]

# How a cell of a Kleene variable is read. "each": the condition holds for each element;
# "prev": the element before; the others fold the whole list.
CellReading = Literal["each", "prev", "first", "last", "count", "sum", "avg", "min", "max"]
LIST_ENDS: Final = frozenset({"first", "last"})
FOLDS = LIST_ENDS | {"count", "sum", "avg", "min", "max"}


@dataclass(frozen=True)
class Type:
    """A Spark SQL type, as far as the engine distinguishes types. `sql`: of kind "other", the name
    that Spark has for the type, which tells functions of arrays and maps what is inside."""

    kind: TypeKind
    bits: int = 64
    precision: int = 0
    scale: int = 0
    sql: str = field(default="", compare=False, repr=False)


BOOL = Type("bool")
BIGINT = Type("int", 64)
DOUBLE = Type("float", 64)


class Expression:
    """A node of the tree; every node has a `type`."""

    type: Type

    def children(self) -> tuple[Expression, ...]:
        return ()

    def walk(self) -> Iterator[Expression]:
        yield self
        for child in self.children():
            yield from child.walk()


@dataclass(frozen=True)
class Cell(Expression):
    """Column `column` of the shipped events (an index into Program.columns), read at the row that
    `variable` is bound to. `column` is None only for `count(b)`."""

    variable: int
    column: int | None
    type: Type
    reading: CellReading = "each"


@dataclass(frozen=True)
class Constant(Expression):
    """A literal as a Python value: int (also microseconds, days, months, and unscaled decimals),
    float, bool, str, bytes or None."""

    value: Any
    type: Type


@dataclass(frozen=True)
class Call(Expression):
    """An operation. Names:

    comparison   = <> < <= > >= <=>            boolean     and or not
    arithmetic   + - * / % div neg abs         nullness    is_null is_not_null coalesce nullif
    choice       if (condition, then, else)    selection   least greatest in (value, items...)
    conversion   cast (numeric widening only)  floats      isnan
    functions    as in `functions/registry.py`; with lambda functions `values/lambdas.py`
    `CASE` becomes nested `if`, `BETWEEN` two comparisons under `and`.
    """

    name: str
    arguments: tuple[Expression, ...]
    type: Type

    def children(self) -> tuple[Expression, ...]:
        return self.arguments


@dataclass(frozen=True)
class LambdaArgument(Expression):
    """An argument of a lambda function around it. `Call("->", (body, *arguments))` is the lambda,
    an argument of a call such as `transform`. Numbers are unique in a condition."""

    number: int
    type: Type


@dataclass(frozen=True)
class UserCall(Expression):
    """A call of a `cep.udf`, with one pandas Series for each argument; returns as many values."""

    name: str
    function: Callable[..., Any] = field(compare=False)
    arguments: tuple[Expression, ...]
    type: Type

    def children(self) -> tuple[Expression, ...]:
        return self.arguments


@dataclass(frozen=True)
class RemoteCall(Expression):
    """The value that a remote source, a place in Program.remotes, has for a key.

    `path`: the struct fields that lead to the value. A NULL key and a missing key give NULL. Arrays
    have type "other"; `Member` reads them.
    """

    remote: int
    arguments: tuple[Expression, ...]
    type: Type
    path: tuple[str, ...] = ()

    def children(self) -> tuple[Expression, ...]:
        return self.arguments


@dataclass(frozen=True)
class Member(Expression):
    """Whether an array has an element equal to `value`, with the meaning of array_contains.

    NULL where either is NULL, and where the value is missing from an array that contains NULL.
    `array` is a RemoteCall or a Cell whose column holds arrays; its elements have the type of
    `value`.
    """

    value: Expression
    array: Expression
    type: Type = BOOL

    def children(self) -> tuple[Expression, ...]:
        return (self.value, self.array)


def cells_of(expression: Expression) -> Iterator[Cell]:
    return (node for node in expression.walk() if isinstance(node, Cell))


def remote_sources_of(expression: Expression) -> frozenset[int]:
    """The remote sources that the expression reads."""
    return frozenset(n.remote for n in expression.walk() if isinstance(n, RemoteCall))


def variables_of(expression: Expression) -> frozenset[int]:
    return frozenset(cell.variable for cell in cells_of(expression))
