"""Rows on the local disk of a worker, in the parts in which they are matched.

A part has the rows of some keys (`KeyParts`), or the next rows in their order (`OrderedParts`).
Rows of a key stay in the order in which they came; where a part sorts them by the first order
column, those that are equal there do. Files have no names, so nothing is left behind however the
worker ends.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.execution.memory import PART_COST
from spark_cep.udfs.values.arrow_values import (
    decimal_words,
    is_plain,
    plain_values,
    to_single_array,
    validity,
)
from spark_cep.udfs.values.codes import encode_words, is_words, order_floats

if TYPE_CHECKING:
    from types import TracebackType

    from spark_cep.udfs.program import Order
    from spark_cep.udfs.values.arrow_values import Array

Hashes = npt.NDArray[np.uint64]


# ---- the file ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """A record batch in the file. `low`, `high`: the places of its rows in their order."""

    offset: int
    nbytes: int
    rows: int
    low: int | float = 0
    high: int | float = 0

    @property
    def cost(self) -> int:
        return PART_COST.of(self.rows, self.nbytes)


class SpillFile:
    """Record batches of one schema in a file without a name, gone when it is closed."""

    def __init__(self) -> None:
        self.rows = self.nbytes = 0
        self._schema: pa.Schema | None = None
        self._descriptor = _open_file()

    def __enter__(self) -> SpillFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def write(self, batch: pa.RecordBatch, low: int | float = 0, high: int | float = 0) -> Piece:
        self._schema = batch.schema
        content = memoryview(batch.serialize())
        piece = Piece(self.nbytes, len(content), batch.num_rows, low, high)
        try:
            while content:
                content = content[os.pwrite(self._descriptor, content, self.nbytes) :]
                self.nbytes = piece.offset + piece.nbytes - len(content)
        except OSError as error:
            raise _disk_error("rows cannot be written to", error) from error
        self.rows += piece.rows
        return piece

    def read(self, piece: Piece) -> pa.RecordBatch:
        content = pa.allocate_buffer(piece.nbytes)
        rest, at = memoryview(content), piece.offset
        try:
            while rest:
                count = os.preadv(self._descriptor, [rest], at)
                if not count:
                    raise OSError(f"the file ends at byte {at}")
                rest, at = rest[count:], at + count
        except OSError as error:
            raise _disk_error("rows cannot be read back from", error) from error
        return pa.ipc.read_record_batch(content, self._schema)


def spill_directories() -> list[str]:
    """Spark's local directories, in any order, as pyspark's own shuffle uses them."""
    named = [each for each in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if each]
    return random.sample(named, len(named)) or [tempfile.gettempdir()]


def _open_file() -> int:
    failed: OSError | None = None
    for directory in spill_directories():
        try:
            descriptor, name = tempfile.mkstemp(prefix="spark-cep-", dir=directory)
        except OSError as error:
            failed = error
            continue
        with suppress(OSError):
            os.unlink(name)
        return descriptor
    assert failed is not None
    raise _disk_error("no file can be made in", failed) from failed


def _disk_error(what: str, error: OSError) -> CepError:
    where = ", ".join(spill_directories())
    return CepError(
        f"{what} the local disk of a worker ({where}): {error.strerror or error}",
        hint="free disk space there, or set spark.local.dir to larger disks; with more memory "
        "(spark.cep.memory) or more partitions a worker spills less",
        details={"directories": where},
    )


# ---- parts by key --------------------------------------------------------------------------------


# Each level of splitting takes so many bits of the hash.
SPLIT_BITS: Final = 5
HASH_BITS: Final = 64
MOST_LEVEL: Final = HASH_BITS // SPLIT_BITS - 1


@dataclass
class Part:
    """The rows of some keys. `low`, `high`: the smallest and the largest hash of a key."""

    pieces: list[Piece] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0
    low: int = (1 << HASH_BITS) - 1
    high: int = 0

    @property
    def cost(self) -> int:
        return PART_COST.of(self.rows, self.nbytes)

    @property
    def has_one_key(self) -> bool:
        """Two keys of one hash would still be matched right, only not one by one."""
        return self.low == self.high

    def add(self, piece: Piece, low: int, high: int) -> None:
        self.pieces.append(piece)
        self.rows += piece.rows
        self.nbytes += piece.nbytes
        self.low, self.high = min(self.low, low), max(self.high, high)


class KeyParts:
    """Rows split by a hash of their keys. `level`: how often they were split before."""

    def __init__(self, file: SpillFile, keys: Sequence[int], level: int = 0) -> None:
        self._file = file
        self._keys = keys
        self._shift = np.uint64(HASH_BITS - SPLIT_BITS * (level + 1))
        self.parts = [Part() for _ in range(1 << SPLIT_BITS)]

    def add(self, table: pa.Table) -> None:
        hashes = hash_keys([table.column(key) for key in self._keys])
        number = (hashes >> self._shift & np.uint64(len(self.parts) - 1)).astype(np.uint8)
        order = np.argsort(number, kind="stable")
        ends = np.cumsum(np.bincount(number, minlength=len(self.parts))).tolist()
        sorted_hashes = hashes[order]
        rows = _single_batch(table.take(pa.array(order)))
        for part, begin, end in zip(self.parts, [0, *ends], ends, strict=False):
            if begin < end:
                here = sorted_hashes[begin:end]
                piece = self._file.write(rows.slice(begin, end - begin))
                part.add(piece, int(here.min()), int(here.max()))

    def groups(self, most: int) -> Iterator[list[Part]]:
        """The parts that have rows; small ones together, as far as they cost at most `most`."""
        group: list[Part] = []
        for part in self.parts:
            if group and sum(each.cost for each in group) + part.cost > most:
                yield group
                group = []
            if part.rows:
                group.append(part)
        if group:
            yield group


def _single_batch(table: pa.Table) -> pa.RecordBatch:
    arrays = [to_single_array(column) for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, names=table.column_names)


# ---- a hash of keys ------------------------------------------------------------------------------


_NULL_HASH: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTORS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_NAN_BITS: Final = np.float64("nan").view(np.int64)


def hash_keys(columns: Sequence[pa.ChunkedArray | pa.Array]) -> Hashes:
    """Equal for rows whose keys `key_codes` makes equal, whatever table they are in."""
    return _combine([_hash_column(to_single_array(column)) for column in columns])


def _combine(hashes: Sequence[Hashes]) -> Hashes:
    combined = hashes[0]
    for each in hashes[1:]:
        combined = _mix(combined * np.uint64(31) + each)
    return combined


def _mix(values: Hashes) -> Hashes:
    """The finalizer of splitmix64: every bit depends on every bit."""
    mixed = values + _NULL_HASH
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FACTORS[0]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _FACTORS[1]
    found: Hashes = mixed ^ (mixed >> np.uint64(31))
    return found


def _hash_column(array: pa.Array) -> Hashes:
    found, valid = _hash_values(array), validity(array)
    return found if valid is None else np.where(valid, found, _NULL_HASH)


def _hash_values(array: pa.Array) -> Hashes:
    """Arbitrary under NULL."""
    type_ = array.type
    if is_words(type_):
        indices, words = encode_words(array)
        of_words = pd.util.hash_array(words.to_numpy(zero_copy_only=False), categorize=False)
        found: Hashes = np.append(of_words, _NULL_HASH)[
            pc.fill_null(indices, len(words)).to_numpy()
        ]
        return found
    if pa.types.is_decimal(type_):
        low, high = decimal_words(array)
        return _combine([_mix(low.astype(np.uint64)), _mix(high.astype(np.uint64))])
    if is_plain(type_):
        return _mix(_to_bits(plain_values(array)))
    if pa.types.is_struct(type_):
        return _combine([np.zeros(len(array), np.uint64), *map(_hash_column, array.flatten())])
    if isinstance(array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        return _hash_lists(array)
    # Not split: the engine says that it cannot group such values.
    return np.zeros(len(array), np.uint64)


def _to_bits(values: Array) -> Hashes:
    """Equal for what is equal in SQL: one NaN, one zero."""
    if values.dtype.kind != "f":
        return values.astype(np.int64).view(np.uint64)
    bits = (values.astype(np.float64) + 0.0).view(np.int64)
    return np.where(np.isnan(values), _NAN_BITS, bits).view(np.uint64)


def _hash_lists(array: pa.Array) -> Hashes:
    elements = _hash_column(array.flatten())
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    place = np.arange(len(elements)) - np.repeat(ends - lengths, lengths)
    # A sum that wraps around: the difference of two is right again.
    sums = np.append(np.uint64(0), np.cumsum(_mix(elements + _mix(place.astype(np.uint64)))))
    return _combine([_mix(lengths.astype(np.uint64)), sums[ends] - sums[ends - lengths]])


# ---- parts in order ------------------------------------------------------------------------------


# Smaller pieces waste less where runs overlap: of each run, the piece in which a part ends is read
# again for the next part.
PIECE_BYTES: Final = 1 << 18
_INT64: Final = np.iinfo(np.int64)


class PartOrder(Protocol):
    """Places rows by a number. Rows of one number are in one part."""

    def places(self, rows: pa.Table | pa.RecordBatch) -> tuple[Array, Array | None]:
        """The numbers, and which rows have one; None: all of them. The others may be anywhere."""


@dataclass(frozen=True)
class TimeOrder:
    """By event time, for an engine that needs to know how far time has come. It ignores rows
    whose time is NULL or NaN."""

    column: int

    def places(self, rows: pa.Table | pa.RecordBatch) -> tuple[Array, Array | None]:
        column = to_single_array(rows.column(self.column))
        times, known = plain_values(column), validity(column)
        if times.dtype.kind == "f" and np.isnan(times).any():
            known = ~np.isnan(times) if known is None else known & ~np.isnan(times)
        return times, known


@dataclass(frozen=True)
class ColumnOrder:
    """By the first order column, as Spark sorts it. The engine sorts by the others."""

    order: Order

    def places(self, rows: pa.Table | pa.RecordBatch) -> tuple[Array, Array | None]:
        column = to_single_array(rows.column(self.order.column))
        values, valid = plain_values(column), validity(column)
        codes = order_floats(values) if values.dtype.kind == "f" else values.astype(np.int64)
        codes = ~codes if self.order.descending else codes
        # The least value may share a part with NULL, the engine tells them apart.
        null = _INT64.min if self.order.nulls_first else _INT64.max
        return (codes if valid is None else np.where(valid, codes, null)), None


class ArrivalOrder:
    """By the order in which rows come."""

    def __init__(self) -> None:
        self._seen = 0

    def places(self, rows: pa.Table | pa.RecordBatch) -> tuple[Array, Array | None]:
        begin, self._seen = self._seen, self._seen + rows.num_rows
        return np.arange(begin, self._seen), None


def has_numbers(type_: pa.DataType) -> bool:
    """Whether the order of this type's values is that of numbers, the same in every table."""
    return bool(is_plain(type_) and plain_values(pa.array([], type_)).dtype.kind in "ifb")


