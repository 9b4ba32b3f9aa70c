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
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.drawing import can_be_drawn, drawn, looking_back, walk_of
from spark_cep.udfs.expressions import Call, Cell, Member, cells
from spark_cep.udfs.shedding.features import (
    ORDERED,
    Bins,
    Feature,
    as_numbers,
    equal_columns,
    feature_of,
)
from spark_cep.udfs.values.arrow_values import whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.joining.partials import Partials
    from spark_cep.udfs.joining.walk import Walk
    from spark_cep.udfs.matching import Matching
    from spark_cep.udfs.program import Condition

# So many draws give each of 32 bins a share that is right to a few per cent of itself.
DRAWS: Final = 20_000
# Bins of a table, by how many columns the condition reads of the row; more are not told apart.
BINS: Final = {1: 32, 2: 12, 3: 6}
# Keys that have a share of their own, and how finely a column is cut beside them.
KEYS: Final = 16
BINS_BESIDE_KEYS: Final = 12
# A bin's share begins as that of all rows, with the weight of so many draws.
PRIOR_DRAWS: Final = 10.0
# Keys are told apart where their shares differ by so much from those of all keys together.
DIFFERENT: Final = 0.03

Shares = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Table:
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
class _Seen:
    """Draws of one condition that begin with one variable: the rows of the variable, what each
    draw stands for, and whether the condition held."""

    rows: npt.NDArray[np.int64]
    weights: Shares
    held: npt.NDArray[np.bool_]


def tables_of(matching: Matching, keys: Sequence[Type] = ()) -> tuple[Table, ...]:
    """One for each condition and positive variable in it, where the condition can be drawn and
    the columns be cut. `keys`: the types of the program's keys, if they may be looked at.

    A condition with a variable that may stay unfilled says nothing: a row that fails it may be in
    matches without that variable."""
    found: dict[tuple[int, int], Table] = {}
    for number in range(len(matching.program.branches)):
        walk = walk_of(matching, number)
        for place, condition in enumerate(matching.program.conditions):
            if any(looking_back(condition)) or not can_be_drawn(walk, condition):
                continue
            for variable in sorted(condition.variables):
                if (variable, place) in found or not _always_tested(matching, condition, variable):
                    continue
                table = _table(walk, (place, condition), variable, keys)
                if table is not None:
                    found[variable, place] = table
    return tuple(found.values())


def _always_tested(matching: Matching, condition: Condition, variable: int) -> bool:
    """Whether every match with this variable meets the condition with others."""
    filled = [branch.filled() for branch in matching.program.branches]
    return len(condition.variables) > 1 and all(
        condition.variables <= each for each in filled if variable in each
    )


def _table(
    walk: Walk, condition: tuple[int, Condition], variable: int, keys: Sequence[Type]
) -> Table | None:
    place, test = condition
    read = _columns(walk, test, variable)
    if read is None:
        return None
    seen = _seen(walk, test, variable)
    if seen is None:
        return None
    events = walk.matching.events
    rows = pa.array(events.rows(seen.rows))
    values = {c: whole(events.table.column(c)).take(rows) for c in read}
    if any(_only_goes_on(walk, rows, values[c], type_) for c, (type_, _) in read.items()):
        return None
    features = [
        feature_of(column, type_, values[column], BINS[len(read)], is_equal=is_equal)
        for column, (type_, is_equal) in read.items()
    ]
    known = tuple(feature for feature in features if feature is not None)
    if len(known) < len(features):
        return None
    bins = tuple(feature.bins(values[feature.column]) for feature in known)
    shares, mean = _shares(seen, bins, tuple(feature.size for feature in known))
    whole_table = Table(variable, place, known, shares, mean)
    return _by_key(walk, seen, whole_table, keys) or whole_table


def _columns(
    walk: Walk, condition: Condition, variable: int
) -> dict[int, tuple[Type, bool]] | None:
    """The columns that a condition reads of a variable's rows, and whether it asks for equal
    values of them. None where they say nothing of rows to come: event times only go on."""
    orders = {order.column for order in walk.matching.program.orders}
    found: dict[int, tuple[Type, bool]] = {}
    equal = set(_in_equalities(condition))
    for cell in cells(condition.expression):
        if cell.variable == variable:
            assert cell.column is not None
            found[cell.column] = (cell.type, cell.column in equal)
    return None if not found or len(found) > max(BINS) or orders & found.keys() else found


