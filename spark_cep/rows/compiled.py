"""What compiling a row pattern gives: plain, frozen data without Spark in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from spark_cep.expressions.schema import OrderBy
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.program import Window
    from spark_cep.udfs.row_program import RowPatternNode, RowsMode, RowVariable, Skip


@dataclass(frozen=True)
class RowReading:
    """What the engine evaluates for the measures, and what Spark has to know of it.

    `source`: the shipped column whose type the value has, or a list's elements have; None: the
    type is the expression's. `label`: a number of a variable, which becomes its name.
    """

    expression: Expression
    source: int | None = None
    shape: Literal["value", "list"] = "value"
    label: bool = False


@dataclass(frozen=True)
class RowMeasure:
    """`sql` is over the readings by their names (`reading_name`); `text` is the user's."""

    name: str
    sql: str
    text: str


@dataclass(frozen=True)
class CompiledRowPattern:
    """`conditions`: for each variable its text, None if it is any row, and whether Spark computes
    it whole on single rows."""

    variables: tuple[RowVariable, ...]
    pattern: RowPatternNode
    skip: Skip
    rows: RowsMode
    window: Window | None
    partition: tuple[str, ...]
    orders: tuple[OrderBy, ...]
    readings: tuple[RowReading, ...]
    measures: tuple[RowMeasure, ...]
    conditions: tuple[tuple[str | None, bool], ...]


def reading_name(number: int) -> str:
    """What a measure calls a reading.

    >>> reading_name(2)
    '__cep_m2'
    """
    return f"__cep_m{number}"
