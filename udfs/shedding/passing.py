"""The probability that a row passes a condition: DARLING's phi, estimated by draws.

For a condition and one of its variables, random partial matches are drawn that begin with a row of
that variable, and the condition is tested on them. The share that passes, by bins of the columns
that the condition reads of the row, is a `PassTable`: the paper's PDFs, measured, not assumed,
for any condition that the engine can evaluate. Partners come from the row's own key and window.

A condition that cannot be drawn (a user's function, remote data, a whole list) is taken to pass the
same share of every row, so it does not change the order of utilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.events.sampling import (
    can_sample,
    draw_partials,
    make_sampling_walk,
    previous_cells,
)
from spark_cep.udfs.expressions import Call, Cell, Member, cells_of
from spark_cep.udfs.values.arrow_values import plain_values, to_single_array, validity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.partials import Partials
    from spark_cep.udfs.events.walk import BranchWalk
    from spark_cep.udfs.expressions import Type, TypeKind
    from spark_cep.udfs.program import Condition


# ---- features ------------------------------------------------------------------------------------
#
# A feature puts the values of one shipped column into few bins, either between quantiles of a
# sample (numbers and times) or by the most frequent values. Its last bin is NULL; with values, the
# one before it holds all others.
#
# `bins` agrees with the SQL that the driver writes for the same feature
# (`spark_cep/spark/shedding.py`): the bin of a number is the number of splits that are not above
# it, and NaN is above all, as in Spark.


# Kinds that may be cut at quantiles; all are compared as doubles.
ORDERED_KINDS: Final[frozenset[TypeKind]] = frozenset(
    {"int", "float", "decimal", "date", "timestamp", "timestamp_ntz"}
)
# Kinds whose values can be written as literals.
NAMED_KINDS: Final[frozenset[TypeKind]] = frozenset({"int", "string", "bool"})
# Integers and powers of ten that doubles hold exactly.
_EXACT_INTEGER: Final = 2.0**53
_EXACT_SCALE: Final = 22

Bins = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Feature:
    """The bins of a column: ascending `splits` if it is ordered, else `values` with a bin each.
    With a `period` the remainder of the column by it is cut."""

    column: int
    type: Type
    splits: tuple[float, ...] = ()
    values: tuple[Any, ...] = ()
    period: float | None = None

    @property
    def is_ordered(self) -> bool:
        return not self.values

    @property
    def size(self) -> int:
        """The number of bins, with that of NULL."""
        return len(self.values or self.splits) + 2

    def bins(self, column: pa.ChunkedArray | pa.Array) -> Bins:
        """The bin of each row."""
        return self._of_values(column) if self.values else self._of_numbers(column)

    def _of_numbers(self, column: pa.ChunkedArray | pa.Array) -> Bins:
        numbers, valid = as_numbers(column, self.type)
        if self.period is not None:
            numbers = _remainder(numbers, self.period)
        found = np.searchsorted(np.array(self.splits), numbers, side="right").astype(np.int64)
        if valid is not None:
            found[~valid] = self.size - 1
        return found

    def _of_values(self, column: pa.ChunkedArray | pa.Array) -> Bins:
        array = to_single_array(column)
        known = pa.array(list(self.values), array.type)
        found = pc.fill_null(pc.index_in(array, value_set=known), len(self.values))
        bins: Bins = found.to_numpy(zero_copy_only=False).astype(np.int64)
        valid = validity(array)
        if valid is not None:
            bins[~valid] = self.size - 1
        return bins


def _remainder(numbers: npt.NDArray[np.float64], period: float) -> npt.NDArray[np.float64]:
    """What Spark's `pmod` gives of doubles, NaN of infinite ones included."""
    with np.errstate(invalid="ignore"):
        found = np.fmod(numbers, period)
        return np.where(found < 0, np.fmod(found + period, period), found)