class OrderedParts:
    """Rows sorted by an order. Each table that is added becomes a sorted run of pieces; a part has
    the next rows of all runs."""

    def __init__(self, file: SpillFile, order: PartOrder) -> None:
        self._file = file
        self._order = order
        self._pieces: list[Piece] = []

    def add(self, table: pa.Table) -> None:
        places, known = self._order.places(table)
        if known is not None:
            self._add_anywhere(table.filter(pa.array(~known)), places[known])
            table, places = table.filter(pa.array(known)), places[known]
        if not table.num_rows:
            return
        if (places[1:] < places[:-1]).any():
            order = np.argsort(places, kind="stable")
            table, places = table.take(pa.array(order)), places[order]
        rows = _single_batch(table)
        step = _piece_rows(rows)
        for begin in range(0, len(places), step):
            here = places[begin : begin + step]
            bounds = here[0].item(), here[-1].item()
            self._pieces.append(self._file.write(rows.slice(begin, step), *bounds))

    def reader(self) -> PartReader:
        return PartReader(self._file, self._order, self._pieces)

    def _add_anywhere(self, table: pa.Table, places: Array) -> None:
        """Rows without a place, beside others of the table, so that each part has few of them."""
        if not table.num_rows:
            return
        rows = _single_batch(table)
        step = _piece_rows(rows)
        begins = range(0, table.num_rows, step)
        every = np.linspace(0, len(places) - 1, len(begins)).astype(np.int64)
        for begin, at in zip(begins, every, strict=True):
            place = places[at].item() if len(places) else 0
            self._pieces.append(self._file.write(rows.slice(begin, step), place, place))


