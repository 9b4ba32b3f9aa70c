"""What the compiler of texts takes and gives: plain, frozen data without Spark in it.

A `Compiled` pattern says which conjuncts Spark tests on single rows (`masks`), which ones the
engine tests across rows (`conditions`) and which ones Spark tests on finished matches (`after`).
Together they are all conjuncts that the user wrote, but for the equalities that became keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Union

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_cep.compiling.lookups import AskedRemote, LookedUp
    from spark_cep.udfs.expressions import Constant, Type
    from spark_cep.udfs.program import (
        Branch,
        Condition,
        Consumption,
        Strategy,
        Tree,
        Variable,
        Window,
    )

# A row's expression: Spark SQL text over the input's columns, or the user's own Column.
RowExpression = Union[str, "Column"]


@dataclass(frozen=True)
class ColumnInfo:
    """A column of the input. A type that the engine cannot compute with is "other"."""

    name: str
    type: Type


@dataclass(frozen=True)
class Directed:
    """An order column that the user gave as a Column with its direction, `F.col("x").desc()`."""

    column: Column
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class OrderBy:
    expression: RowExpression
    descending: bool
    nulls_first: bool
    type: Type


@dataclass(frozen=True)
class Compiled:
    """A variable's id is its index in `variables` and its bit in the candidate mask.

    `masks`: for each variable its conjuncts over input columns, in the order written.
    `after`: text over structs named like the variables, guarded for unfilled variables.
    `partition`: the user's columns, as the input spells them. `inferred`: key expressions over
    input columns that the conditions imply; a row with NULL there matches nothing.
    `lookups`: columns that rows need besides the input's, with values that are looked up before
    matching; `hidden`: those that `after` reads, with the variable's id. `remotes`: the sources
    that the engine asks, by their place in the program.
    """

    variables: tuple[Variable, ...]
    masks: tuple[tuple[RowExpression, ...], ...]
    conditions: tuple[Condition, ...]
    after: tuple[str, ...]
    tree: Tree
    branches: tuple[Branch, ...]
    window: Window | None
    strategy: Strategy
    consumption: Consumption
    partition: tuple[str, ...]
    inferred: tuple[str, ...]
    orders: tuple[OrderBy, ...]
    lookups: tuple[LookedUp, ...] = ()
    hidden: tuple[tuple[int, str], ...] = ()
    remotes: tuple[AskedRemote, ...] = ()


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


class Shipment(Protocol):
    """Collects the columns that rows need when they travel to the engine."""

    def column(self, expression: RowExpression, *, guards: frozenset[int] = frozenset()) -> int:
        """Adds a column and returns its index. `guards`: the variables whose candidates need
        the value; on other rows it is not computed, so no error is woken there."""
        ...
