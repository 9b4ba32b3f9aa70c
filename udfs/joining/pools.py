"""What may fill a slot in this advance, and how it is looked up.

One `Pools` serves all walks of one case (`cases.py`): which of its rows have to be old or new is
pushed into the candidates. Pools and indexes are made when a step first needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.joining.scope import IndexedPool, Pool, grows

if TYPE_CHECKING:
    from spark_cep.udfs.events import Flags, Positions
    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.joining.cases import Case, Rule
    from spark_cep.udfs.joining.comparisons import Equality
    from spark_cep.udfs.joining.partials import Partials, Slots
    from spark_cep.udfs.matching import Matching
    from spark_cep.udfs.values.vectors import Vector


@dataclass
class Pools:
    """Candidates of every slot of a branch, by position and by equal values."""

    matching: Matching
    slots: Slots
    case: Case
    _pools: dict[int, Pool] = field(default_factory=dict)
    _indexes: dict[tuple[int, tuple[Cell, ...]], IndexedPool] = field(default_factory=dict)
    _growing: dict[tuple[int, Cell], bool] = field(default_factory=dict)

    def pool(self, slot: int) -> Pool:
        """The slot's candidates that may take part in this advance."""
        if slot not in self._pools:
            matching, filled = self.matching, self.slots.elements[slot]
            if filled.members is None:
                allowed = matching.events.candidates(filled.slot.variables[0])
                elements = np.flatnonzero(allowed)
            else:
                assert filled.first is not None
                elements = np.arange(len(filled.first))
            elements = elements[self._allowed(slot, elements)]
            self._pools[slot] = Pool(elements, filled.first_row(elements), matching.events.size)
        return self._pools[slot]

    def index(self, slot: int, equalities: Sequence[Equality]) -> IndexedPool:
        """The same candidates by the values that the equalities ask for."""
        key = slot, tuple(equality.cell for equality in equalities)
        if key not in self._indexes:
            elements, events = self.pool(slot).elements, self.matching.events
            rows = self.slots.elements[slot].first_row(elements)
            self._indexes[key] = IndexedPool(
                elements, rows, [(cell, rows) for cell in key[1]], events.columns, events.size
            )
        return self._indexes[key]

    def grows(self, slot: int, cell: Cell) -> bool:
        """Whether the cell's values never fall with time, over the slot's candidates."""
        if (slot, cell) not in self._growing:
            elements = self.pool(slot).elements
            values = self.values(cell, elements)
            self._growing[slot, cell] = grows(values, elements, self.matching.events)
        return self._growing[slot, cell]

    def values(self, cell: Cell, rows: Positions) -> Vector:
        assert cell.column is not None
        return self.matching.events.columns.gather(cell.column, cell.type, rows)

    def rightly_filled(self, slot: int, partials: Partials) -> Flags | None:
        """For complete lists: which ones have rows of the status asked for; None for all."""
        rule = self.case.rule(slot)
        if not rule.looks_at_lists:
            return None
        return keeps_rule(rule, slot, (self.slots, partials), self.matching.status)

    def _allowed(self, slot: int, elements: Positions) -> Flags:
        """What is known of a single element already; a plain slot has just one."""
        status, filled = self.matching.status, self.slots.elements[slot]
        rule = self.case.rule(slot)
        if filled.members is None:
            allowed = rule.every if filled.slot.is_list else rule.of_one_row
            return np.asarray(allowed >> status[elements] & 1, dtype=np.bool_)
        kept = np.ones(len(elements), dtype=np.bool_)
        for variable in filled.members:
            kept &= (rule.every >> status[filled.rows(variable, elements)] & 1).astype(np.bool_)
        return kept


def keeps_rule(rule: Rule, slot: int, filled: tuple[Slots, Partials], status: Positions) -> Flags:
    """Of which partial matches the slot's rows are as the rule asks."""
    slots, partials = filled
    kept = np.asarray(rule.first >> status[slots.first(slot, partials)] & 1, dtype=np.bool_)
    kept &= (rule.last >> status[slots.last(slot, partials)] & 1).astype(np.bool_)
    if rule.looks_inside:
        has = np.zeros(len(partials), dtype=np.bool_)
        for rows in slots.all_rows(slot, partials):
            kept &= (rule.every >> status[rows] & 1).all(axis=1)
            has |= (rule.some >> status[rows] & 1).any(axis=1)
        kept &= has
    return kept