class PartReader:
    """Reads the rows in ascending parts."""

    def __init__(self, file: SpillFile, order: PartOrder, pieces: Sequence[Piece]) -> None:
        self._file = file
        self._order = order
        self._pieces = list(pieces)
        # Rows up to this place were read.
        self._read: int | float | None = None

    def read(self, most: int) -> tuple[pa.Table, int | float | None]:
        """The next rows that cost about `most`, and the place up to which they are; None: these
        were the last."""
        horizon = self._choose_horizon(most)
        batches = [
            self._read_piece(piece, horizon)
            for piece in self._pieces
            if horizon is None or piece.low <= horizon
        ]
        self._pieces = (
            [] if horizon is None else [each for each in self._pieces if each.high > horizon]
        )
        self._read = horizon
        return pa.Table.from_batches(batches), horizon

    def _choose_horizon(self, most: int) -> int | float | None:
        cost = np.array([each.cost for each in self._pieces])
        low = np.array([each.low for each in self._pieces])
        high = np.array([each.high for each in self._pieces])
        candidates = np.unique(high)
        # A piece that goes on behind the horizon counts half.
        needed = (_sums_upto(high, cost, candidates) + _sums_upto(low, cost, candidates)) / 2
        at = max(int(np.searchsorted(needed, most, "right")) - 1, 0)
        return None if at == len(candidates) - 1 else candidates[at].item()

    def _read_piece(self, piece: Piece, horizon: int | float | None) -> pa.RecordBatch:
        batch = self._file.read(piece)
        begins_later = self._read is None or piece.low > self._read
        if begins_later and (horizon is None or piece.high <= horizon):
            return batch
        places, _ = self._order.places(batch)
        begin = 0 if self._read is None else int(np.searchsorted(places, self._read, "right"))
        end = len(places) if horizon is None else int(np.searchsorted(places, horizon, "right"))
        return batch.slice(begin, end - begin)


def _piece_rows(rows: pa.RecordBatch) -> int:
    return max(1, PIECE_BYTES * int(rows.num_rows) // max(int(rows.nbytes), 1))


def _sums_upto(values: Array, costs: Array, limits: Array) -> Array:
    """For each limit, the costs of the values up to it."""
    order = np.argsort(values)
    sums = np.append(0, np.cumsum(costs[order]))
    found: Array = sums[np.searchsorted(values[order], limits, "right")]
    return found
