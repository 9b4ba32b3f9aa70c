"""What a branch's conditions need of remote sources, and when it is known which keys.

A key is known as soon as the variables that it is made of are bound, the condition can be tested
when all of its variables are. Conditions whose data may be late have a bit of their own in
`Partials.waiting`.
"""

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


# --------------------------------------------------------------------------------------------------
# Fetching ahead for whole sets of rows: the keys that the candidates of a variable know.
#
# Where partial matches are walked, they ask for themselves (`postponed.py`). Rows say what will be
# needed before there are any: under skip till next match, whose runs look at nearly all candidates
# in their order, and between the triggers of a stream, for the rows that stay.
# --------------------------------------------------------------------------------------------------


def prefetch_candidates(
    program: Program, table: pa.Table, lookups: tuple[RemoteValues, ...]
) -> None:
    """Starts fetching for all candidates among the rows, where the strategy says so."""
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
    """Calls whose key is columns of one row: of which variable, and which columns."""
    seen = set()
    for condition in program.conditions:
        for node in condition.expression.walk():
            if not isinstance(node, RemoteCall):
                continue
            cells = [each for each in node.arguments if isinstance(each, Cell)]
            columns = tuple(cell.column for cell in cells if cell.column is not None)
            variables = {cell.variable for cell in cells}
            known = (node.remote, columns, *variables)
            if len(columns) == len(node.arguments) and len(variables) == 1 and known not in seen:
                seen.add(known)
                yield variables.pop(), node, columns


# So many conditions have a bit; any others are waited for on the spot.
MAX_WAITING_BITS = 62


@dataclass(frozen=True)
class RemoteReads:
    """What next steps read of keys that are known already: in tests, and to look rows up."""

    tests: tuple[Condition, ...]
    equalities: tuple[Condition, ...]

    def every(self) -> tuple[Condition, ...]:
        return tuple(dict.fromkeys(self.tests + self.equalities))


class RemoteNeeds:
    """Of one branch."""

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
        late = [c for c in found if any(r.postpones for r in strategies[id(c)])]
        last = [c for c in found if any(r.strategy == "post" for r in strategies[id(c)])]
        self._late = (last + [c for c in late if c not in last])[:MAX_WAITING_BITS]
        self._bits = {id(c): 1 << place for place, c in enumerate(self._late)}
        self._last = {id(c) for c in last} & self._bits.keys()
        self._ahead = [c for c in found if any(r.prefetches for r in strategies[id(c)])]
        self.bits_at_end = sum(self._bits[each] for each in self._last)

    def is_put_off(self, condition: Condition) -> bool:
        return id(condition) in self._bits

    def is_at_end(self, condition: Condition) -> bool:
        """Whether it is tested on complete matches only."""
        return id(condition) in self._last

    def bit(self, condition: Condition) -> int:
        return self._bits[id(condition)]

    def untested(self, partials: Partials) -> list[Condition]:
        """What some of the partials have not been tested for."""
        if partials.waiting is None or not len(partials):
            return []
        some = int(np.bitwise_or.reduce(partials.waiting))
        return [c for c in self._late if some & self._bits[id(c)]]

    def which(self, partials: Partials, condition: Condition) -> Positions:
        if partials.waiting is None:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(partials.waiting & self.bit(condition))

    def met(
        self, partials: Partials, condition: Condition, which: Positions, held: Flags
    ) -> Partials:
        """The partials without those of `which` that failed; the others have been tested now."""
        assert partials.waiting is not None
        waiting = partials.waiting.copy()
        waiting[which] &= ~self.bit(condition)
        kept = np.ones(len(partials), dtype=np.bool_)
        kept[which] = held
        still = waiting if waiting.any() else None
        return replace(partials, waiting=still).take(kept)

    def wanted(self, steps: Sequence[Step], bound: frozenset[int]) -> RemoteReads:
        """What the steps read of remote data whose keys the bound slots know."""

        def known(conditions: Iterator[Condition]) -> tuple[Condition, ...]:
            return tuple(c for c in conditions if self.is_put_off(c) and self.calls(c, bound))

        tests = known(c for step in steps for c in step.tests if not self.is_at_end(c))
        equal = known(e.condition for step in steps for e in step.equalities)
        return RemoteReads(tests, equal)

    def ahead(self, bound: frozenset[int]) -> list[Condition]:
        """What will be read later, of keys that are known now, and may be fetched ahead."""
        return [
            c
            for c in self._ahead
            if not {self._slot_of[v] for v in c.variables} <= bound and self.calls(c, bound)
        ]

    def of_slot(self, step: Step, slot: int) -> list[Condition]:
        """Tests of a step whose keys a new row of the slot knows alone; may be fetched ahead."""
        return [
            condition
            for condition in step.tests
            if condition in self._ahead
            for calls in [self.calls(condition, {slot})]
            if calls and all(cell.reading == "each" for call in calls for cell in cells_of(call))
        ]

    def calls(self, condition: Condition, bound: Collection[int]) -> list[RemoteCall]:
        """The condition's calls whose keys are known from the bound slots."""
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
