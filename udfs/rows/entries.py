"""The rows of the answer, before they have columns: which match, and which row of it.

ONE ROW PER MATCH stands at the last row of each match, ALL ROWS at every row that no exclusion
takes out. An empty match and an unmatched row have one entry each and no row of a match.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from spark_cep.udfs.rows.program import Rows
    from spark_cep.udfs.rows.search import Block
    from spark_cep.udfs.values.arrow_values import Array


@dataclass(frozen=True)
class Entries:
    """`match`: a place in the block. `place`: a place in its labels, -1 where there is no row of
    a match. `row`: the position of the row that the entry shows."""

    block: Block
    match: Array
    place: Array
    row: Array

    def __len__(self) -> int:
        return len(self.match)

    def part(self, start: int, stop: int) -> Entries:
        cut = slice(start, stop)
        return Entries(self.block, self.match[cut], self.place[cut], self.row[cut])

    def low(self) -> Array:
        """Where the labels of the entry's match begin."""
        return np.asarray(self.block.bounds[self.match])

    def high(self, *, final: bool) -> Array:
        """Where the labels end that the entry sees: the match's, or behind its own row."""
        if final:
            return np.asarray(self.block.bounds[self.match + 1])
        return np.where(self.place < 0, self.low(), self.place + 1)

    def unmatched(self) -> Array | None:
        """Entries of no match; None if there are none."""
        found = self.block.number[self.match] < 0
        return found if found.any() else None

    def batches(self, most: int, elements: int | None) -> Iterator[Entries]:
        """Parts of at most so many entries, and about so many rows seen by all of them."""
        if elements is None:
            for start in range(0, len(self), most):
                yield self.part(start, start + most)
            return
        seen = np.cumsum(self.high(final=True) - self.low())
        start = 0
        while start < len(self):
            before = int(seen[start - 1]) if start else 0
            stop = int(np.searchsorted(seen, before + elements, "right"))
            stop = min(max(stop, start + 1), start + most)
            yield self.part(start, stop)
            start = stop


def entries(block: Block, rows: Rows) -> Entries:
    every = np.arange(len(block))
    if rows == "one":
        place = np.where(block.length > 0, block.bounds[1:] - 1, -1)
        return Entries(block, every, place, block.start)
    shown = np.maximum(block.length, 1)
    match = np.repeat(every, shown)
    within = np.arange(len(match)) - np.repeat(np.cumsum(shown) - shown, shown)
    is_row = block.length[match] > 0
    place = np.where(is_row, block.bounds[match] + within, -1)
    kept = np.ones(len(match), np.bool_)
    kept[is_row] = (block.labels[place[is_row]] & 1) == 0
    if rows == "all omit empty":
        kept &= is_row
    row = block.start[match] + within
    if kept.all():
        return Entries(block, match, place, row)
    return Entries(block, match[kept], place[kept], row[kept])
