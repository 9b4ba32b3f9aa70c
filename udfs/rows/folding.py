"""Aggregates of measures over the rows of matches.

Every aggregate is computed over the rows of a set in a block of matches, put one after the other;
an entry then sees a range of them: up to its own row, or all of its match. Values that are NULL,
and for DISTINCT those that the match has had before, are taken out first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.program import Order
from spark_cep.udfs.rows import loading
from spark_cep.udfs.values.arrow_values import INT64_DIGITS, validity, whole
from spark_cep.udfs.values.codes import key_codes, sort_codes
from spark_cep.udfs.values.user_calls import as_arrow
from spark_cep.udfs.values.vectors import Vector, from_arrow

if TYPE_CHECKING:
    from spark_cep.udfs.rows.entries import Entries
    from spark_cep.udfs.rows.program import Aggregate
    from spark_cep.udfs.rows.search import Block
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array

_INT64: Final = np.iinfo(np.int64)
# The digits that avg of a decimal has more than its input.
_AVG_DIGITS: Final = 4


@dataclass(frozen=True)
class Members:
    """The rows of a set. `place`: in the block's labels. `before`: how many there are before
    each place of the labels."""

    place: Array
    before: Array

    def range(self, entries: Entries, *, final: bool) -> tuple[Array, Array]:
        """Which of the rows each entry sees."""
        return self.before[entries.low()], self.before[entries.high(final=final)]

    def only(self, kept: Array) -> Members:
        member = np.zeros(len(self.before), np.int64)
        member[self.place[kept] + 1] = 1
        return Members(self.place[kept], np.cumsum(member))


def members(block: Block, variables: frozenset[int] | None, count: int) -> Members:
    if variables is None:
        size = len(block.labels)
        return Members(np.arange(size), np.arange(size + 1))
    of = np.zeros(count, np.bool_)
    of[list(variables)] = True
    member = of[block.labels >> 1]
    before = np.zeros(len(member) + 1, np.int64)
    np.cumsum(member, out=before[1:])
    return Members(np.flatnonzero(member), before)


class Folding:
    """One aggregate over one block."""

    def __init__(
        self,
        node: Aggregate,
        found: Members,
        block: Block,
        table: Table,
        places: tuple[Array, Array],
    ) -> None:
        """`found`: the rows of the aggregate's variables. `places`: the match and the shipped row
        of each place of the labels."""
        matches, rows = places
        self._node = node
        self._table = table
        self._block = block
        self._column: pa.Array | None = None
        if node.column is not None:
            column = whole(table.shipped.column(node.column))
            found, taken = _present(found, column, rows, node)
            if node.distinct and node.name not in ("min", "max"):
                kept = _first_of_each(matches[found.place], taken)
                found, taken = found.only(kept), taken.take(pa.array(np.flatnonzero(kept)))
            self._column = taken
        self._members = found
        self._fresh = np.ones(len(found.place), np.bool_)
        of = matches[found.place]
        np.not_equal(of[1:], of[:-1], out=self._fresh[1:])
        self._scanned: Array | None = None

    def values(self, entries: Entries) -> pa.Array:
        node = self._node
        low, high = self._members.range(entries, final=node.final)
        unmatched = entries.unmatched()
        if node.name == "list":
            return self._lists(low, high, unmatched)
        if node.name == "count":
            return pa.array((high - low).astype(np.int64), mask=unmatched)
        missing = high == low
        last = np.where(missing, 0, high - 1)
        if node.name in ("min", "max"):
            best = self._extremes()[last] if len(self._members.place) else last
            assert self._column is not None
            return self._column.take(pa.array(best, mask=missing))
        vector = self._sums(low, high, last)
        valid = ~missing if vector.valid is None else vector.valid & ~missing
        return as_arrow(node, Vector(vector.values, valid), self._table.columns)

    def _lists(self, low: Array, high: Array, unmatched: Array | None) -> pa.Array:
        sizes = high - low
        ends = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=ends[1:])
        if ends[-1] > np.iinfo(np.int32).max:
            raise CepError(
                f"a list of the measures has {int(ends[-1]):,} elements",
                hint="collect FINAL and not RUNNING lists, or one row per match",
            )
        element = np.arange(ends[-1]) + np.repeat(low - ends[:-1], sizes)
        if self._column is None:
            labels = self._block.labels[self._members.place] >> 1
            elements = pa.array(labels[element].astype(np.int32))
        else:
            elements = self._column.take(pa.array(element))
        mask = None if unmatched is None else pa.array(unmatched)
        return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), elements, mask=mask)

    def _extremes(self) -> Array:
        """For each row the index of the extreme one so far."""
        if self._scanned is None:
            assert self._column is not None
            codes = sort_codes(self._column, Order(0, self._node.type))
            codes = codes.astype(np.float64 if codes.dtype.kind == "f" else np.int64)
            self._scanned = np.empty(len(codes), np.int64)
            is_max = self._node.name == "max"
            loading.scans().running_extreme(codes, self._fresh, is_max, self._scanned)
        return self._scanned

    def _sums(self, low: Array, high: Array, last: Array) -> Vector:
        assert self._column is not None
        node, count = self._node, np.maximum(high - low, 1)
        values = from_arrow(self._column, node.type).values
        if not len(values):
            return Vector(np.zeros(len(low), np.int64))
        if node.type.kind == "float":
            if self._scanned is None:
                self._scanned = np.empty(len(values), np.float64)
                wide = values.astype(np.float64)
                loading.scans().running_sum(wide, self._fresh, self._scanned)
            sums = self._scanned[last]
            return Vector(sums / count if node.name == "avg" else sums)
        totals = self._exact(values, low, high)
        if node.name == "avg":
            totals = _means(totals, count, _AVG_DIGITS if node.type.kind == "decimal" else 0)
        return self._checked(totals)

    def _exact(self, values: Array, low: Array, high: Array) -> Array:
        """Sums of integers, as Python's where int64 could be too small."""
        if self._scanned is None:
            longest = int((high - low).max(initial=0))
            longest = max(longest, int(np.diff(self._block.bounds).max(initial=0)))
            wide = values.dtype == object or _largest(values) * longest > _INT64.max
            self._scanned = np.zeros(len(values) + 1, object if wide else np.int64)
            np.cumsum(values, out=self._scanned[1:], dtype=object if wide else np.int64)
        # What wrapped around in between is exact again: the difference fits.
        return np.asarray(self._scanned[high] - self._scanned[low])

    def _checked(self, totals: Array) -> Vector:
        type_ = self._node.type
        if type_.kind != "decimal":
            if totals.dtype != object:
                return Vector(totals)
            fits = np.asarray((totals >= _INT64.min) & (totals <= _INT64.max), np.bool_)
            if not fits.all() and (self._table.program.ansi or type_.kind != "int"):
                raise _overflow(self._node)
            wrapped = (totals + (1 << 63)) % (1 << 64) - (1 << 63)
            return Vector(wrapped.astype(np.int64))
        limit = 10**type_.precision
        if totals.dtype != object and type_.precision > INT64_DIGITS:
            return Vector(totals.astype(object))
        fits = np.asarray((totals > -limit) & (totals < limit), np.bool_)
        if not fits.all() and self._table.program.ansi:
            raise _overflow(self._node)
        kept = np.where(fits, totals, 0)
        wide = type_.precision > INT64_DIGITS
        return Vector(kept.astype(object if wide else np.int64), fits)