def as_numbers(
    column: pa.ChunkedArray | pa.Array, type_: Type
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_] | None]:
    """An ordered column as doubles: times in microseconds, dates in days. Arbitrary for NULL."""
    array = to_single_array(column)
    numbers, valid = plain_values(array).astype(np.float64), validity(array)
    if type_.kind == "decimal":
        seen = numbers if valid is None else numbers[valid]
        if type_.scale <= _EXACT_SCALE and np.abs(seen).max(initial=0.0) < _EXACT_INTEGER:
            return numbers / 10.0**type_.scale, valid
        # The quotient of two rounded numbers may not be the nearest double.
        numbers = np.array([float(value or 0) for value in array.to_pylist()])
    return numbers, valid


def feature_of(
    column: int, type_: Type, seen: pa.Array, most: int, *, is_equal: bool
) -> Feature | None:
    """A feature with at most `most` bins, by a sample of the column; None if there is none.
    `is_equal`: the column is compared for equality, so that the values themselves matter."""
    if type_.kind in NAMED_KINDS:
        counts = pc.value_counts(seen.drop_null())
        frequent = _most_frequent(counts, most)
        if frequent and (len(counts) <= most or is_equal or type_.kind not in ORDERED_KINDS):
            return Feature(column, type_, values=frequent)
    if type_.kind in ORDERED_KINDS:
        numbers, valid = as_numbers(seen, type_)
        return Feature(column, type_, splits=quantiles(numbers, valid, most))
    return None


def _most_frequent(counts: pa.StructArray, most: int) -> tuple[Any, ...]:
    """The most frequent values. Ties by value, so that the same rows give the same feature."""
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    found = sorted(pairs, key=lambda each: (-each[1], each[0]))
    return tuple(value for value, _ in found[:most])


def quantiles(
    numbers: npt.NDArray[np.float64], valid: npt.NDArray[np.bool_] | None, most: int
) -> tuple[float, ...]:
    """Splits between bins with about equally many values."""
    if valid is not None:
        numbers = numbers[valid]
    numbers = np.sort(numbers[np.isfinite(numbers)])
    if not len(numbers):
        return ()
    at = (np.arange(1, most) * len(numbers)) // most
    # Few digits keep Spark's plans short; all digits where the values differ only in later ones.
    exact = np.unique(numbers[at])
    short = np.unique([float(f"{split:.6g}") for split in exact])
    splits = short if len(short) == len(exact) else exact
    # There is no value below the least one.
    return tuple(float(each) for each in splits if each > numbers[0])


def asks_for_equality(names: Sequence[str]) -> bool:
    """Whether one of these operations compares for equality."""
    return bool({"=", "<=>", "<>", "in"} & set(names))


# ---- tables ------------------------------------------------------------------------------------

# The rows that are looked at first for whether values grow with time.
MONOTONIC_ROWS: Final = 1_000
# With this many draws the share of each of 32 bins has an error of a few per cent.
CONDITION_DRAWS: Final = 20_000
# Bins per column, by how many columns the condition reads of the row; with more there is no table.
BINS: Final = {1: 32, 2: 12, 3: 6}
# How many keys have a share of their own, and the bins of a column beside them.
MOST_KEY_BINS: Final = 16
BINS_BESIDE_KEYS: Final = 12
# The prior of a bin is the share of all rows, with the weight of so many draws.
PRIOR_DRAWS: Final = 10.0

Shares = npt.NDArray[np.float64]


class BinnedRows:
    """Rows whose bins are found once for each feature, however many tables ask for them."""

    def __init__(self, table: pa.Table) -> None:
        self.num_rows: int = table.num_rows
        self._table = table
        self._known: dict[Feature, Bins] = {}

    def bins(self, feature: Feature) -> Bins:
        """The bin of each row."""
        if feature not in self._known:
            self._known[feature] = feature.bins(self._table.column(feature.column))
        return self._known[feature]

    def take(self, here: npt.NDArray[np.int64]) -> BinnedRows:
        """Some of the rows, with bins of these."""
        return _SomeBinnedRows(self, here)


