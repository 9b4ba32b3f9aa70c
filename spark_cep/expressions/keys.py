"""Partition keys and order columns, as rows carry them to the engine.

The engine compares keys as bytes, so a key travels in a form that is equal exactly where GROUP BY
takes two keys for equal. What that form is depends on the type, which only Spark knows: a
`KeyResolver` says it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.expressions.names import quote_name
from spark_cep.udfs.program import Order

if TYPE_CHECKING:
    from spark_cep.expressions.schema import OrderBy, RowExpression
    from spark_cep.expressions.shipment import Shipment


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