def _only_goes_on(walk: Walk, rows: pa.Array, values: pa.Array, type_: Type) -> bool:
    """Whether the values grow with event time, as expressions of it and counters do."""
    order = walk.matching.program.orders[0]
    if type_.kind not in ORDERED or order.type.kind not in ORDERED:
        return False
    times, _ = as_numbers(walk.matching.events.table.column(order.column).take(rows), order.type)
    numbers, valid = as_numbers(values, type_)
    there = slice(None) if valid is None else valid
    found = numbers[there][np.lexsort((numbers[there], times[there]))]
    return len(found) > 0 and bool(found[-1] > found[0] and (found[1:] >= found[:-1]).all())


def _in_equalities(condition: Condition) -> Iterator[int]:
    for node in condition.expression.walk():
        if isinstance(node, Member) or (isinstance(node, Call) and equal_columns([node.name])):
            yield from (
                child.column
                for child in node.children()
                if isinstance(child, Cell) and child.column is not None
            )


def _seen(walk: Walk, condition: Condition, variable: int) -> _Seen | None:
    slot_of = walk.slots.of_variable
    first = slot_of[variable]
    slots = [first, *sorted({slot_of[v] for v in condition.variables} - {first})]
    found = drawn(walk, slots, DRAWS)
    if found is None:
        return None
    partials, weights = found
    held = walk.reader(partials).holds(condition)
    return _Seen(_rows(walk, partials, variable), weights, held)


def _rows(walk: Walk, partials: Partials, variable: int) -> npt.NDArray[np.int64]:
    rows = walk.slots.rows(variable, partials)
    return rows[:, 0] if rows.ndim > 1 else rows


def _shares(seen: _Seen, bins: tuple[Bins, ...], sizes: tuple[int, ...]) -> tuple[Shares, float]:
    total = float(seen.weights.sum())
    mean = float((seen.weights * seen.held).sum()) / total if total else 0.5
    counted = _counted(seen, bins, sizes)
    return _smoothed(counted, np.full(sizes, mean)), mean


def _counted(seen: _Seen, bins: tuple[Bins, ...], sizes: tuple[int, ...]) -> tuple[Shares, Shares]:
    """Draws and passes of each bin, weighted so that a mean draw counts one."""
    at = np.ravel_multi_index(bins, sizes)
    length = int(np.prod(sizes))
    weights = seen.weights / max(float(seen.weights.mean()), 1e-300)
    draws = np.bincount(at, weights, length).astype(np.float64)
    passes = np.bincount(at, weights * seen.held, length).astype(np.float64)
    return draws.reshape(sizes), passes.reshape(sizes)


def _smoothed(counted: tuple[Shares, Shares], before: Shares) -> Shares:
    draws, passes = counted
    return _written((passes + PRIOR_DRAWS * before) / (draws + PRIOR_DRAWS))


def _written(shares: Shares) -> Shares:
    """To three digits: they are known no better, and stand in Spark's plans."""
    found = [float(f"{share:.3g}") for share in shares.ravel()]
    return np.array(found).reshape(shares.shape)


def _by_key(walk: Walk, seen: _Seen, pooled: Table, keys: Sequence[Type]) -> Table | None:
    """The table with the key in front, where keys differ and the draws show it."""
    program, events = walk.matching.program, walk.matching.events
    if len(keys) != 1 or len(pooled.features) != 1:
        return None
    rows = pa.array(events.rows(seen.rows))
    column = program.keys[0]
    key = feature_of(
        column, keys[0], whole(events.table.column(column)).take(rows), KEYS, is_equal=True
    )
    if key is None or not key.values or len(key.values) == 1:
        return None
    one = pooled.features[0]
    values = whole(events.table.column(one.column)).take(rows)
    coarse = feature_of(one.column, one.type, values, BINS_BESIDE_KEYS, is_equal=bool(one.values))
    assert coarse is not None
    all_keys, mean = _shares(seen, (coarse.bins(values),), (coarse.size,))
    bins = (key.bins(whole(events.table.column(column)).take(rows)), coarse.bins(values))
    sizes = (key.size, coarse.size)
    counted = _counted(seen, bins, sizes)
    shares = _smoothed(counted, np.broadcast_to(all_keys, sizes))
    if _apart(shares, np.broadcast_to(all_keys, sizes), counted[0]) < DIFFERENT:
        return None
    return Table(pooled.variable, pooled.condition, (key, coarse), shares, mean, by_key=True)


def _apart(shares: Shares, pooled: Shares, draws: Shares) -> float:
    """How far shares by key are from those of all keys, beyond what chance alone would make."""
    chance = 0.8 * np.sqrt(pooled * (1 - pooled) * draws) / (draws + PRIOR_DRAWS)
    beyond = np.maximum(np.abs(shares - pooled) - chance, 0.0)
    return float((beyond * draws).sum() / max(float(draws.sum()), 1e-300))
