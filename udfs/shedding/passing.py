"""The share of random partners with which a row passes a condition: DARLING's phi.

For a condition and one of its variables, random partial matches are drawn that begin with a row of
that variable (`drawing.py`), and the condition is tested on them. What passes, by bins of the
columns that the condition reads of the row, is a `Table`: the paper's PDFs, seen instead of
assumed, for whatever the engine can evaluate: any comparison, arithmetic between the sides, AND,
OR, membership. Partners come from the row's own key and window. Where keys differ, the key is one
more column of the table, as far as the draws go.

A condition of which nothing can be drawn (a user's function, remote data, a whole list) keeps the
same share of every row, so it leaves the order of utilities as it is.
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


# --------------------------------------------------------------------------------------------------
# What a row says of its chances: values of columns, put into few bins.
#
# A `Feature` cuts one shipped column, either at quantiles of what was seen (numbers and times) or
# by its most frequent values. Its last bin is NULL; the bin before it, of values, is all the
# others.
#
# Always holds: `bins` here and the SQL text that the driver makes of the same feature
# (`spark_cep/spark/shedding.py`) agree: a number's bin is how many splits are not above it, and NaN
# is above all, as in Spark.
# --------------------------------------------------------------------------------------------------


# Kinds whose order may be cut at quantiles; all are compared as doubles.
ORDERED_KINDS: Final[frozenset[TypeKind]] = frozenset(
    {"int", "float", "decimal", "date", "timestamp", "timestamp_ntz"}
)
# Kinds whose values can be written into a condition as they are.
NAMED_KINDS: Final[frozenset[TypeKind]] = frozenset({"int", "string", "bool"})
# Integers and powers of ten that doubles hold exactly.
_EXACT_INTEGER: Final = 2.0**53
_EXACT_SCALE: Final = 22

Bins = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Feature:
    """`splits` of an ordered column, ascending; else `values`, the ones that have a bin each."""

    column: int
    type: Type
    splits: tuple[float, ...] = ()
    values: tuple[Any, ...] = ()

    @property
    def is_ordered(self) -> bool:
        return not self.values

    @property
    def size(self) -> int:
        """How many bins there are, the one of NULL included."""
        return len(self.values or self.splits) + 2

    def bins(self, column: pa.ChunkedArray | pa.Array) -> Bins:
        """The bin of each row."""
        return self._of_values(column) if self.values else self._of_numbers(column)

    def _of_numbers(self, column: pa.ChunkedArray | pa.Array) -> Bins:
        numbers, valid = as_numbers(column, self.type)
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


def as_numbers(
    column: pa.ChunkedArray | pa.Array, type_: Type
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_] | None]:
    """An ordered column as doubles, arbitrary under NULL: times in microseconds, dates in days."""
    array = to_single_array(column)
    numbers, valid = plain_values(array).astype(np.float64), validity(array)
    if type_.kind == "decimal":
        seen = numbers if valid is None else numbers[valid]
        if type_.scale <= _EXACT_SCALE and np.abs(seen).max(initial=0.0) < _EXACT_INTEGER:
            return numbers / 10.0**type_.scale, valid
        # A quotient of two numbers that are rounded already may not be the nearest double.
        numbers = np.array([float(value or 0) for value in array.to_pylist()])
    return numbers, valid


def feature_of(
    column: int, type_: Type, seen: pa.Array, most: int, *, is_equal: bool
) -> Feature | None:
    """The cuts of a column of at most `most` bins, by values that were seen; None if it cannot be
    cut. `is_equal`: it is compared for equality, so that values themselves matter."""
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
    """Ties by value, so that the same rows always give the same cuts."""
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    found = sorted(pairs, key=lambda each: (-each[1], each[0]))
    return tuple(value for value, _ in found[:most])


def quantiles(
    numbers: npt.NDArray[np.float64], valid: npt.NDArray[np.bool_] | None, most: int
) -> tuple[float, ...]:
    """Splits between bins with about as many values each."""
    if valid is not None:
        numbers = numbers[valid]
    numbers = np.sort(numbers[np.isfinite(numbers)])
    if not len(numbers):
        return ()
    at = (np.arange(1, most) * len(numbers)) // most
    # Few digits are as good, and stand in Spark's plans; where values differ later, all of them.
    exact = np.unique(numbers[at])
    short = np.unique([float(f"{split:.6g}") for split in exact])
    splits = short if len(short) == len(exact) else exact
    # Below the least value nothing was seen.
    return tuple(float(each) for each in splits if each > numbers[0])


def asks_for_equality(names: Sequence[str]) -> bool:
    """Whether one of these operations asks for equal values."""
    return bool({"=", "<=>", "<>", "in"} & set(names))


# So many draws give each of 32 bins a share that is right to a few per cent of itself.
CONDITION_DRAWS: Final = 20_000
# Bins of a table, by how many columns the condition reads of the row; more are not told apart.
BINS: Final = {1: 32, 2: 12, 3: 6}
# Keys that have a share of their own, and how finely a column is cut beside them.
MOST_KEY_BINS: Final = 16
BINS_BESIDE_KEYS: Final = 12
# A bin's share begins as that of all rows, with the weight of so many draws.
PRIOR_DRAWS: Final = 10.0
# Keys are told apart where their shares differ by so much from those of all keys together.
KEY_DIFFERENCE: Final = 0.03

Shares = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PassTable:
    """`shares` has an axis for each feature. `mean`: of all draws, the condition's selectivity.
    `by_key`: the first feature is the key."""

    variable: int
    condition: int
    features: tuple[Feature, ...]
    shares: Shares
    mean: float
    by_key: bool = False

    def passes(self, table: pa.Table) -> Shares:
        """For each row of the shipped columns."""
        bins = tuple(feature.bins(table.column(feature.column)) for feature in self.features)
        return np.asarray(self.shares[bins])


@dataclass(frozen=True)
class _ConditionDraws:
    """Draws of one condition that begin with one variable: the rows of the variable, what each
    draw stands for, and whether the condition held."""

    rows: npt.NDArray[np.int64]
    weights: Shares
    held: npt.NDArray[np.bool_]


def tables_of(matching: AdvanceContext, keys: Sequence[Type] = ()) -> tuple[PassTable, ...]:
    """One for each condition and positive variable in it, where the condition can be drawn and
    the columns be cut. `keys`: the types of the program's keys, if they may be looked at.

    A condition with a variable that may stay unfilled says nothing: a row that fails it may be in
    matches without that variable."""
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
                table = _make_table(walk, (place, condition), variable, keys)
                if table is not None:
                    found[variable, place] = table
    return tuple(found.values())


def _is_always_tested(matching: AdvanceContext, condition: Condition, variable: int) -> bool:
    """Whether every match with this variable meets the condition with others."""
    filled = [branch.filled() for branch in matching.program.branches]
    return len(condition.variables) > 1 and all(
        condition.variables <= each for each in filled if variable in each
    )


def _make_table(
    walk: BranchWalk, condition: tuple[int, Condition], variable: int, keys: Sequence[Type]
) -> PassTable | None:
    place, test = condition
    read = _find_columns(walk, test, variable)
    if read is None:
        return None
    seen = _draw_condition(walk, test, variable)
    if seen is None:
        return None
    events = walk.matching.events
    rows = pa.array(events.rows(seen.rows))
    values = {c: to_single_array(events.table.column(c)).take(rows) for c in read}
    if any(_is_monotonic(walk, rows, values[c], type_) for c, (type_, _) in read.items()):
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
    whole_table = PassTable(variable, place, known, shares, mean)
    return _split_by_key(walk, seen, whole_table, keys) or whole_table


def _find_columns(
    walk: BranchWalk, condition: Condition, variable: int
) -> dict[int, tuple[Type, bool]] | None:
    """The columns that a condition reads of a variable's rows, and whether it asks for equal
    values of them. None where they say nothing of rows to come: event times only go on."""
    orders = {order.column for order in walk.matching.program.orders}
    found: dict[int, tuple[Type, bool]] = {}
    equal = set(_equality_columns(condition))
    for cell in cells_of(condition.expression):
        if cell.variable == variable:
            assert cell.column is not None
            found[cell.column] = (cell.type, cell.column in equal)
    return None if not found or len(found) > max(BINS) or orders & found.keys() else found


def _is_monotonic(walk: BranchWalk, rows: pa.Array, values: pa.Array, type_: Type) -> bool:
    """Whether the values grow with event time, as expressions of it and counters do."""
    order = walk.matching.program.orders[0]
    if type_.kind not in ORDERED_KINDS or order.type.kind not in ORDERED_KINDS:
        return False
    times, _ = as_numbers(walk.matching.events.table.column(order.column).take(rows), order.type)
    numbers, valid = as_numbers(values, type_)
    there = slice(None) if valid is None else valid
    found = numbers[there][np.lexsort((numbers[there], times[there]))]
    return len(found) > 0 and bool(found[-1] > found[0] and (found[1:] >= found[:-1]).all())


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
    """Draws and passes of each bin, weighted so that a mean draw counts one."""
    at = np.ravel_multi_index(bins, sizes)
    length = int(np.prod(sizes))
    weights = seen.weights / max(float(seen.weights.mean()), 1e-300)
    draws = np.bincount(at, weights, length).astype(np.float64)
    passes = np.bincount(at, weights * seen.held, length).astype(np.float64)
    return draws.reshape(sizes), passes.reshape(sizes)


def _smooth_shares(counted: tuple[Shares, Shares], before: Shares) -> Shares:
    draws, passes = counted
    return _round_shares((passes + PRIOR_DRAWS * before) / (draws + PRIOR_DRAWS))


def _round_shares(shares: Shares) -> Shares:
    """To three digits: they are known no better, and stand in Spark's plans."""
    found = [float(f"{share:.3g}") for share in shares.ravel()]
    return np.array(found).reshape(shares.shape)