class _SomeBinnedRows(BinnedRows):
    def __init__(self, every: BinnedRows, here: npt.NDArray[np.int64]) -> None:
        self.num_rows = len(here)
        self._every, self._here = every, here

    def bins(self, feature: Feature) -> Bins:
        found: Bins = self._every.bins(feature)[self._here]
        return found

    def take(self, here: npt.NDArray[np.int64]) -> BinnedRows:
        return _SomeBinnedRows(self._every, self._here[here])


@dataclass(frozen=True)
class PassTable:
    """The shares of a variable's rows for some conditions, as places in the program, with an axis
    for each feature: of random partners that pass, or of the expected matches. `mean`: of all rows.
    `by_key`: the first feature is the key."""

    variable: int
    conditions: tuple[int, ...]
    features: tuple[Feature, ...]
    shares: Shares
    mean: float
    by_key: bool = False

    def passes(self, rows: pa.Table | BinnedRows) -> Shares:
        """The share of each row's bin."""
        rows = rows if isinstance(rows, BinnedRows) else BinnedRows(rows)
        return np.asarray(self.shares[tuple(rows.bins(feature) for feature in self.features)])


@dataclass(frozen=True)
class _ConditionDraws:
    """Draws of one condition that begin with one variable: the rows of the variable, the weight of
    each draw, and whether the condition held."""

    rows: npt.NDArray[np.int64]
    weights: Shares
    held: npt.NDArray[np.bool_]


def tables_of(matching: AdvanceContext) -> tuple[PassTable, ...]:
    """A table for each condition and positive variable in it, if the condition can be drawn and its
    columns have features.

    A condition with an optional variable has none: a row that fails it may still be in matches
    without that variable."""
    found: dict[tuple[int, int], PassTable] = {}
    for number in range(len(matching.program.branches)):
        walk = make_sampling_walk(matching, number)
        for place, condition in enumerate(matching.program.conditions):
            if any(previous_cells(condition)) or not can_sample(walk, condition):
                continue
            for variable in sorted(condition.variables):
                if (variable, place) in found or not _is_always_tested(
                    matching, condition, variable
                ):
                    continue
                table = _make_table(walk, (place, condition), variable)
                if table is not None:
                    found[variable, place] = table
    return tuple(found.values())


def _is_always_tested(matching: AdvanceContext, condition: Condition, variable: int) -> bool:
    """Whether the condition is tested in every match that has this variable."""
    filled = [branch.filled() for branch in matching.program.branches]
    return len(condition.variables) > 1 and all(
        condition.variables <= each for each in filled if variable in each
    )


def _make_table(
    walk: BranchWalk, condition: tuple[int, Condition], variable: int
) -> PassTable | None:
    place, test = condition
    read = find_columns(walk, test, variable)
    if read is None:
        return None
    seen = _draw_condition(walk, test, variable)
    if seen is None:
        return None
    events = walk.matching.events
    rows = pa.array(events.rows(seen.rows))
    values = {c: to_single_array(events.table.column(c)).take(rows) for c in read}
    if any(is_monotonic(walk, rows, values[c], type_) for c, (type_, _) in read.items()):
        return None
    features = [
        feature_of(column, type_, values[column], BINS[len(read)], is_equal=is_equal)
        for column, (type_, is_equal) in read.items()
    ]
    known = tuple(feature for feature in features if feature is not None)
    if len(known) < len(features):
        return None
    bins = tuple(feature.bins(values[feature.column]) for feature in known)
    shares, mean = _pass_shares(seen, bins, tuple(feature.size for feature in known))
    return PassTable(variable, (place,), known, shares, mean)


def find_columns(
    walk: BranchWalk, condition: Condition, variable: int
) -> dict[int, tuple[Type, bool]] | None:
    """The columns that a condition reads of a variable's rows, and whether it compares them for
    equality. None for event times: they only grow, so past ones do not predict later rows."""
    orders = {order.column for order in walk.matching.program.orders}
    found: dict[int, tuple[Type, bool]] = {}
    equal = set(_equality_columns(condition))
    for cell in cells_of(condition.expression):
        if cell.variable == variable:
            assert cell.column is not None
            found[cell.column] = (cell.type, cell.column in equal)
    return None if not found or len(found) > max(BINS) or orders & found.keys() else found


