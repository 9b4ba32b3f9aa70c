"""From blocks of matches of row patterns to the record batches of `udfs/output.py`.

    matches -> entries, one for each row of the answer -> columns and measures -> batches

Measures are computed for a block of matches at once. A navigation gives a row, and its value is
taken from the shipped column with Arrow, whatever its type. An aggregate is computed over the
rows of its variables in the whole block; each entry sees a range of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.events.answer import BATCH_ROWS
from spark_cep.udfs.expressions import Call
from spark_cep.udfs.program import Order
from spark_cep.udfs.row_program import (
    Aggregate,
    Classifier,
    MatchNumber,
    RowRead,
    aggregate_of,
)
from spark_cep.udfs.rows import loading
from spark_cep.udfs.rows.folds import FoldedPath, RunningFold, is_folded, vector_of
from spark_cep.udfs.rows.search import MatchBlock
from spark_cep.udfs.values.arrow_values import INT64_DIGITS, to_single_array, validity
from spark_cep.udfs.values.calls import arrow_type, vector_to_arrow
from spark_cep.udfs.values.codes import key_codes, order_floats, sort_codes
from spark_cep.udfs.values.tally import ErrorTally
from spark_cep.udfs.values.vectors import Vector, vector_from_arrow

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.output import RowOutput
    from spark_cep.udfs.row_program import RowsMode
    from spark_cep.udfs.rows.search import SearchCounts
    from spark_cep.udfs.rows.table import RowTable
    from spark_cep.udfs.values.arrow_values import Array


# ---- which rows the answer has -----------------------------------------------------------------


@dataclass(frozen=True)
class AnswerEntries:
    """The rows of the answer: which match, and which row of it. ONE ROW PER MATCH has an entry for
    the last row of each match, ALL ROWS for every row that is not excluded. An empty match and an
    unmatched row have one entry each, without a row of a match.

    `match`: a place in the block. `place`: a place in its labels, -1 without a row of a match.
    `row`: the position of the row that the entry shows. `in_frame`: each row of the input has an
    entry."""

    block: MatchBlock
    match: Array
    place: Array
    row: Array
    in_frame: bool = False

    def __len__(self) -> int:
        return len(self.match)

    def part(self, start: int, stop: int) -> AnswerEntries:
        cut = slice(start, stop)
        return replace(self, match=self.match[cut], place=self.place[cut], row=self.row[cut])

    def low(self) -> Array:
        """Where the labels of the entry's match begin."""
        return np.asarray(self.block.bounds[self.match])

    def high(self, *, final: bool) -> Array:
        """Where the labels that the entry sees end: with the match, or after the entry's row."""
        if final:
            return np.asarray(self.block.bounds[self.match + 1])
        return np.where(self.place < 0, self.low(), self.place + 1)

    def unmatched(self) -> Array | None:
        """Which entries belong to no match; None if all belong to one."""
        found = self.block.number[self.match] < 0
        return found if found.any() else None

    def hidden(self) -> Array | None:
        """Which entries have no measures. A row without a match in its window frame has those of
        an empty match."""
        return None if self.in_frame else self.unmatched()

    def batches(self, most: int, elements: int | None) -> Iterator[AnswerEntries]:
        """Parts of at most `most` entries, which see about `elements` rows in all."""
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


def answer_entries(block: MatchBlock, rows: RowsMode) -> AnswerEntries:
    """The entries of a block, by the rows mode."""
    every = np.arange(len(block))
    if rows in ("one", "each row"):
        place = np.where(block.length > 0, block.bounds[1:] - 1, -1)
        return AnswerEntries(block, every, place, block.start, rows == "each row")
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
        return AnswerEntries(block, match, place, row)
    return AnswerEntries(block, match[kept], place[kept], row[kept])


# ---- aggregates --------------------------------------------------------------------------------


_INT64: Final = np.iinfo(np.int64)
# Spark's avg of a decimal has so many more digits than its input.
_AVG_DIGITS: Final = 4