def _split_by_key(
    walk: BranchWalk, seen: _ConditionDraws, pooled: PassTable, keys: Sequence[Type]
) -> PassTable | None:
    """The table with the key in front, where keys differ and the draws show it."""
    program, events = walk.matching.program, walk.matching.events
    if len(keys) != 1 or len(pooled.features) != 1:
        return None
    rows = pa.array(events.rows(seen.rows))
    column = program.keys[0]
    key = feature_of(
        column,
        keys[0],
        to_single_array(events.table.column(column)).take(rows),
        MOST_KEY_BINS,
        is_equal=True,
    )
    if key is None or not key.values or len(key.values) == 1:
        return None
    one = pooled.features[0]
    values = to_single_array(events.table.column(one.column)).take(rows)
    coarse = feature_of(one.column, one.type, values, BINS_BESIDE_KEYS, is_equal=bool(one.values))
    assert coarse is not None
    all_keys, mean = _pass_shares(seen, (coarse.bins(values),), (coarse.size,))
    bins = (key.bins(to_single_array(events.table.column(column)).take(rows)), coarse.bins(values))
    sizes = (key.size, coarse.size)
    counted = _count_bins(seen, bins, sizes)
    shares = _smooth_shares(counted, np.broadcast_to(all_keys, sizes))
    if _key_distance(shares, np.broadcast_to(all_keys, sizes), counted[0]) < KEY_DIFFERENCE:
        return None
    return PassTable(pooled.variable, pooled.condition, (key, coarse), shares, mean, by_key=True)


def _key_distance(shares: Shares, pooled: Shares, draws: Shares) -> float:
    """How far shares by key are from those of all keys, beyond what chance alone would make."""
    chance = 0.8 * np.sqrt(pooled * (1 - pooled) * draws) / (draws + PRIOR_DRAWS)
    beyond = np.maximum(np.abs(shares - pooled) - chance, 0.0)
    return float((beyond * draws).sum() / max(float(draws.sum()), 1e-300))
