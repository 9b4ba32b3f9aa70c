"""The values of measures: navigation and aggregates, for blocks of matches at once.

A measure is a single read (`program.py`). What navigation finds is a row, and the value is taken
from the shipped column with Arrow, whatever its type.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.rows.folding import Folding, Members, members
from spark_cep.udfs.rows.program import Aggregate, Classifier, MatchNumber, Read
from spark_cep.udfs.values.arrow_values import whole
from spark_cep.udfs.values.user_calls import arrow_type

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.rows.entries import Entries
    from spark_cep.udfs.rows.search import Block
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array


class Measured:
    """The measures over one block of matches."""

    def __init__(self, table: Table, block: Block) -> None:
        self._table = table
        self._block = block
        self._members: dict[frozenset[int] | None, Members] = {}
        self._foldings: dict[Aggregate, Folding] = {}

    def values(self, measure: Expression, entries: Entries) -> pa.Array:
        if isinstance(measure, MatchNumber):
            number = self._block.number[entries.match]
            return pa.array(number, mask=entries.unmatched()).cast(arrow_type(measure.type))
        if isinstance(measure, Aggregate):
            if measure.name == "count" and measure.column is None:
                low, high = self._of(measure.variables).range(entries, final=measure.final)
                return pa.array((high - low).astype(np.int64), mask=entries.unmatched())
            return self._folding(measure).values(entries)
        if isinstance(measure, Classifier):
            return self._labels(measure, entries)
        if isinstance(measure, Read):
            return self._read(measure, entries)
        raise CepError(f"the engine cannot compute {type(measure).__name__} as a measure")

    # ---- navigation ----------------------------------------------------------------------------

    def _place(self, node: Read | Classifier, entries: Entries) -> Array:
        """The place in the labels that a read starts from; -1 where there is none."""
        if node.anchor == "current":
            return entries.place
        found = self._of(node.variables)
        low, high = found.range(entries, final=node.final)
        at = low + node.offset if node.anchor == "first" else high - 1 - node.offset
        exists = (at >= low) & (at < high)
        if not len(found.place):
            return np.full(len(entries), -1)
        return np.where(exists, found.place[np.where(exists, at, 0)], -1)

    def _labels(self, node: Classifier, entries: Entries) -> pa.Array:
        place = self._place(node, entries)
        at = place + node.shift
        # Rows of the partition that are not of this match are bound to nothing.
        missing = (place < 0) | (at < entries.low()) | (at >= entries.high(final=True))
        labels = self._block.labels
        found = labels[np.where(missing, 0, at)] >> 1 if len(labels) else np.zeros(len(at))
        return pa.array(found.astype(np.int64), mask=missing).cast(arrow_type(node.type))

    def _read(self, node: Read, entries: Entries) -> pa.Array:
        place = self._place(node, entries)
        missing = place < 0
        low = entries.low()
        at = self._block.start[entries.match] + np.where(missing, 0, place - low)
        if node.shift:
            known = at
            at = known + node.shift
            missing = missing | (at < self._table.begin_of[known])
            missing |= at >= self._table.end_of[known]
        if node.column is None:
            return pa.array(np.ones(len(at), np.bool_), mask=missing)
        rows = self._table.rows(np.where(missing, 0, at))
        return whole(self._table.shipped.column(node.column)).take(pa.array(rows, mask=missing))

    # ---- what several measures share -----------------------------------------------------------

    def _of(self, variables: frozenset[int] | None) -> Members:
        if variables not in self._members:
            count = len(self._table.program.variables)
            self._members[variables] = members(self._block, variables, count)
        return self._members[variables]

    @cached_property
    def _matches(self) -> Array:
        """The match that each place of the labels is in."""
        return np.repeat(np.arange(len(self._block)), self._block.length)

    @cached_property
    def _rows(self) -> Array:
        """The shipped row at each place of the labels."""
        first = np.repeat(self._block.start - self._block.bounds[:-1], self._block.length)
        return self._table.rows(first + np.arange(len(first)))

    def _folding(self, node: Aggregate) -> Folding:
        if node not in self._foldings:
            found = self._of(node.variables)
            self._foldings[node] = Folding(
                node, found, self._block, self._table, (self._matches, self._rows)
            )
        return self._foldings[node]
