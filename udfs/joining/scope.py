"""The scope of a step: which candidates each partial has to be tried with.

A scope is a range of positions, narrowed by the order, the window and bounds on time; a `Pool`
turns it into a range of its candidates. With equalities the pool is sorted by (values, position),
so that only candidates with equal values are in the range: the equality is never tested pair by
pair. `blocks` then walks all pairs of a set of partials, a bounded number at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.events import Events, Positions, bisect
from spark_cep.udfs.values.tally import Tally

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.joining.comparisons import Bound
    from spark_cep.udfs.joining.partials import Partials, Slots
    from spark_cep.udfs.joining.reading import Reader
    from spark_cep.udfs.joining.steps import Step
    from spark_cep.udfs.values.vectors import Columns, Vector


# What a search for a range takes, compared with a row of the table of a pool.
SEARCHES = 16


@dataclass(frozen=True)
class Range:
    """Rows (or candidates) [low, high), one range a partial; empty where low >= high."""

    low: Positions
    high: Positions


class Pool:
    """Candidates in the order of their first row."""

    def __init__(self, elements: Positions, first: Positions, size: int) -> None:
        """`first` is ascending: the first row of each element, among `size` positions."""
        self.elements = elements
        self._first = first
        self._size = size
        self._below: Positions | None = None

    def find(self, rows: Range) -> Range:
        """The candidates that begin in each range of rows."""
        high = np.maximum(rows.low, rows.high)
        if self._below is None and len(high) * SEARCHES < self._size:
            return Range(np.searchsorted(self._first, rows.low), np.searchsorted(self._first, high))
        if self._below is None:
            # How many begin before each position: dear to make, and then one look a range.
            self._below = np.zeros(self._size + 1, dtype=np.int64)
            np.cumsum(np.bincount(self._first, minlength=self._size), out=self._below[1:])
        return Range(self._below[rows.low], self._below[high])


class IndexedPool:
    """A pool whose candidates are found by equal values first, then by position."""

    def __init__(
        self,
        elements: Positions,
        first: Positions,
        keys: Sequence[tuple[Cell, Positions]],
        columns: Columns,
        size: int,
    ) -> None:
        # `keys`: what is equal, and the row of each element at which it is read.
        # For each cell its distinct values, and the distinct codes of the cells up to it. Codes
        # are made dense after each cell: a product of all dictionaries could pass int64.
        self._levels: list[tuple[npt.NDArray[Any], Positions]] = []
        self._stride = size + 1
        code, known = np.zeros(len(first), dtype=np.int64), np.ones(len(first), dtype=np.bool_)
        for cell, rows in keys:
            assert cell.column is not None
            vector = columns.gather(cell.column, cell.type, rows)
            values = _normal(vector)
            dictionary, place = np.unique(values, return_inverse=True)
            codes, code = np.unique(code * len(dictionary) + place, return_inverse=True)
            self._levels.append((dictionary, codes))
            if vector.valid is not None:
                known &= vector.valid
        kept = np.flatnonzero(known)
        order = kept[np.argsort(code[kept], kind="stable")]
        self.elements = elements[order]
        self._sorted = code[order] * self._stride + first[order]

    def find(self, rows: Range, bound: Sequence[Vector]) -> Range:
        """`bound`: for each equality the value that a partial's candidates must have."""
        code = np.zeros(len(rows.low), dtype=np.int64)
        known = rows.low < rows.high
        for (dictionary, codes), vector in zip(self._levels, bound, strict=True):
            place, found = _place(dictionary, _normal(vector))
            code, together = _place(codes, code * len(dictionary) + place)
            known &= found & together
            if vector.valid is not None:
                known &= vector.valid
        start = code * self._stride
        low = np.searchsorted(self._sorted, start + rows.low)
        high = np.searchsorted(self._sorted, start + rows.high)
        return Range(low, np.where(known, high, low))


