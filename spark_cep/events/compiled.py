"""Before the engine: columns are computed, rows that can be nothing dropped, the rest dealt.

    input -> + candidate mask -> filter -> c0, c1, ... -> [copies into time slices] -> buckets

All of it is Spark's own work in the JVM. The bucket is an expression in the exchange, not a
column, so it is not shipped; `repartitionById` puts bucket n into partition n, which no adaptive
execution merges. Python then gets whole buckets and cuts them by key itself: no JVM sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.expressions.lookups import EngineRemote, LookupColumn
    from spark_cep.expressions.schema import OrderBy, RowExpression
    from spark_cep.udfs.program import (
        Branch,
        Condition,
        Consumption,
        Strategy,
        Tree,
        Variable,
        Window,
    )


# --------------------------------------------------------------------------------------------------
# What the compiler of texts takes and gives: plain, frozen data without Spark in it.
#
# A `Compiled` pattern says which conjuncts Spark tests on single rows (`masks`), which ones the
# engine tests across rows (`conditions`) and which ones Spark tests on finished matches (`after`).
# Together they are all conjuncts that the user wrote, but for the equalities that became keys.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompiledPattern:
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
    lookups: tuple[LookupColumn, ...] = ()
    hidden: tuple[tuple[int, str], ...] = ()
    remotes: tuple[EngineRemote, ...] = ()


def drops_rows(compiled: CompiledPattern) -> bool:
    """Strict adjacency and WITHIN EVENTS look at every row, also at those that are nothing."""
    counts_events = compiled.window is not None and compiled.window.kind == "events"
    return compiled.strategy != "strict" and not counts_events
