"""What may fill a slot in this advance, and how it is looked up.

One `Pools` serves all walks that ask for the same ends: `ends` says of which slots the last row
has to be NEW, or OLD, which is how "the latest event is new" is pushed into the candidates.
Pools and indexes are made when a step first needs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events import AHEAD, OLD, Positions
from spark_cep.udfs.joining.scope import IndexedPool, Pool, grows

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.joining.comparisons import Equality
    from spark_cep.udfs.joining.partials import Slots
    from spark_cep.udfs.matching import Matching
    from spark_cep.udfs.values.vectors import Vector


@dataclass
class Pools:
    """Candidates of every slot of a branch, by position and by equal values."""

    matching: Matching
    slots: Slots
    ends: Mapping[int, int]
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
            status = matching.status[filled.last_row(elements)]
            kept = status != AHEAD
            if slot in self.ends and not filled.slot.is_list:
                kept = status == self.ends[slot]
            elif self.ends.get(slot) == OLD:
                kept = status == OLD
            elements = elements[kept]
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

    def has_right_end(self, slot: int, last_rows: Positions) -> Positions | None:
        """For a complete list: which ones end in a row of the status asked for."""
        if slot not in self.ends:
            return None
        return np.flatnonzero(self.matching.status[last_rows] == self.ends[slot])
