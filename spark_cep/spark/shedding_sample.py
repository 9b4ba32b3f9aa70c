"""What shedding reads of a batch before it chooses: one job, in which each row is looked at once.

    all rows -> those of a few stretches of time of some keys, so that rows of one match are there
                together: worth is learned from them
             -> rows drawn at random, wherever they are: they tell how many rows there are, and at
                which score as many stay as are wanted

Both are chosen by hashes below a bound, without a sort, a shuffle or a word between tasks. How many
rows there are is not known before, so the bounds are guesses from the bytes of the input, on the
loose side, and the driver cuts what came to the rows that a guess has no part in: the lowest
hashes. Where a guess was too tight, the rows are read once more. So the same input gives the same
sample, however it is partitioned and stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_cep.planner.layout import WINDOWS_PER_SLICE
from spark_cep.planner.statistics import needed_columns, with_all_columns
from spark_cep.spark import prepare
from spark_cep.spark.row_hashes import (
    TIME,
    as_number,
    block_hash,
    event_time,
    hashable_columns,
    numbers_of,
    row_hash,
    shares_of,
)
from spark_cep.spark.source import input_bytes, row_bytes
from spark_cep.spark.typing import type_of
from spark_cep.spark.versions import collect_arrow
from spark_cep.udfs.shedding.blocks import (
    ENOUGH_BLOCKS,
    STRETCHES,
    choose_stretch,
    has_most_keys,
)
from spark_cep.udfs.shedding.learning import RowSample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from spark_cep.events.compiled import CompiledEventQuery
    from spark_cep.shed import Shed
    from spark_cep.spark.source import SourceFrame
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.program import Program

    Numbers = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]


# Rows of whole stretches: enough for draws in the bins of rare values.
SAMPLE_ROWS = 50_000
# A sample whose stretches have so many times as many rows is thinned.
_THINNED_FROM = 2.0
_THINNED_TO = 1.5
# Rows of stretches that are enough if they were drawn anyway.
_ENOUGH_THINNED = 10_000
# Rows drawn at random, at least and at most. A threshold that they show keeps a share of the rows
# that differs from the one wanted by this part of it, for all but one in 370 inputs.
LEAST_DRAWN, MOST_DRAWN = 50_000, 250_000
QUOTA_ERROR = 0.01
_DEVIATIONS = 3.0
# The bytes of a row in files, as a part of what its types have in memory. The stock set in Parquet
# has 17 of 44 bytes.
_FILE_PART = 0.4
# Guesses are looser by this factor.
_LOOSER = 1.3
# The rows that one task gives at the most, where the guess is far off or a stretch huge ...
_MOST_OF_TASK = 1_000_000
# ... and from which size on, or where no size is known, a shuffle bounds the rows of all tasks.
_LARGE_BYTES = 4 << 30
_MOST_ROWS = 400_000
# Bounds after more rows came than that.
_TIGHTER = 64.0
# Two or three are enough, but for inputs that change from one to the next.
_MOST_READS = 8
# Fewer rows than this say little about how many there are.
_FEW = 20

_STRETCH, _HASH, _PLACE = "__cep_stretch", "__cep_hash", "__cep_place"
_BLOCK_OF = "__cep_block_{}"


@dataclass(frozen=True)
class DrawnRows:
    """The rows with a number below `bound`, of numbers in [0, 1), with their tie-breakers (`own`)
    and the hashes of their blocks, by the length of a block in windows."""

    table: pa.Table
    own: Numbers
    blocks: Mapping[int, Numbers]
    bound: float

    @property
    def weight(self) -> float:
        """How many rows each stands for: 1 if these are all rows."""
        return 1 / max(self.bound, 2.0**-53)

    def take(self, here: Flags) -> DrawnRows:
        """Some of them."""
        if here.all():
            return self
        blocks = {windows: hashes[here] for windows, hashes in self.blocks.items()}
        return DrawnRows(self.table.filter(pa.array(here)), self.own[here], blocks, self.bound)


def needed_draws(share: float | None) -> int:
    """How many rows to draw if this share of the rows is to stay, or a share that is not known. If
    more were needed than are drawn at the most, scores are counted in any case."""
    if share is None or not 0 < share < 1:
        return LEAST_DRAWN if share is not None else needed_draws(0.3)
    needed = (_DEVIATIONS / QUOTA_ERROR) ** 2 * (1 - share) / share
    return LEAST_DRAWN if needed > MOST_DRAWN else max(round(1.02 * needed), LEAST_DRAWN)


def meets_quota(drawn: DrawnRows, share: float) -> bool:
    """Whether a threshold that these rows show leaves `share` of all rows, to one percent."""
    if drawn.weight <= 1 or not 0 < share < 1:
        return True
    if not len(drawn.own):
        return False
    # Rows without a difference are drawn together, and stay together.
    _, alike = np.unique(drawn.own, return_counts=True)
    effective = len(drawn.own) ** 2 / float(np.square(alike.astype(np.float64)).sum())
    part = (1 - share) / share * (1 - 1 / drawn.weight)
    return bool(_DEVIATIONS * sqrt(part / effective) <= QUOTA_ERROR)


def draw_rows(
    source: SourceFrame, rows: DataFrame, shipping: CompiledEventQuery, program: Program, shed: Shed
) -> tuple[RowSample, DrawnRows]:
    """The rows to learn from, and those drawn at random. `rows`: candidates with their mask."""
    # Of a stream, the history is read.
    read = shed.history if source.is_streaming and shed.history is not None else source.df
    wanted = needed_draws(shed.keep)
    first = _first_bounds(read, wanted)
    # Few inputs that are not read whole have so few blocks of the first length that another one is
    # needed; these are read once more.
    lengths = STRETCHES if first.all_rows else STRETCHES[:1]
    reader = _Reader(read, rows, shipping, program, shed.seed, lengths)
    drawn, chosen, asked = choose_rows(reader.read, first, wanted)
    if lengths != STRETCHES and chosen.count_blocks(lengths[0], asked) < ENOUGH_BLOCKS:
        reader = replace(reader, lengths=STRETCHES)
        drawn, chosen, asked = choose_rows(reader.read, first, wanted)
    length = choose_stretch(lambda windows: chosen.count_blocks(windows, asked))
    keys = plain_key_types(shipping, rows)
    if asked.stretch < 1 and not has_most_keys(program, chosen.table, chosen.stretch):
        keys = ()
    sample = RowSample(
        chosen.table, 1 / asked.thin, chosen.blocks[length], keys, length, shares_of(chosen.hashes)
    )
    return sample, drawn


def plain_key_types(shipping: CompiledEventQuery, rows: DataFrame) -> tuple[Type, ...]:
    """The types of the keys, if they are shipped as plain values; else empty."""
    if not all(key.plain for key in shipping.keys):
        return ()
    keys = [prepare.shipped_column(shipping.shipment.shipped[c]) for c in shipping.key_columns]
    return tuple(type_of(field.dataType) for field in rows.select(*keys).schema) if keys else ()


# ---- bounds ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounds:
    """The rows of stretches up to a hash, of these only rows with a number below `thin`, and all
    rows with a number below `number`."""

    stretch: float
    number: float
    thin: float = 1.0

    @property
    def all_rows(self) -> bool:
        return self.number >= 1 or (self.stretch >= 1 and self.thin >= 1)

    def looser(self, factor: float) -> Bounds:
        return Bounds(min(self.stretch * factor, 1.0), min(self.number * factor, 1.0))


def _first_bounds(df: DataFrame, wanted: int) -> Bounds:
    """Looser than the size of the input suggests; all rows if that is not known."""
    size = input_bytes(df)
    if size is None:
        return Bounds(1.0, 1.0)
    rows = max(size / (_FILE_PART * max(row_bytes(df.schema), 1)), 1.0)
    return Bounds(SAMPLE_ROWS / rows, wanted / rows).looser(_LOOSER)


def choose_rows(
    read: Callable[[Bounds], ReadRows], first: Bounds, wanted: int
) -> tuple[DrawnRows, ReadRows, Bounds]:
    """`wanted` rows drawn at random, the rows of whole stretches, and the bounds of those. `first`:
    the bounds to begin with, which do not change the result."""
    found = _read_enough(read, first, wanted)
    drawn = found.draw(wanted)
    asked = _stretch_bounds(found.stretch[found.numbers < drawn.bound], drawn.bound)
    if asked.stretch > found.below.stretch and asked.thin > drawn.bound:
        found = read(asked)
    here = np.flatnonzero((found.stretch <= asked.stretch) & (found.numbers < asked.thin))
    # Learning draws rows by their places, and tasks give them in any order.
    in_order = here[np.lexsort((found.hashes[here], found.stretch[here]))]
    return drawn, found.take(in_order), asked


def _read_enough(read: Callable[[Bounds], ReadRows], bounds: Bounds, wanted: int) -> ReadRows:
    """The rows below some bounds, with as many as are `wanted` below that of the number."""
    for _ in range(_MOST_READS):
        found = read(bounds)
        if found.below.number <= 0:
            # A stretch may be huge. Without stretches, rows come in proportion to the bound.
            is_guess = bounds.stretch and bounds.number < 1
            bounds = Bounds(0.0, bounds.number / (1.0 if is_guess else _TIGHTER))
            continue
        drawn = int(np.count_nonzero(found.numbers < found.below.number))
        if drawn >= wanted or found.below.number >= 1:
            return found
        bounds = bounds.looser(_LOOSER * wanted / max(drawn, _FEW))
    return found


def _stretch_bounds(drawn: Numbers, bound: float) -> Bounds:
    """The bounds of the rows to learn from: SAMPLE_ROWS in whole stretches, or in one stretch,
    thinned, if that has many more. `drawn`: the stretches of the rows with a number below
    `bound`."""
    by_stretch = np.sort(drawn[~np.isnan(drawn)])
    if not len(by_stretch):
        return Bounds(1.0, 0.0)
    most = max(SAMPLE_ROWS * bound / len(by_stretch), float(by_stretch[0]))
    here = int(np.searchsorted(by_stretch, most, side="right"))
    rows = here / bound
    if rows <= _THINNED_FROM * SAMPLE_ROWS:
        return Bounds(most, 0.0)
    thin = _THINNED_TO * SAMPLE_ROWS / rows
    if thin <= bound or here < _ENOUGH_THINNED:
        return Bounds(most, 0.0, thin)
    # What was drawn of them is enough.
    at = min(SAMPLE_ROWS, len(by_stretch)) - 1
    return Bounds(max(most, float(by_stretch[at])), 0.0, bound)


# ---- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadRows:
    """Rows with all columns of the program. `stretch`: the hash of the stretch of time that each
    is in; NaN without an event time. `below`: the bounds up to which no row is missing."""

    table: pa.Table
    hashes: npt.NDArray[np.int64]
    stretch: Numbers
    blocks: Mapping[int, Numbers]
    below: Bounds

    @cached_property
    def numbers(self) -> Numbers:
        return numbers_of(self.hashes)

    def count_blocks(self, windows: int, asked: Bounds) -> float:
        """How many blocks of this length the input is expected to have, if these are the rows up to
        the bounds."""
        return len(np.unique(self.blocks[windows])) / min(asked.stretch, 1.0)

    def take(self, here: npt.NDArray[np.int64]) -> ReadRows:
        blocks = {windows: hashes[here] for windows, hashes in self.blocks.items()}
        table = self.table.take(pa.array(here))
        return ReadRows(table, self.hashes[here], self.stretch[here], blocks, self.below)

    def draw(self, wanted: int) -> DrawnRows:
        """The `wanted` rows of the lowest numbers, or all rows if there are no more."""
        numbers = self.numbers[self.numbers < self.below.number]
        bound = self.below.number
        if len(numbers) > wanted:
            bound = float(np.partition(numbers, wanted)[wanted])
        some = self.take(np.flatnonzero(self.numbers < bound))
        return DrawnRows(some.table, shares_of(some.hashes), some.blocks, bound)


@dataclass(frozen=True)
class _Reader:
    """Reads rows below bounds, of `rows`, which are made from those of `df`. `lengths`: of the
    stretches whose blocks are wanted."""

    df: DataFrame
    rows: DataFrame
    shipping: CompiledEventQuery
    program: Program
    seed: int
    lengths: tuple[int, ...]

    def read(self, bounds: Bounds) -> ReadRows:
        """The rows below the bounds, as one job."""
        bounds = Bounds(1.0, 1.0) if bounds.all_rows else bounds
        rows, most = self._bounded(self._below(bounds))
        hashes = {n: block_hash(self.shipping, self.seed, n) for n in self.lengths}
        blocks = [each.column().alias(_BLOCK_OF.format(n)) for n, each in hashes.items()]
        beside = [_STRETCH, _HASH, *(_BLOCK_OF.format(n) for n in self.lengths)]
        places = needed_columns(self.program)
        rows = rows.select("*", *blocks)
        shipped = prepare.select_places(rows, self.shipping.shipment, places, beside)
        found = collect_arrow(shipped).combine_chunks()
        read = ReadRows(
            with_all_columns(self.program, found),
            found.column(_HASH).to_numpy(),
            found.column(_STRETCH).to_numpy(),
            {n: found.column(_BLOCK_OF.format(n)).to_numpy() for n in self.lengths},
            bounds,
        )
        if found.num_rows < most:
            return read
        # Sorted rows are complete up to the last one, and those of tasks are not at all.
        last = 0.0 if self._is_bounded_by_task else float(read.numbers.max())
        return replace(read, below=Bounds(0.0, min(bounds.number, last)))

    def _below(self, bounds: Bounds) -> DataFrame:
        order, time = self.shipping.compiled.orders[0], event_time(self.shipping)
        rows = self.rows.select("*", time.alias(TIME))
        hashed = block_hash(self.shipping, self.seed, WINDOWS_PER_SLICE, "stretch").column()
        # Rows without a time are in no match, and in no stretch. They are drawn, for they are shed.
        stretch = F.when(~prepare.has_no_time(F.col(TIME), order.type), hashed)
        own = row_hash(hashable_columns(self.df.schema), self.seed)
        rows = rows.select("*", stretch.alias(_STRETCH), own.alias(_HASH))
        if bounds.all_rows:
            return rows
        number = as_number(F.col(_HASH))
        here = F.col(_STRETCH) <= bounds.stretch
        if bounds.thin < 1:
            here &= number < bounds.thin
        return rows.filter(F.coalesce(here, F.lit(False)) | (number < bounds.number))

    def _bounded(self, rows: DataFrame) -> tuple[DataFrame, int]:
        """A bounded number of the rows, and from how many on some may be missing."""
        if not self._is_bounded_by_task:
            return rows.orderBy(as_number(F.col(_HASH)), _STRETCH).limit(_MOST_ROWS), _MOST_ROWS
        # Rows are counted from 0 within a task, which the upper bits of the number tell.
        placed = rows.select("*", F.monotonically_increasing_id().alias(_PLACE))
        of_task = F.col(_PLACE).bitwiseAND(F.lit((1 << 33) - 1))
        return placed.filter(of_task < _MOST_OF_TASK), _MOST_OF_TASK

    @cached_property
    def _is_bounded_by_task(self) -> bool:
        size = input_bytes(self.df)
        return size is not None and size < _LARGE_BYTES