@dataclass(frozen=True)
class MemberRows:
    """The rows bound to a set of variables. `place`: in the block's labels. `before`: how many
    there are before each place of the labels."""

    place: Array
    before: Array

    def range(self, entries: AnswerEntries, *, final: bool) -> tuple[Array, Array]:
        """The first of the rows that each entry sees, and the one after the last."""
        return self.before[entries.low()], self.before[entries.high(final=final)]

    def only(self, kept: Array) -> MemberRows:
        member = np.zeros(len(self.before), np.int64)
        member[self.place[kept] + 1] = 1
        return MemberRows(self.place[kept], np.cumsum(member))


def member_rows(block: MatchBlock, variables: frozenset[int] | None, count: int) -> MemberRows:
    if variables is None:
        size = len(block.labels)
        return MemberRows(np.arange(size), np.arange(size + 1))
    of = np.zeros(count, np.bool_)
    of[list(variables)] = True
    member = of[block.labels >> 1]
    before = np.zeros(len(member) + 1, np.int64)
    np.cumsum(member, out=before[1:])
    return MemberRows(np.flatnonzero(member), before)


class BlockFold:
    """One aggregate over one block. NULL values, and for DISTINCT those that the match has had
    before, are dropped first."""

    def __init__(
        self,
        node: Aggregate | Call,
        found: MemberRows,
        block: MatchBlock,
        table: RowTable,
        places: tuple[Array, Array],
    ) -> None:
        """`node`: the aggregate, or "try" of it, where an overflow is NULL. `found`: the rows of
        its variables. `places`: for each place of the labels its match and its shipped row."""
        matches, rows = places
        self._fails = table.program.ansi and isinstance(node, Aggregate)
        self._node = node = aggregate_of(node)
        self._table = table
        self._block = block
        self._column: pa.Array | None = None
        if node.column is not None:
            column = to_single_array(table.shipped.column(node.column))
            found, taken = _drop_nulls(found, column, rows, node)
            if node.distinct and node.name not in ("min", "max"):
                kept = _first_occurrences(matches[found.place], taken)
                found, taken = found.only(kept), taken.take(pa.array(np.flatnonzero(kept)))
            self._column = taken
        self._members = found
        self._fresh = np.ones(len(found.place), np.bool_)
        of = matches[found.place]
        np.not_equal(of[1:], of[:-1], out=self._fresh[1:])
        self._scanned: Array | None = None

    def values(self, entries: AnswerEntries) -> pa.Array:
        node = self._node
        low, high = self._members.range(entries, final=node.final)
        unmatched = entries.hidden()
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
        return vector_to_arrow(node, Vector(vector.values, valid), self._table.columns)

    def _lists(self, low: Array, high: Array, unmatched: Array | None) -> pa.Array:
        sizes = high - low
        ends = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=ends[1:])
        if ends[-1] > np.iinfo(np.int32).max:
            raise CepError(
                f"a list of the measures has {int(ends[-1]):,} elements",
                hint="collect FINAL instead of RUNNING lists, or ask for one row per match",
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
        """For each row the index of the smallest or largest value so far."""
        if self._scanned is None:
            assert self._column is not None
            codes = sort_codes(self._column, Order(0, self._node.type))
            codes = order_floats(codes) if codes.dtype.kind == "f" else codes.astype(np.int64)
            if self._node.name == "max":
                codes = ~codes  # reverses the order
            self._scanned = np.empty(len(codes), np.int64)
            loading.load_function("running_least")(codes, self._fresh, self._scanned)
        return self._scanned

    def _sums(self, low: Array, high: Array, last: Array) -> Vector:
        assert self._column is not None
        node, count = self._node, np.maximum(high - low, 1)
        values = vector_from_arrow(self._column, node.type).values
        if not len(values):
            return Vector(np.zeros(len(low), np.int64))
        if node.type.kind == "float":
            if self._scanned is None:
                self._scanned = np.empty(len(values), np.float64)
                wide = values.astype(np.float64)
                loading.load_function("running_sum")(wide, self._fresh, self._scanned)
            sums = self._scanned[last]
            return Vector(sums / count if node.name == "avg" else sums)
        totals = self._exact(values, low, high)
        if node.name == "avg":
            totals = _means(totals, count, _AVG_DIGITS if node.type.kind == "decimal" else 0)
        return self._checked(totals)

    def _exact(self, values: Array, low: Array, high: Array) -> Array:
        """Sums of integers, as Python integers where int64 could be too small."""
        if self._scanned is None:
            longest = int((high - low).max(initial=0))
            longest = max(longest, int(np.diff(self._block.bounds).max(initial=0)))
            wide = values.dtype == object or _largest_magnitude(values) * longest > _INT64.max
            self._scanned = np.zeros(len(values) + 1, object if wide else np.int64)
            np.cumsum(values, out=self._scanned[1:], dtype=object if wide else np.int64)
        # A running sum may wrap around; the difference of two is exact again, since it fits.
        return np.asarray(self._scanned[high] - self._scanned[low])

    def _checked(self, totals: Array) -> Vector:
        type_ = self._node.type
        if type_.kind != "decimal":
            if totals.dtype != object:
                return Vector(totals)
            fits = np.asarray((totals >= _INT64.min) & (totals <= _INT64.max), np.bool_)
            if not fits.all() and (self._fails or type_.kind != "int"):
                raise _overflow_error(self._node)
            wrapped = (totals + (1 << 63)) % (1 << 64) - (1 << 63)
            return Vector(wrapped.astype(np.int64))
        limit = 10**type_.precision
        if totals.dtype != object and type_.precision > INT64_DIGITS:
            return Vector(totals.astype(object))
        fits = np.asarray((totals > -limit) & (totals < limit), np.bool_)
        if not fits.all() and self._fails:
            raise _overflow_error(self._node)
        kept = np.where(fits, totals, 0)
        wide = type_.precision > INT64_DIGITS
        return Vector(kept.astype(object if wide else np.int64), fits)


def _overflow_error(node: Aggregate) -> CepError:
    return CepError(
        f"{node.name} in a measure overflows its type {node.type.kind}",
        hint="cast the argument to a wider type, or to double",
    )


def _drop_nulls(
    found: MemberRows, column: pa.Array, rows: Array, node: Aggregate
) -> tuple[MemberRows, pa.Array]:
    """The rows whose value is not NULL, with their values; lists keep NULLs."""
    taken = column.take(pa.array(rows[found.place]))
    valid = None if node.name == "list" else validity(taken)
    if valid is None:
        return found, taken
    return found.only(valid), taken.take(pa.array(np.flatnonzero(valid)))


def _first_occurrences(match: Array, values: pa.Array) -> Array:
    """Which values are the first of their kind in their match."""
    codes = key_codes([values])
    order = np.lexsort([codes, match])
    fresh = np.ones(len(order), np.bool_)
    same = (codes[order][1:] == codes[order][:-1]) & (match[order][1:] == match[order][:-1])
    fresh[1:] = ~same
    kept = np.zeros(len(order), np.bool_)
    kept[order[fresh]] = True
    return kept


def _largest_magnitude(values: Array) -> int:
    return max(int(values.max()), -int(values.min())) if len(values) else 0


def _means(totals: Array, count: Array, digits: int) -> Array:
    """Quotients with `digits` more decimal digits, halves rounded away from zero."""
    factor = 10**digits
    if totals.dtype != object and _largest_magnitude(totals) >= _INT64.max // (4 * factor):
        totals = totals.astype(object)
    scaled = totals * factor
    means = (2 * np.abs(scaled) + count) // (2 * count)
    return np.asarray(np.where(scaled < 0, -means, means))


# ---- measures ----------------------------------------------------------------------------------


class BlockMeasures:
    """The values of measures over one block of matches. Each measure is a single read, aggregate,
    classifier or match number, or "try" of an aggregate."""

    def __init__(self, table: RowTable, block: MatchBlock) -> None:
        self._table = table
        self._block = block
        self._members: dict[frozenset[int] | None, MemberRows] = {}
        self._folds: dict[Aggregate | Call, BlockFold] = {}

    def values(self, measure: Expression, entries: AnswerEntries) -> pa.Array:
        if isinstance(measure, MatchNumber):
            number = self._block.number[entries.match]
            return pa.array(number, mask=entries.unmatched()).cast(arrow_type(measure.type))
        if isinstance(measure, Aggregate | Call):
            return self._aggregate(measure, entries)
        if isinstance(measure, Classifier):
            return self._labels(measure, entries)
        if isinstance(measure, RowRead):
            return self._read(measure, entries)
        raise CepError(f"the engine cannot compute {type(measure).__name__} as a measure")

    def _aggregate(self, node: Aggregate | Call, entries: AnswerEntries) -> pa.Array:
        if is_folded(node):
            return self._folded(aggregate_of(node), entries)
        if isinstance(node, Aggregate) and node.name == "count" and node.column is None:
            low, high = self._of(node.variables).range(entries, final=node.final)
            return pa.array((high - low).astype(np.int64), mask=entries.hidden())
        return self._fold(node).values(entries)

    # ---- navigation ----------------------------------------------------------------------------

    def _place(self, node: RowRead | Classifier, entries: AnswerEntries) -> Array:
        """The place in the labels from which a read starts; -1 if there is none."""
        if node.anchor == "current":
            return entries.place
        found = self._of(node.variables)
        low, high = found.range(entries, final=node.final)
        at = low + node.offset if node.anchor == "first" else high - 1 - node.offset
        exists = (at >= low) & (at < high)
        if not len(found.place):
            return np.full(len(entries), -1)
        return np.where(exists, found.place[np.where(exists, at, 0)], -1)

    def _labels(self, node: Classifier, entries: AnswerEntries) -> pa.Array:
        place = self._place(node, entries)
        at = place + node.shift
        # Rows of the partition outside the match are bound to no variable.
        missing = (place < 0) | (at < entries.low()) | (at >= entries.high(final=True))
        labels = self._block.labels
        found = labels[np.where(missing, 0, at)] >> 1 if len(labels) else np.zeros(len(at))
        frame = self._table.program.frame
        if frame is not None and frame.seeks:
            # The last variable takes the rows that SEEK skips.
            missing |= found == len(self._table.program.variables) - 1
        return pa.array(found.astype(np.int64), mask=missing).cast(arrow_type(node.type))

    def _read(self, node: RowRead, entries: AnswerEntries) -> pa.Array:
        place = self._place(node, entries)
        missing = place < 0
        low = entries.low()
        at = self._block.start[entries.match] + np.where(missing, 0, place - low)
        if node.shift:
            known = at
            at = known + node.shift
            missing = missing | (at < self._table.begin_of[known])
            missing |= at >= self._table.end_of[known]
            if self._table.program.frame is not None:
                begin = self._block.start[entries.match]
                missing |= at < begin
                if self._table.frame_ends is not None:
                    missing |= at >= self._table.frame_ends[begin]
        if node.column is None:
            return pa.array(np.ones(len(at), np.bool_), mask=missing)
        rows = self._table.rows(np.where(missing, 0, at))
        return to_single_array(self._table.shipped.column(node.column)).take(
            pa.array(rows, mask=missing)
        )

    # ---- what several measures share -----------------------------------------------------------

    def _of(self, variables: frozenset[int] | None) -> MemberRows:
        if variables not in self._members:
            count = len(self._table.program.variables)
            self._members[variables] = member_rows(self._block, variables, count)
        return self._members[variables]

    @cached_property
    def _matches(self) -> Array:
        """The match of each place of the labels."""
        return np.repeat(np.arange(len(self._block)), self._block.length)

    @cached_property
    def _rows(self) -> Array:
        """The shipped row at each place of the labels."""
        first = np.repeat(self._block.start - self._block.bounds[:-1], self._block.length)
        return self._table.rows(first + np.arange(len(first)))

    def _fold(self, node: Aggregate | Call) -> BlockFold:
        if node not in self._folds:
            found = self._of(aggregate_of(node).variables)
            self._folds[node] = BlockFold(
                node, found, self._block, self._table, (self._matches, self._rows)
            )
        return self._folds[node]

    def _folded(self, node: Aggregate, entries: AnswerEntries) -> pa.Array:
        """An aggregate that Python folds along each match. Entries of a match follow each other, so
        a fold goes on where the entry before left it."""
        fold = RunningFold(node, self._table, ErrorTally(ansi=self._table.program.ansi))
        found: list[Any] = []
        before = (-1, -1)
        labels, block = self._block.labels >> 1, self._block
        ranges = entries.match, entries.low(), entries.high(final=node.final)
        for match, low, high in zip(*(each.tolist() for each in ranges), strict=True):
            if (match, high) == before:
                found.append(found[-1])
                continue
            shared = min(high, before[1]) - low if match == before[0] else 0
            begin, number = int(block.start[match]), int(block.number[match])
            found.append(fold.plain_value(FoldedPath(begin, labels[low:high], number, shared)))
            before = match, high
        return vector_to_arrow(node, vector_of(found, node.type), self._table.columns)


# ---- batches -----------------------------------------------------------------------------------


# Elements of the lists in one batch.
_LIST_ELEMENTS: Final = 1 << 22
_METRICS_TYPE = pa.string()


def bucket_counts(table: RowTable, counts: SearchCounts, tally: ErrorTally) -> dict[str, int]:
    """What a search did, by the names in `output.ROW_METRICS`."""
    return {
        "partitions": len(table.begins),
        "matches": counts.matches,
        "empty_matches": counts.empty_matches,
        "unmatched_rows": counts.unmatched_rows,
        "steps": counts.steps,
        "memo_hits": counts.hits,
        "asked": counts.asked,
        "condition_errors": tally.errors,
    }


class RowAnswerWriter:
    """Builds the batches of one advance."""

    def __init__(self, table: RowTable, output: RowOutput) -> None:
        self._table = table
        self._output = output
        self._names = list(output.names(table.program))
        has_lists = any(
            isinstance(measure, Aggregate) and measure.name == "list"
            for measure in table.program.measures
        )
        self._elements = _LIST_ELEMENTS if has_lists else None

    def batches(self, block: MatchBlock) -> Iterator[pa.RecordBatch]:
        measured = BlockMeasures(self._table, block)
        for part in answer_entries(block, self._table.program.rows).batches(
            BATCH_ROWS, self._elements
        ):
            columns = self._columns(measured, part)
            yield self._batch([*columns, pa.nulls(len(part), _METRICS_TYPE)])

    def schema(self) -> pa.Schema:
        """The columns of the batches."""
        nothing = MatchBlock(*(np.zeros(size, np.int64) for size in (0, 0, 0, 0, 1)))
        part = answer_entries(nothing, self._table.program.rows)
        columns = self._columns(BlockMeasures(self._table, nothing), part)
        return self._batch([*columns, pa.nulls(0, _METRICS_TYPE)]).schema

    def _columns(self, measured: BlockMeasures, part: AnswerEntries) -> list[pa.Array]:
        table = self._table
        rows = pa.array(table.rows(part.row))
        columns = [
            to_single_array(table.shipped.column(field.column)).take(rows)
            for field in self._output.columns
        ]
        columns += [measured.values(measure, part) for measure in table.program.measures]
        if table.program.rows == "one":
            columns.append(pa.array(table.places(part.row).astype(np.int64)))
        elif self._output.placed:
            first = part.block.start[part.match]
            for positions in (first, part.row):
                columns.append(pa.array(table.places(positions).astype(np.int64)))
        return columns

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(columns, self._names)