def _normal(vector: Vector) -> npt.NDArray[Any]:
    """Values that are equal exactly when Spark says so: -0.0 becomes 0.0."""
    return vector.values + 0.0 if vector.values.dtype.kind == "f" else vector.values


def _place(
    dictionary: npt.NDArray[Any], values: npt.NDArray[Any]
) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """Where each value stands in the sorted dictionary, and whether it is there at all."""
    if not len(dictionary):
        return np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.bool_)
    place = np.minimum(np.searchsorted(dictionary, values), len(dictionary) - 1)
    there = dictionary[place] == values
    if dictionary.dtype.kind == "f":
        there |= np.isnan(dictionary[place]) & np.isnan(values)
    return place, there


def scope(step: Step, events: Events, slots: Slots, partials: Partials) -> Range:
    """The rows that may fill the step's slot: window, order, and for a list what is in it."""
    tie = events.tie
    after = [tie.end[slots.last(slot, partials)] for slot in step.after]
    before = [tie.start[slots.first(slot, partials)] for slot in step.before]
    if step.slot in partials.elements:
        after.append(tie.end[slots.last(step.slot, partials)])
    # What comes after a bound row is in the window of the latest one as it is, and likewise
    # before; the window's edge only matters on an open side.
    low = np.maximum.reduce(after) if after else events.window.start[partials.latest]
    high = np.minimum.reduce(before) if before else events.window.end[partials.earliest]
    if partials.floor is not None:
        low = np.maximum(low, partials.floor)
    return Range(low, high)


def grows(values: Vector, first: Positions, events: Events) -> bool:
    """Whether the values of candidates never fall within a partition, and all are known."""
    if values.valid is not None or values.values.dtype == object:
        return False
    # NaN is above all numbers in SQL, which no comparison of numpy says. One that stands alone
    # falls nowhere.
    if values.values.dtype.kind == "f" and np.isnan(values.values[:1]).any():
        return False
    partition = events.partition.start[first]
    # A column that does not follow time shows it early.
    for stop in (1 << 10, len(first)):
        mine, at = values.values[:stop], partition[:stop]
        if not ((mine[1:] >= mine[:-1]) | (at[1:] != at[:-1])).all():
            return False
    return True


def narrowed(ranges: Range, bound: Bound, values: npt.NDArray[Any], reader: Reader) -> Range:
    """Cuts ranges of candidates to those that can meet the bound. `values`: of the candidates,
    growing within each range."""
    low, high = ranges.low, np.maximum(ranges.low, ranges.high)
    # A bound that overflows says nothing; the condition itself is tested and counted later.
    limit = replace(
        reader, tally=Tally(ansi=reader.tally.ansi, lookups=reader.tally.lookups)
    ).values(bound.bound)
    known = limit.valid
    if limit.values.dtype.kind == "f":
        number = ~np.isnan(limit.values)
        known = number if known is None else number & known
    beyond = bound.comparison in {">", "<="}
    cut = bisect(
        low,
        high,
        (lambda at, i: values[at] > limit.values[i])
        if beyond
        else (lambda at, i: values[at] >= limit.values[i]),
    )
    if bound.comparison in {">", ">="}:
        return Range(cut if known is None else np.where(known, cut, low), high)
    return Range(low, cut if known is None else np.where(known, cut, high))


def blocks(ranges: Range, size: int) -> Iterator[tuple[Positions, Positions]]:
    """All pairs (partial, candidate index), at most `size` at a time, in order."""
    counts = np.maximum(ranges.high - ranges.low, 0)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    # Candidate index minus pair number is constant within a partial.
    shift = ranges.low - (ends - counts)
    for start in range(0, total, size):
        stop = min(start + size, total)
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        here = np.minimum(ends[first : last + 1], stop) - np.maximum(
            ends[first : last + 1] - counts[first : last + 1], start
        )
        partial = np.repeat(np.arange(first, last + 1), here)
        yield partial, np.arange(start, stop) + shift[partial]
