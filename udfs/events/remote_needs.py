"""What conditions need of remote sources, and when their keys are known."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.expressions import Cell, RemoteCall, cells_of, remote_sources_of, variables_of

if TYPE_CHECKING:
    from spark_cep.udfs.events.partials import BranchSlots, Partials
    from spark_cep.udfs.events.steps import Step
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.program import Condition, Program
    from spark_cep.udfs.values.vectors import RemoteValues


# Number of bits for conditions that may wait; any others are waited for on the spot.
MAX_WAITING_BITS = 62


@dataclass(frozen=True)
class RemoteReads:
    """Conditions of the next steps on remote data with known keys: tests, and the equalities by
    which rows are looked up."""

    tests: tuple[Condition, ...]
    equalities: tuple[Condition, ...]

    def conditions(self) -> tuple[Condition, ...]:
        return tuple(dict.fromkeys(self.tests + self.equalities))


class RemoteNeeds:
    """The remote data that the conditions of one branch read, and when its keys are known.

    A key is known as soon as the variables that it is made of are bound; the condition can be
    tested when all of its variables are. Conditions whose data may be late have a bit of their own
    in `Partials.waiting`.
    """

    def __init__(self, program: Program, slots: BranchSlots) -> None:
        self._slot_of = slots.of_variable
        negated = {v for v, variable in enumerate(program.variables) if variable.negated}
        found = [
            c
            for c in program.conditions
            if remote_sources_of(c.expression) and not c.variables & negated
            and c.variables <= self._slot_of.keys()
        ]  # fmt: skip
        strategies = {
            id(c): [program.remotes[r] for r in remote_sources_of(c.expression)] for c in found
        }
        postponed = [c for c in found if any(r.postpones for r in strategies[id(c)])]
        at_end = [c for c in found if any(r.strategy == "post" for r in strategies[id(c)])]
        others = [c for c in postponed if c not in at_end]
        self._postponed = (at_end + others)[:MAX_WAITING_BITS]
        self._bits = {id(c): 1 << place for place, c in enumerate(self._postponed)}
        self._at_end = {id(c) for c in at_end} & self._bits.keys()
        self._prefetched = [c for c in found if any(r.prefetches for r in strategies[id(c)])]
        self.bits_at_end = sum(self._bits[each] for each in self._at_end)

    def is_postponed(self, condition: Condition) -> bool:
        return id(condition) in self._bits

    def is_at_end(self, condition: Condition) -> bool:
        """Whether the condition is tested on complete matches only."""
        return id(condition) in self._at_end

    def bit(self, condition: Condition) -> int:
        return self._bits[id(condition)]

    def untested(self, partials: Partials) -> list[Condition]:
        """The conditions that some of the partials have not been tested for."""
        if partials.waiting is None or not len(partials):
            return []
        some = int(np.bitwise_or.reduce(partials.waiting))
        return [c for c in self._postponed if some & self._bits[id(c)]]

    def waiting_for(self, partials: Partials, condition: Condition) -> Positions:
        if partials.waiting is None:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(partials.waiting & self.bit(condition))

    def drop_failed(
        self, partials: Partials, condition: Condition, which: Positions, held: Flags
    ) -> Partials:
        """The partials without those of `which` that failed, the others marked as tested."""
        assert partials.waiting is not None
        waiting = partials.waiting.copy()
        waiting[which] &= ~self.bit(condition)
        kept = np.ones(len(partials), dtype=np.bool_)
        kept[which] = held
        return replace(partials, waiting=waiting if waiting.any() else None).take(kept)

    def remote_reads(self, steps: Sequence[Step], bound: frozenset[int]) -> RemoteReads:
        """The remote data that the steps read and whose keys depend on bound slots alone."""

        def with_known_keys(conditions: Iterator[Condition]) -> tuple[Condition, ...]:
            return tuple(c for c in conditions if self.is_postponed(c) and self.calls(c, bound))

        tests = with_known_keys(c for step in steps for c in step.tests if not self.is_at_end(c))
        equal = with_known_keys(e.condition for step in steps for e in step.equalities)
        return RemoteReads(tests, equal)

    def prefetchable(self, bound: frozenset[int]) -> list[Condition]:
        """Conditions of later steps whose keys are known now, so that they can be fetched ahead."""
        return [
            c
            for c in self._prefetched
            if not {self._slot_of[v] for v in c.variables} <= bound and self.calls(c, bound)
        ]

    def slot_prefetches(self, step: Step, slot: int) -> list[Condition]:
        """Tests of a step whose keys depend on a new row of the slot alone."""
        return [
            condition
            for condition in step.tests
            if condition in self._prefetched
            for calls in [self.calls(condition, {slot})]
            if calls and all(cell.reading == "each" for call in calls for cell in cells_of(call))
        ]

    def calls(self, condition: Condition, bound: Collection[int]) -> list[RemoteCall]:
        """The condition's calls whose keys depend on the bound slots alone."""
        return [
            node
            for node in condition.expression.walk()
            if isinstance(node, RemoteCall)
            and all(self._slot_of[v] in bound for v in variables_of(node))
        ]


def distinct_ids(ids: Positions) -> Positions:
    """The ids without NULL keys, each once."""
    found = np.unique(ids)
    return found[found >= 0]


# ---- fetching for whole sets of rows -------------------------------------------------------------


def prefetch_candidates(
    program: Program, table: pa.Table, lookups: tuple[RemoteValues, ...]
) -> None:
    """Starts fetching for all candidates among the rows, where the strategy prefetches.

    Walks fetch for their partial matches themselves (`walk.py`). Whole sets of rows are fetched for
    before there are any partial matches: under skip till next match, whose runs test nearly all
    candidates in order, and between the triggers of a stream, for the rows that stay.
    """
    if not table.num_rows or not any(lookup.remote.prefetches for lookup in lookups):
        return
    mask = column_to_numpy(table.column(program.mask))
    for variable, call, columns in _calls_with_row_keys(program):
        lookup = lookups[call.remote]
        if lookup.remote.prefetches:
            rows = pa.array(np.flatnonzero(mask >> variable & 1))
            keys = [table.column(column).take(rows).combine_chunks() for column in columns]
            lookup.ask(lookup.ids(keys), ahead=True)


def _calls_with_row_keys(program: Program) -> Iterator[tuple[int, RemoteCall, tuple[int, ...]]]:
    """Calls whose key is made of columns of one row, with the variable and the columns."""
    seen = set()
    for condition in program.conditions:
        for node in condition.expression.walk():
            if not isinstance(node, RemoteCall):
                continue
            cells = [each for each in node.arguments if isinstance(each, Cell)]
            columns = tuple(cell.column for cell in cells if cell.column is not None)
            variables = {cell.variable for cell in cells}
            call_key = (node.remote, columns, *variables)
            if len(columns) == len(node.arguments) and len(variables) == 1 and call_key not in seen:
                seen.add(call_key)
                yield variables.pop(), node, columns
