"""The events of a bucket: sorted by key and order, with every range that a scope needs.

Rows are addressed by their *position* in the sorted order; partitions are runs of positions.
Everything that matching needs to know about time is computed here as positions, so that scopes are
comparisons of integers whatever the types of the order columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.values.arrow_values import Array, plain_values, to_single_array
from spark_cep.udfs.values.codes import key_codes, sort_codes
from spark_cep.udfs.values.vectors import EventColumns

if TYPE_CHECKING:
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.row_program import RowProgram


Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
# Status of a row in an advance: the matches that it decides (`context.py`) ...
OLD: Final = 0  # were given before, or belong to an earlier slice
NEW: Final = 1  # are given now
AHEAD: Final = 2  # are not decided yet


@dataclass(frozen=True)
class Span:
    """A range of positions [start, end) for each row."""

    start: Positions
    end: Positions


# Cost of one search, relative to computing one row of all.
WINDOW_SEARCH_COST = 8


class WindowSide:
    """One side of every row's window, indexed like an array.

    Computed for the requested rows, or for all of them once many have been requested: most plans
    need few, and one side only.
    """

    def __init__(self, compute: Callable[[Positions], Positions], size: int) -> None:
        self._compute = compute
        self._size = size
        self._all: Positions | None = None
        self._requested = 0

    def __getitem__(self, rows: Positions) -> Positions:
        self._requested += len(rows)
        if self._all is None and self._requested * WINDOW_SEARCH_COST < self._size:
            return self._compute(rows)
        if self._all is None:
            self._all = self._compute(np.arange(self._size))
        return self._all[rows]


@dataclass(frozen=True)
class WindowSpan:
    """A span whose sides are computed on demand."""

    start: WindowSide
    end: WindowSide


# Number of rows sampled to measure how many rows share a stretch.
DENSITY_ROWS = 512


@dataclass(frozen=True)
class Density:
    """Candidates of each variable, and the number of stretches that the rows effectively fill.

    That is fewer than there are where rows crowd in some of them, as with keys of different size
    and bursts.
    """

    candidates: dict[int, int]
    stretches: float


class Events:
    """The events of a bucket, sorted by key and order, with the candidates of each variable.

    `partition`, `tie` and `window` are the rows of the same key, those with an equal order key, and
    those that may share a match with a row. The table itself stays unsorted: only columns that
    conditions read are permuted (by `columns`); the payload is taken once, for the rows of matches.
    """

    def __init__(self, program: Program, table: pa.Table) -> None:
        self.program = program
        self.table = table
        self.size: int = table.num_rows
        codes = key_codes([table.column(i) for i in program.keys]) if program.keys else None
        orders = [sort_codes(table.column(order.column), order) for order in program.orders]
        self.permutation = _sort_permutation(codes, orders)
        self.partition = _equal_runs([] if codes is None else [codes[self.permutation]], self.size)
        sorted_orders = [order[self.permutation] for order in orders]
        self.tie = _equal_runs([self.partition.start, *sorted_orders], self.size)
        self.columns = EventColumns(program, table, self.permutation)
        self.time = column_to_numpy(table.column(program.orders[0].column))[self.permutation]
        self.window = self._window()
        self._mask = column_to_numpy(table.column(program.mask))[self.permutation]
        self._below: dict[int, Positions] = {}
        self._candidate_rows: dict[int, Positions] = {}

    def candidates(self, variable: int) -> Flags:
        """The rows that meet the variable's own conditions."""
        found: Flags = (self._mask >> variable & 1).astype(np.bool_)
        return found

    def candidate_rows(self, variable: int) -> Positions:
        """Their positions."""
        if variable not in self._candidate_rows:
            found = np.flatnonzero(self.candidates(variable))
            found.flags.writeable = False
            self._candidate_rows[variable] = found
        return self._candidate_rows[variable]

    def below(self, variable: int) -> Positions:
        """The number of candidates before each position (size + 1 entries)."""
        if variable not in self._below:
            counts = np.zeros(self.size + 1, dtype=np.int64)
            np.cumsum(self.candidates(variable), out=counts[1:])
            self._below[variable] = counts
        return self._below[variable]

    def largest_buffer(self) -> int:
        """The number of candidates in the partition that has most of them."""
        if not self.size:
            return 0
        counts = np.zeros(self.size + 1, dtype=np.int64)
        np.cumsum(self._mask != 0, out=counts[1:])
        return int((counts[self.partition.end] - counts[self.partition.start]).max())

    def density(self, stretch: Positions) -> Density:
        """The number of candidates, and how densely they lie."""
        candidates = count_candidates(self.program, self._mask)
        if not self.size:
            return Density(candidates, 0.0)
        if self.partition.end[0] == self.size:
            length = self._windows_of(0)
            if length < 2:
                return Density(candidates, max(length, 1.0))
        some = np.unique(np.linspace(0, self.size - 1, DENSITY_ROWS).astype(np.int64))
        here = stretch[some]
        crowd = np.searchsorted(stretch, here + 1) - np.searchsorted(stretch, here)
        crowd = self._window_crowd(some, crowd)
        return Density(candidates, self.size / float(crowd.mean()))

    def _window_crowd(self, positions: Positions, crowd: Positions) -> Array:
        """The rows in a window around each position. `crowd`: those in its stretch; but a key that
        lasts less than two windows, as in the state of a stream, fills parts of stretches only."""
        length = self._windows_of(positions)
        rows = self.partition.end[positions] - self.partition.start[positions]
        found: Array = np.where(length < 2, rows / np.maximum(length, 1.0), crowd)
        return found

    def _windows_of(self, positions: Any) -> Any:
        """How many windows long the keys of these positions are; without a window, endless."""
        window = self.program.window
        start, end = self.partition.start[positions], self.partition.end[positions]
        if window is None or not window.size:
            return np.full(np.shape(start), np.inf)
        if window.kind == "events":
            return (end - start) / window.size
        return (self.time[end - 1] - self.time[start]) / window.size

    def count(self, low: int, high: int) -> dict[int, int]:
        """The candidates of each variable among the positions [low, high)."""
        return count_candidates(self.program, self._mask[low:high])

    def count_among(self, rows: Flags) -> dict[int, int]:
        """The candidates of each variable among these rows."""
        return count_candidates(self.program, self._mask[rows])

    def fits(self, positions: Positions) -> Flags | None:
        """The rows that can be in a match at all; None for all of them.

        A row whose ties alone exceed a window of events cannot.
        """
        window = self.program.window
        if window is None or window.kind == "time":
            return None
        fits: Flags = self.tie.end[positions] - self.tie.start[positions] <= window.size
        return fits

    def rows(self, positions: Positions) -> Positions:
        """The rows of the unsorted table."""
        return self.permutation[positions]

    def stretch(self) -> Positions:
        """A number for each (key, window-long stretch), ascending with the position.

        Stretches are cut at fixed times, so they are the same for every bucket and slice.
        """
        window = self.program.window
        if window is None:
            return _number_runs([self.partition.start])
        if window.kind == "events":
            counted = np.arange(self.size, dtype=np.int64) - self.partition.start
            return _number_runs([self.partition.start, counted // int(window.size)])
        # A window of 0 in a unit that has no fractions still makes stretches of one unit.
        return _number_runs([self.partition.start, self.time // (window.size or 1)])

    def start_of(self, position: int) -> object:
        """The event time at a row, for messages."""
        value = self.table.column(self.program.orders[0].column)[int(self.permutation[position])]
        try:
            return value.as_py()
        except OverflowError:
            # Spark's timestamps and dates go further than Python's.
            return value.value

    def key_of(self, position: int) -> list[object]:
        """The partition key's values at a row, for messages."""
        row = int(self.permutation[position])
        # Where time is sliced, the slice is the last key, and none of the user's.
        keys = self.program.keys if self.program.home is None else self.program.keys[:-1]
        return [self.table.column(i)[row].as_py() for i in keys]

    def _window(self) -> WindowSpan | Span:
        window = self.program.window
        if window is None:
            return self.partition
        if window.kind == "time":
            return _time_window(self.time, self.partition, window.size)
        return _event_window(self.tie, self.partition, int(window.size))


# With at most this many variables, one pass counts every possible mask.
MAX_COUNTED_MASK_BITS = 12


def count_candidates(program: Program, mask: Array) -> dict[int, int]:
    """The candidates of each variable among rows with these masks."""
    count = len(program.variables)
    if count > MAX_COUNTED_MASK_BITS:
        return {v: int(np.count_nonzero(mask >> v & 1)) for v in range(count)}
    found = np.bincount(mask, minlength=1 << count)
    return dict(enumerate((found @ _mask_bits(count)).tolist()))


def count_candidates_in(place: Positions, places: int, program: Program, mask: Array) -> Positions:
    """The same by variable and place, of the rows at each of so many places."""
    count = len(program.variables)
    if count > MAX_COUNTED_MASK_BITS:
        by_variable = (place[mask >> v & 1 == 1] for v in range(count))
        return np.stack([np.bincount(each, minlength=places) for each in by_variable])
    found = np.bincount((place << count) + mask, minlength=places << count)
    return (found.reshape(places, -1) @ _mask_bits(count)).T


@lru_cache(maxsize=MAX_COUNTED_MASK_BITS)
def _mask_bits(count: int) -> Positions:
    """For each mask whether it has each variable."""
    return np.arange(1 << count)[:, np.newaxis] >> np.arange(count) & 1


def drop_null_times(program: Program | RowProgram, table: pa.Table) -> pa.Table:
    """Event patterns, and WITHIN anywhere, ignore rows whose event time is NULL or NaN."""
    order = program.orders[0]
    column = table.column(order.column)
    kept = pc.is_valid(column)
    if order.type.kind == "float":
        kept = pc.and_(kept, pc.invert(pc.is_nan(pc.fill_null(column, float("nan")))))
    if pc.all(kept).as_py() in (True, None):
        return table
    return table.filter(kept)


def column_to_numpy(column: pa.ChunkedArray) -> Array:
    """A column of numbers or times as a numpy array."""
    values = plain_values(to_single_array(column))
    return values.astype(np.int64) if values.dtype.kind == "i" else values


# ---- sorting and runs of equal rows --------------------------------------------------------------


def _sort_permutation(codes: Positions | None, orders: list[Array]) -> Positions:
    """The permutation by key, then order.

    One combined integer sorts several times faster than a lexical sort of two columns (9 ms
    against 88 ms for 500,000 rows).
    """
    columns = orders if codes is None else [codes, *orders]
    combined = combine_codes(columns)
    if combined is not None:
        return np.argsort(combined)
    return np.lexsort(columns[::-1])


def combine_codes(columns: list[Array]) -> Array | None:
    """One column that sorts as all of them together; None if it does not fit in 64 bits."""
    combined = columns[0]
    if len(columns) == 1:
        return combined
    if not len(combined) or any(column.dtype.kind != "i" for column in columns):
        return None
    most = int(combined.max()) - int(combined.min())
    combined = combined.astype(np.int64) - int(combined.min()) if most < 1 << 62 else combined
    for column in columns[1:]:
        least = int(column.min())
        span = int(column.max()) - least + 1
        if (most + 1) * span >= 1 << 63:
            return None
        most = (most + 1) * span - 1
        combined = combined * span + (column - least)
    return combined


def _find_changes(columns: list[Array], size: int) -> Flags:
    """True where a row differs from the previous one in any column; True at row 0."""
    changed = np.zeros(size, dtype=np.bool_)
    if size:
        changed[0] = True
    for column in columns:
        np.logical_or(changed[1:], column[1:] != column[:-1], out=changed[1:])
    return changed


def _number_runs(columns: list[Array]) -> Positions:
    if not len(columns[0]):
        return np.zeros(0, dtype=np.int64)
    return np.cumsum(_find_changes(columns, len(columns[0]))) - 1


def _equal_runs(columns: list[Array], size: int) -> Span:
    """The run of equal values around each row."""
    starts = np.flatnonzero(_find_changes(columns, size))
    ends = np.append(starts[1:], size)[: len(starts)]
    lengths = ends - starts
    return Span(np.repeat(starts, lengths), np.repeat(ends, lengths))


# ---- windows -------------------------------------------------------------------------------------


def _time_window(time: Array, partition: Span, size: int | float) -> WindowSpan:
    """For each row, the rows of its partition at most `size` away."""
    count = len(time)
    if time.dtype.kind == "i":
        compressed = _compress_time(time, partition, int(size))
        if compressed is not None:
            limit = np.int64(size)
            return WindowSpan(
                WindowSide(
                    lambda r: np.searchsorted(compressed, compressed[r] - limit, "left"), count
                ),
                WindowSide(
                    lambda r: np.searchsorted(compressed, compressed[r] + limit, "right"), count
                ),
            )
    # Differences are computed as a condition would: latest minus earliest.
    return WindowSpan(
        WindowSide(
            lambda r: bisect_ranges(
                partition.start[r], r, lambda at, i: _is_within(time[r[i]] - time[at], size)
            ),
            count,
        ),
        WindowSide(
            lambda r: bisect_ranges(
                r, partition.end[r], lambda at, i: ~_is_within(time[at] - time[r[i]], size)
            ),
            count,
        ),
    )


def time_window_ends(time: Array, begin: Positions, end: Positions, size: int | float) -> Positions:
    """For each row, the first position of its partition that is more than `size` later."""
    return _time_window(time, Span(begin, end), size).end[np.arange(len(time))]


def _is_within(distance: Array, size: int | float) -> Flags:
    """Whether distances fit the window; those that wrapped around int64 are negative."""
    within: Flags = ((distance >= 0) & (distance <= size)).astype(np.bool_)
    return within


def _compress_time(time: Array, partition: Span, size: int) -> Positions | None:
    """One ascending coordinate for all partitions in which distances up to `size` are exact.

    Every gap, and the step from one partition to the next, is cut to `size + 1`: two rows are at
    most `size` apart exactly when their coordinates are. None when the sum would overflow.
    """
    count = len(time)
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    if count * (float(size) + 1.0) > 2.0**62 or float(size) > 2.0**61:
        return None
    gaps = np.empty(count, dtype=np.int64)
    gaps[0] = 0
    # A difference that wraps is negative: both that and a step to the next partition are cut.
    np.subtract(time[1:], time[:-1], out=gaps[1:])
    gaps[1:][(gaps[1:] > size) | (gaps[1:] < 0)] = size + 1
    starts = partition.start[1:] != partition.start[:-1]
    gaps[1:][starts] = size + 1
    return np.cumsum(gaps)


def _event_window(tie: Span, partition: Span, size: int) -> Span:
    """For each row, the rows that span at most `size` input rows with it, ties included."""
    rows = np.arange(len(tie.start))
    first_allowed = np.maximum(tie.end - size, partition.start)
    # The earliest row's ties count too, so a tie group that begins before the bound is out.
    start = np.where(
        (first_allowed < tie.end) & (tie.start[np.minimum(first_allowed, rows)] < first_allowed),
        tie.end[np.minimum(first_allowed, rows)],
        first_allowed,
    )
    last_allowed = np.minimum(tie.start + size, partition.end)
    final = np.maximum(last_allowed - 1, rows)
    end = np.where(tie.end[final] > last_allowed, tie.start[final], last_allowed)
    return Span(start, end)


def bisect_ranges(
    low: Positions, high: Positions, reached: Callable[[Positions, Positions], Flags]
) -> Positions:
    """For each range [low, high) the first position for which `reached(position, index)` holds,
    `high` where it never does. `reached` must be monotone over the range."""
    low, high = low.copy(), high.copy()
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) >> 1
        found = reached(middle, open_)
        high[open_[found]] = middle[found]
        low[open_[~found]] = middle[~found] + 1
        open_ = open_[low[open_] < high[open_]]
    return low