def is_monotonic(walk: BranchWalk, rows: pa.Array, values: pa.Array, type_: Type) -> bool:
    """Whether the values grow with event time, like counters and expressions of the time."""
    order = walk.matching.program.orders[0]
    if type_.kind not in ORDERED_KINDS or order.type.kind not in ORDERED_KINDS:
        return False
    times, _ = as_numbers(walk.matching.events.table.column(order.column).take(rows), order.type)
    numbers, valid = as_numbers(values, type_)
    if valid is not None:
        numbers, times = numbers[valid], times[valid]
    # Of values that grow, some grow, too, and hardly any column passes this first test.
    step = max(len(numbers) // MONOTONIC_ROWS, 1)
    some = _order_by_time(numbers[::step], times[::step])
    if (some[1:] < some[:-1]).any():
        return False
    found = _order_by_time(numbers, times)
    return len(found) > 0 and bool(found[-1] > found[0] and (found[1:] >= found[:-1]).all())


def _order_by_time(
    numbers: npt.NDArray[np.float64], times: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    return np.asarray(numbers[np.lexsort((numbers, times))])


def _equality_columns(condition: Condition) -> Iterator[int]:
    for node in condition.expression.walk():
        if isinstance(node, Member) or (isinstance(node, Call) and asks_for_equality([node.name])):
            yield from (
                child.column
                for child in node.children()
                if isinstance(child, Cell) and child.column is not None
            )


def _draw_condition(
    walk: BranchWalk, condition: Condition, variable: int
) -> _ConditionDraws | None:
    slot_of = walk.slots.of_variable
    first = slot_of[variable]
    slots = [first, *sorted({slot_of[v] for v in condition.variables} - {first})]
    found = draw_partials(walk, slots, CONDITION_DRAWS)
    if found is None:
        return None
    partials, weights = found
    held = walk.reader(partials).holds(condition)
    return _ConditionDraws(_first_rows(walk, partials, variable), weights, held)


def _first_rows(walk: BranchWalk, partials: Partials, variable: int) -> npt.NDArray[np.int64]:
    rows = walk.slots.rows(variable, partials)
    return rows[:, 0] if rows.ndim > 1 else rows


def _pass_shares(
    seen: _ConditionDraws, bins: tuple[Bins, ...], sizes: tuple[int, ...]
) -> tuple[Shares, float]:
    total = float(seen.weights.sum())
    mean = float((seen.weights * seen.held).sum()) / total if total else 0.5
    counted = _count_bins(seen, bins, sizes)
    return _smooth_shares(counted, np.full(sizes, mean)), mean


def _count_bins(
    seen: _ConditionDraws, bins: tuple[Bins, ...], sizes: tuple[int, ...]
) -> tuple[Shares, Shares]:
    """The draws and passes of each bin, weighted so that the mean draw counts as one."""
    at = np.ravel_multi_index(bins, sizes)
    length = int(np.prod(sizes))
    weights = seen.weights / max(float(seen.weights.mean()), 1e-300)
    draws = np.bincount(at, weights, length).astype(np.float64)
    passes = np.bincount(at, weights * seen.held, length).astype(np.float64)
    return draws.reshape(sizes), passes.reshape(sizes)


def _smooth_shares(counted: tuple[Shares, Shares], before: Shares) -> Shares:
    draws, passes = counted
    return round_shares((passes + PRIOR_DRAWS * before) / (draws + PRIOR_DRAWS))


def round_shares(shares: Shares) -> Shares:
    """Rounds to three digits: more are not significant, and they are written in Spark's plans."""
    found = [float(f"{share:.3g}") for share in shares.ravel()]
    return np.array(found).reshape(shares.shape)
