"""The canonical form of a query, which a stream's state is compared with.

A program knows the shipped columns only by position, and the conditions on one variable only as
bits of a mask. The form adds what these mean, down to the texts that Spark evaluates: matches in
a checkpoint mean nothing without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_cep.udfs import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.expressions.schema import RowExpression
    from spark_cep.expressions.shipment import Shipment, ShippedColumn
    from spark_cep.udfs.canonical import Data


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
