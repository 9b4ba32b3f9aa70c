"""What is shipped to the engine: columns, collected while compiling and selected at once; keys and
orders among them; and the canonical form in which a query is compared with a checkpoint.

The compiler requests the expressions that it needs and gets indexes into `Program.columns`. Equal
expressions are shipped once. A computed expression is guarded: it is evaluated only on rows that
may be one of the variables that need it, because it may fail on others (`cast(payload AS int)`).
A plain column cannot fail and is never guarded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spark_cep.expressions.names import quote_name
from spark_cep.udfs import canonical
from spark_cep.udfs.canonical import normalized
from spark_cep.udfs.program import Order

if TYPE_CHECKING:
    from spark_cep.expressions.schema import OrderBy, RowExpression
    from spark_cep.udfs.canonical import Data


ColumnRole = Literal["value", "mask", "slice", "home"]


@dataclass
class ShippedColumn:
    """One shipped column. `guards`: the variables that need it; None: computed on every row.
    `column`: the name of the input column if the expression is a plain one."""

    expression: RowExpression
    guards: frozenset[int] | None
    column: str | None = None
    role: ColumnRole = "value"

    def text(self) -> str:
        return str(self.expression) if self.column is None else self.column


class Shipment:
    """Columns to ship, by index; `columns`: the names of the input's columns, each once."""

    def __init__(self, columns: Sequence[str], *, case_sensitive: bool = False) -> None:
        self._fold = (lambda name: name) if case_sensitive else str.casefold
        self._columns = {self._fold(name): name for name in columns}
        self._index: dict[object, int] = {}
        self.shipped: list[ShippedColumn] = []

    def column(self, expression: RowExpression, *, guards: frozenset[int] = frozenset()) -> int:
        """The index of `expression`, computed on the candidates of `guards` (empty: on all rows).

        >>> shipment = Shipment(["ts", "price"])
        >>> shipment.column("ts"), shipment.column("abs(price)", guards=frozenset({0}))
        (0, 1)
        >>> shipment.column(" `TS` "), shipment.column("abs(price)", guards=frozenset({2}))
        (0, 1)
        >>> shipment.shipped[1].guards
        frozenset({0, 2})
        """
        name = self._plain(expression) if isinstance(expression, str) else None
        if name is not None:
            return self._add(("column", name), ShippedColumn(expression, None, name))
        wanted = ShippedColumn(expression, guards or None)
        if isinstance(expression, str):
            return self._add(("text", normalized(expression)), wanted)
        return self._add(("object", id(expression)), wanted)

    def added_column(self, name: str) -> int:
        """The index of a column that rows have besides those of the input."""
        return self._add(("added", name), ShippedColumn(quote_name(name), None, name))

    def special(self, role: ColumnRole, expression: RowExpression) -> int:
        """The index of the mask, the slice or the home flag; each is shipped once."""
        return self._add((role,), ShippedColumn(expression, None, role=role))

    def names(self) -> tuple[str, ...]:
        """The names of the shipped columns: c0, c1, ..."""
        return tuple(f"c{place}" for place in range(len(self.shipped)))

    def as_now(self) -> Shipment:
        """A copy that later requests do not change."""
        frozen = copy(self)
        frozen.shipped, frozen._index = list(self.shipped), dict(self._index)
        return frozen

    def _add(self, key: object, wanted: ShippedColumn) -> int:
        place = self._index.get(key)
        if place is None:
            self._index[key] = len(self.shipped)
            self.shipped.append(wanted)
            return len(self.shipped) - 1
        known = self.shipped[place]
        if known.guards is None or wanted.guards is None:
            known.guards = None
        else:
            known.guards |= wanted.guards
        return place

    def _plain(self, text: str) -> str | None:
        """The input column that the text names, if it is a plain reference."""
        text = text.strip()
        if re.fullmatch(r"[^\W\d]\w*", text):
            return self._columns.get(self._fold(text))
        found = re.fullmatch(r"`((?:[^`]|``)+)`", text)
        return self._columns.get(self._fold(found[1].replace("``", "`"))) if found else None


# ---- partition keys and order columns ------------------------------------------------------------

# The engine compares keys as bytes, so a key travels in a form that is equal exactly where GROUP BY
# takes two keys for equal. What that form is depends on the type, which only Spark knows: a
# `KeyResolver` says it.


@dataclass(frozen=True)
class PartitionKey:
    """`expression`: the key in its canonical form. `plain`: that is the key itself. `shows`: it is
    also what GROUP BY would show, so an answer may give it; otherwise an answer needs the original
    value of some row."""

    expression: RowExpression
    plain: bool = True
    shows: bool = True


# The keys for the names of partition columns and for further expressions over input columns.
KeyResolver = Callable[[Sequence[str], Sequence[str]], Sequence[PartitionKey]]


def plain_keys(partition: Sequence[str], inferred: Sequence[str]) -> tuple[PartitionKey, ...]:
    """Keys of types whose equal values are equal bytes."""
    return tuple(PartitionKey(text) for text in (*map(quote_name, partition), *inferred))


def ship_keys(shipment: Shipment, keys: Sequence[PartitionKey]) -> tuple[int, ...]:
    return tuple(shipment.column(each.expression) for each in keys)


def ship_shown_keys(
    shipment: Shipment, partition: Sequence[str], keys: Sequence[PartitionKey]
) -> tuple[tuple[str, int], ...]:
    """The partition columns by name, each with the shipped column that an answer shows."""
    return tuple(
        (name, shipment.column(key.expression if key.shows else quote_name(name)))
        for name, key in zip(partition, keys, strict=False)
    )


def ship_orders(shipment: Shipment, orders: Sequence[OrderBy]) -> tuple[Order, ...]:
    return tuple(
        Order(shipment.column(each.expression), each.type, each.descending, each.nulls_first)
        for each in orders
    )


# ---- the canonical form of a query ---------------------------------------------------------------

# A program knows the shipped columns only by position, and the conditions on one variable only as
# bits of a mask. The form adds what these mean, down to the texts that Spark evaluates: matches in
# a checkpoint mean nothing without it.


def query_form(
    program: Data,
    shipment: Shipment,
    *,
    masks: Sequence[Sequence[RowExpression]] = (),
    lookups: Sequence[tuple[str, Sequence[str]]] = (),
    inferred: Sequence[str] = (),
) -> Data:
    """`program`: the form of the program. `masks`: the conditions of each variable on one row.
    `lookups`: the source and the keys of each looked-up column. `inferred`: the keys that every
    shipped row has."""
    return canonical.query(
        program,
        [_shipped_column(each) for each in shipment.shipped],
        [[_expression(each) for each in condition] for condition in masks],
        [canonical.lookup(source, keys) for source, keys in lookups],
        [canonical.sql_text(key) for key in inferred],
    )


def _shipped_column(each: ShippedColumn) -> Data:
    if each.role == "mask":
        return canonical.candidate_mask()
    assert each.role == "value", "streams are not cut into slices"
    if each.column is not None:
        return canonical.shipped_column(canonical.input_column(each.column))
    return canonical.shipped_column(_expression(each.expression), each.guards)


def _expression(each: RowExpression) -> Data:
    if isinstance(each, str):
        return canonical.sql_text(each)
    return canonical.spark_column(str(each))
