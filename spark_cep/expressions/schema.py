"""The compiler's view of the input, and of Spark: columns, orders, types, constants.

Plain data and protocols, so that patterns are compiled without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Union

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Constant, Type
    from spark_cep.udfs.functions.session import SessionFunction

# What a typer says of an aggregate among expressions over one row.
NOT_OF_ONE_ROW = "an aggregate function has no place in a condition on one row."

# A Spark Column. Only spark_cep.spark uses it as one, so its type is not imported here.
ColumnExpression = Any
# An expression over an input row: Spark SQL text, or the user's Column.
RowExpression = Union[str, ColumnExpression]  # noqa: UP007

# Columns that a statement adds to the input of a clause, and that no answer shows.
HIDDEN_PREFIX = "__cep_hidden_"


@dataclass(frozen=True)
class ColumnInfo:
    """A column of the input; its type is "other" if the engine cannot compute with it."""

    name: str
    type: Type


@dataclass(frozen=True)
class OrderColumn:
    """An order column given as a Column with a direction: `F.col("x").desc()`."""

    column: ColumnExpression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class OrderBy:
    expression: RowExpression
    descending: bool
    nulls_first: bool
    type: Type


class Typer(Protocol):
    """The compiler's only interface to Spark. A `str` in a result is Spark's error message."""

    def of_row(self, expressions: Sequence[RowExpression]) -> list[Type | str]:
        """Types over the columns of an input row."""
        ...

    def of_match(
        self, expressions: Sequence[str], variables: Mapping[str, bool]
    ) -> list[Type | str]:
        """Types over one struct column for each variable; `variables`: whether it is an array."""
        ...

    def add_aggregates(self, aggregates: Sequence[tuple[str, str]]) -> list[str | None]:
        """From now on input rows have a column for each of these aggregates of input rows, given
        by name and text. None for each that is valid."""
        ...

    def constants(self, expressions: Sequence[str]) -> list[Constant | str]:
        """Values of constant expressions."""
        ...

    def session_function(self, text: str, name: str) -> SessionFunction | str | None:
        """The Python function of the session that a text over an input row calls; None if it calls
        none."""
        ...


class ColumnRequests(Protocol):
    """Collects the columns that are shipped to the engine."""

    def column(self, expression: RowExpression, *, guards: frozenset[int] = frozenset()) -> int:
        """Adds a column and returns its index. `guards`: the variables whose candidates need the
        value; it is not computed on other rows, so it raises no errors there."""
        ...
