"""What compiling needs to know of the input, and what it asks of Spark: types, constants and
shipped columns. Plain data and protocols, so that patterns are compiled without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Union

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Constant, Type

# A Column of Spark's. Only spark_cep.spark looks into it, so its type is not named here.
ColumnExpression = Any
# A row's expression: Spark SQL text over the input's columns, or the user's own Column.
RowExpression = Union[str, ColumnExpression]  # noqa: UP007


@dataclass(frozen=True)
class ColumnInfo:
    """A column of the input. A type that the engine cannot compute with is "other"."""

    name: str
    type: Type


@dataclass(frozen=True)
class OrderColumn:
    """An order column that the user gave as a Column with its direction, `F.col("x").desc()`."""

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
    """The compiler's only door to Spark. A `str` in an answer is a sentence: what is wrong."""

    def of_row(self, expressions: Sequence[RowExpression]) -> list[Type | str]:
        """Types over the columns of an input row."""
        ...

    def of_match(
        self, expressions: Sequence[str], variables: Mapping[str, bool]
    ) -> list[Type | str]:
        """Types over one struct column a variable, an array of structs where it is a list."""
        ...

    def constants(self, expressions: Sequence[str]) -> list[Constant | str]:
        """Values of expressions without columns."""
        ...


class ColumnRequests(Protocol):
    """Collects the columns that rows need when they travel to the engine."""

    def column(self, expression: RowExpression, *, guards: frozenset[int] = frozenset()) -> int:
        """Adds a column and returns its index. `guards`: the variables whose candidates need
        the value; on other rows it is not computed, so no error is woken there."""
        ...
