"""A compiled event pattern, and the query that it becomes: frozen data without Spark in it.

The conjuncts of a pattern are tested in three places: on single rows by Spark (`masks`), across
rows by the engine (`conditions`), and on finished matches by Spark (`after`). Together these are
all conjuncts that the user wrote, but for the equalities that became partition keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_cep.expressions.shipment import query_form
from spark_cep.udfs.canonical import event_program
from spark_cep.udfs.program import Adaptation, DroppingRule, Limits, Plan, Program

if TYPE_CHECKING:
    from spark_cep.events.answer import AnswerShape
    from spark_cep.expressions.lookups import EngineRemote, LookupColumn
    from spark_cep.expressions.schema import OrderBy, RowExpression
    from spark_cep.expressions.shipment import PartitionKey, Shipment
    from spark_cep.udfs.canonical import Data
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.program import (
        Branch,
        Condition,
        Consumption,
        Estimates,
        Objective,
        Order,
        PlannerName,
        Strategy,
        Tree,
        Variable,
        Window,
    )
    from spark_cep.udfs.remote_spec import RemoteSpec


EAGER = Plan("eager")
NO_ADAPTATION = Adaptation()


@dataclass(frozen=True)
class CompiledPattern:
    """A variable's id is its index in `variables` and its bit in the candidate mask.

    `masks`: for each variable its conjuncts over input columns, in the order written.
    `after`: text over structs named like the variables, guarded for unfilled variables.
    `partition`: the user's columns, as the input spells them. `inferred`: key expressions over
    input columns that the conditions imply; a row with NULL there matches nothing.
    `lookups`: columns with values that are looked up before matching, which rows need besides the
    input's; `hidden`: those that `after` reads, with the variable's id. `remotes`: the sources
    that the engine asks, by their index in the program.
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
    """Whether rows that no variable accepts need not be shipped. Strict adjacency and WITHIN
    EVENTS count every row."""
    counts_events = compiled.window is not None and compiled.window.kind == "events"
    return compiled.strategy != "strict" and not counts_events


# Lays out the answer and requests its payload from the shipment. Given are the partition columns
# by name, each with the shipped column that shows it.
AnswerLayout = Callable[
    [CompiledPattern, "Shipment", Sequence[tuple[str, int]]], "AnswerShape | None"
]


@dataclass(frozen=True)
class CompiledEventQuery:
    """A pattern, the columns that rows carry for it, and where in them the engine finds what.

    `mask`: the column of the candidate mask. `slice_` and `home`: those of time slices, where rows
    are copied into slices. `answer` None: nobody reads the matches as rows.
    """

    compiled: CompiledPattern
    shipment: Shipment
    keys: tuple[PartitionKey, ...]
    key_columns: tuple[int, ...]
    orders: tuple[Order, ...]
    mask: int
    limits: Limits
    ansi: bool
    answer: AnswerShape | None = None
    slice_: int | None = None
    home: int | None = None

    def with_slices(self) -> CompiledEventQuery:
        """The same query over rows that were copied into time slices."""
        shipment = self.shipment.as_now()
        slice_ = shipment.special("slice", "time slice")
        home = shipment.special("home", "is in its own slice")
        return replace(self, shipment=shipment, slice_=slice_, home=home)

    def program(  # noqa: PLR0913 - a Program has many parts
        self,
        plan: Plan = EAGER,
        *,
        adaptation: Adaptation = NO_ADAPTATION,
        estimates: Estimates | None = None,
        costs: OperationCosts | None = None,
        remotes: Sequence[RemoteSpec] = (),
        planner: PlannerName = "dp",
        optimize: Objective = "balanced",
        block_pairs: int = Program.block_pairs,
        dropping: DroppingRule | None = None,
    ) -> Program:
        """What the engine runs. `remotes`: how it asks the sources `compiled.remotes`."""
        compiled = self.compiled
        return Program(
            columns=self.shipment.names(),
            keys=self.key_columns if self.slice_ is None else (*self.key_columns, self.slice_),
            orders=self.orders,
            mask=self.mask,
            variables=compiled.variables,
            conditions=compiled.conditions,
            tree=compiled.tree,
            branches=compiled.branches,
            plan=plan,
            window=compiled.window,
            strategy=compiled.strategy,
            consumption=compiled.consumption,
            limits=self.limits,
            block_pairs=block_pairs,
            ansi=self.ansi,
            home=self.home,
            adaptation=adaptation,
            estimates=estimates,
            costs=costs,
            remotes=tuple(remotes),
            planner=planner,
            optimize=optimize,
            dropping=dropping,
        )

    def form(self, program: Program) -> Data:
        """What the state of a stream with this program is compared with."""
        compiled = self.compiled
        return query_form(
            event_program(program),
            self.shipment,
            masks=compiled.masks,
            lookups=[(each.remote.name, each.keys) for each in compiled.lookups],
            inferred=compiled.inferred,
        )
