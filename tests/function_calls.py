"""Translates the texts of `function_cases` and evaluates them on every pair of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_cep.expressions.names import PatternNames
from spark_cep.expressions.problems import Problems
from spark_cep.expressions.shipment import Shipment
from spark_cep.expressions.translation import CompilerSession
from spark_cep.expressions.types import is_fixed_zone
from spark_cep.row_patterns import row_pattern
from spark_cep.rows.conditions import ConditionTranslation
from spark_cep.rows.conjuncts import RowConjunct, VariableGuards
from spark_cep.rows.leaves import ConditionContext, LeafContext, ship_row_expression
from spark_cep.rows.texts import RowScope, RowTypes, resolve_text, row_pattern_names
from spark_cep.udfs.expressions import (
    Call,
    Cell,
    Constant,
    Expression,
    LambdaArgument,
    Type,
)
from spark_cep.udfs.row_program import RowRead
from spark_cep.udfs.rows.leaves import replace_with_cells
from spark_cep.udfs.rows.table import TextExpressions
from spark_cep.udfs.values.evaluate import ErrorTally, evaluate_expression
from spark_cep.udfs.values.functions import python_values
from spark_cep.udfs.values.vectors import EventColumns, Vector

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.expressions.schema import ColumnInfo, Typer

ERROR = "error"
_PATTERN = row_pattern("a b")


@dataclass(frozen=True)
class Translated:
    """`spark`: the text over `a` and `b`, for Spark."""

    text: str
    spark: str
    expression: Expression


class Translator:
    def __init__(
        self, columns: Sequence[ColumnInfo], typer: Typer, *, ansi: bool, time_zone: str
    ) -> None:
        self.shipment = Shipment([each.name for each in columns])
        plain = PatternNames((), columns, case_sensitive=False)
        self._names = row_pattern_names(_PATTERN.variables, plain)
        self._session = CompilerSession(typer, ansi, is_fixed_zone(time_zone), time_zone=time_zone)
        self._around = ConditionContext(RowTypes(typer, columns), VariableGuards(), None)

    def translate(self, text: str) -> Translated:
        problems, variables = Problems(), _PATTERN.variables
        resolved = resolve_text(text, RowScope(self._names, variables, 1), problems)
        assert resolved is not None, problems.found
        conjunct = RowConjunct(resolved)
        translation = ConditionTranslation(conjunct, self._session, self._around)
        built = translation.build(conjunct.node, ())
        to = LeafContext(self.shipment, conjunct.rows, variables.names)
        of_pair = conjunct.text_over(
            conjunct.node,
            lambda each: (
                "b."
                if conjunct.rows[each.variable].shift == 0
                and conjunct.rows[each.variable].anchor == "current"
                else "a."
            ),
        )
        return Translated(
            text, of_pair.replace("CLASSIFIER()", "'b'"), ship_row_expression(built, to)
        )


def evaluate(expression: Expression, table: pa.Table, *, ansi: bool) -> list[Any]:
    """The value for each pair of rows, `a` first; "error" where it fails."""
    size = table.num_rows
    of_a, of_b = np.repeat(np.arange(size), size), np.tile(np.arange(size), size)
    columns = EventColumns(TextExpressions.of([expression]), table)
    read: list[Expression] = []
    cells = replace_with_cells(expression, read)

    def value(cell: Cell) -> Vector:
        leaf = read[cell.variable]
        assert isinstance(leaf, RowRead)
        rows = of_b if leaf.anchor == "current" else of_a
        if leaf.column is None:
            return Vector(np.ones(len(rows), np.bool_))
        return columns.gather(leaf.column, leaf.type, rows)

    tally = ErrorTally(ansi=ansi)
    vector = evaluate_expression(cells, value, columns, tally)
    shape = (size * size,)
    found = Vector(
        np.broadcast_to(vector.values, shape),
        None if vector.valid is None else np.broadcast_to(vector.valid, shape),
    )
    results = python_values(cells, found, columns)
    for failed in tally.take_failed():
        for place in np.flatnonzero(np.broadcast_to(failed, shape)):
            results[place] = ERROR
    return results


def same(expected: Any, found: Any, ulps: int = 0) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        if math.isnan(expected) or math.isnan(found):
            return math.isnan(expected) and math.isnan(found)
        if ulps and math.isfinite(expected):
            return abs(expected - found) <= ulps * math.ulp(expected)
        return repr(expected) == repr(found)
    if isinstance(expected, tuple | list) and isinstance(found, tuple | list):
        return len(expected) == len(found) and all(map(same, expected, found))
    return type(expected) is type(found) and bool(expected == found)


# ---- expressions as JSON -------------------------------------------------------------------------


def to_json(node: Expression) -> list[Any]:
    type_ = [node.type.kind, node.type.bits, node.type.precision, node.type.scale, node.type.sql]
    if isinstance(node, Constant):
        value = node.value
        return ["constant", type_, value.hex() if isinstance(value, bytes) else value]
    if isinstance(node, RowRead):
        return ["read", type_, node.anchor, node.column]
    if isinstance(node, LambdaArgument):
        return ["argument", type_, node.number]
    assert isinstance(node, Call)
    return ["call", type_, node.name, *map(to_json, node.arguments)]


def from_json(form: Sequence[Any]) -> Expression:
    kind, type_, *rest = form
    of = Type(type_[0], type_[1], type_[2], type_[3], sql=type_[4])
    if kind == "constant":
        return Constant(bytes.fromhex(rest[0]) if of.kind == "binary" else rest[0], of)
    if kind == "read":
        return RowRead(rest[0], rest[1], of)
    if kind == "argument":
        return LambdaArgument(rest[0], of)
    return Call(rest[0], tuple(map(from_json, rest[1:])), of)