def _overflow(node: Aggregate) -> CepError:
    return CepError(
        f"{node.name} in a measure overflows its type {node.type.kind}",
        hint="cast the argument to a wider type, or to double",
    )


def _present(
    found: Members, column: pa.Array, rows: Array, node: Aggregate
) -> tuple[Members, pa.Array]:
    """The rows whose value is not NULL, with their values; lists keep NULL."""
    taken = column.take(pa.array(rows[found.place]))
    valid = None if node.name == "list" else validity(taken)
    if valid is None:
        return found, taken
    return found.only(valid), taken.take(pa.array(np.flatnonzero(valid)))


def _first_of_each(match: Array, values: pa.Array) -> Array:
    """Where a value comes in its match for the first time."""
    codes = key_codes([values])
    order = np.lexsort([codes, match])
    fresh = np.ones(len(order), np.bool_)
    same = (codes[order][1:] == codes[order][:-1]) & (match[order][1:] == match[order][:-1])
    fresh[1:] = ~same
    kept = np.zeros(len(order), np.bool_)
    kept[order[fresh]] = True
    return kept


def _largest(values: Array) -> int:
    return max(int(values.max()), -int(values.min())) if len(values) else 0


def _means(totals: Array, count: Array, digits: int) -> Array:
    """Quotients with so many digits more, halves rounded away from zero."""
    factor = 10**digits
    if totals.dtype != object and _largest(totals) >= _INT64.max // (4 * factor):
        totals = totals.astype(object)
    scaled = totals * factor
    means = (2 * np.abs(scaled) + count) // (2 * count)
    return np.asarray(np.where(scaled < 0, -means, means))
