"""Row patterns in steps: rows in as they come, the matches that no later row can change out.

An advance matches the rows up to a horizon behind those that the last one left, with the kernel
that matches a batch. The last known row of a partition is then not its end: a search that needs
a row behind it is not decided, and waits with its partition for the next advance. Any split of
the same rows gives the same answer. With WITHIN a search is decided at the latest when the
horizon is a window behind its first row.

A search that waits begins anew in each advance that brings its partition a row. What it found so
far could be kept, but then a state would hold the kernel's stack and marks, and no other release
could read it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs import canonical
from spark_cep.udfs.errors import CepError
from spark_cep.udfs.events.table import column_to_numpy, drop_null_times
from spark_cep.udfs.rows.leaves import keeps_partitions, rows_back
from spark_cep.udfs.rows.search import KernelSearch, SearchCounts
from spark_cep.udfs.rows.table import PartitionEnds, RowTable, SearchProgress

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import RowProgram
    from spark_cep.udfs.rows.compiled import KernelProgram
    from spark_cep.udfs.rows.search import MatchBlock
    from spark_cep.udfs.task_clock import TaskClock
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally


# ---- the state ---------------------------------------------------------------------------------

_MAGIC: Final = b"SCER"
_VERSION: Final = 2
_PREFIX: Final = struct.Struct("<4sHI")  # magic, version, length of the JSON header
_NEW_CHECKPOINT_HINT: Final = "start from a new checkpoint"

# One row for each partition, in the order of its rows.
PARTITION_SCHEMA: Final = pa.schema(
    [
        ("size", pa.int64()),  # its rows in `rows`
        ("begin", pa.int64()),  # of these, before the next search begins
        ("covered", pa.int64()),  # rows from there on that a match has
        ("number", pa.int64()),  # of its last match
        ("dropped", pa.int64()),  # rows before these, no longer needed
    ]
)


_NO_PARTITIONS: Final = PARTITION_SCHEMA.empty_table()


@dataclass(frozen=True)
class RowState:
    """What an advance leaves for the next: of each partition the rows that can still be read, and
    where its next search begins. `rows`: first those up to the horizon, partition after partition,
    each in its order; then those behind it. None: no rows were seen yet. `horizon`: of the last
    advance.

    Its bytes are a versioned header, then Arrow IPC; nothing is ever unpickled. The header names
    the program by a fingerprint, so the state of another pattern is refused instead of misread."""

    rows: pa.Table | None = None
    partitions: pa.Table = field(default_factory=lambda: _NO_PARTITIONS)
    horizon: int | float | None = None

    @property
    def size(self) -> int:
        return 0 if self.rows is None else self.rows.num_rows

    @property
    def nbytes(self) -> int:
        return 0 if self.rows is None else int(self.rows.nbytes)

    def to_bytes(self, program: RowProgram) -> bytes:
        header = json.dumps(
            {
                "program": row_program_fingerprint(program),
                "horizon": self.horizon,
                "has_rows": self.rows is not None,
            }
        ).encode()
        sink = pa.BufferOutputStream()
        sink.write(_PREFIX.pack(_MAGIC, _VERSION, len(header)))
        sink.write(header)
        for table in (self.partitions, self.rows):
            if table is not None:
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())

    @classmethod
    def from_bytes(cls, data: bytes, program: RowProgram) -> RowState:
        """Raises CepError if the state is another program's, or of another format."""
        if len(data) < _PREFIX.size:
            raise CepError("the stored state is cut short", hint=_NEW_CHECKPOINT_HINT)
        magic, version, length = _PREFIX.unpack_from(data)
        if magic != _MAGIC:
            raise CepError("the bytes are no state of a row pattern", hint=_NEW_CHECKPOINT_HINT)
        if version != _VERSION:
            raise CepError(
                f"the stored state has format {version}, this release reads format {_VERSION}",
                hint=f"continue with the release that wrote it, or {_NEW_CHECKPOINT_HINT}",
            )
        header = _parse_header(data[_PREFIX.size : _PREFIX.size + length])
        if header["program"] != row_program_fingerprint(program):
            raise CepError(
                "the stored state belongs to another pattern or to other columns",
                hint=f"restore the pattern that wrote it, or {_NEW_CHECKPOINT_HINT}",
            )
        try:
            source = pa.BufferReader(pa.py_buffer(data)[_PREFIX.size + length :])
            partitions = _read_table(source)
            rows = _read_table(source) if header["has_rows"] else None
        except (pa.ArrowInvalid, OSError) as error:
            raise CepError("the stored state is cut short", hint=_NEW_CHECKPOINT_HINT) from error
        return cls(rows, partitions, header["horizon"])


def row_program_fingerprint(program: RowProgram) -> str:
    """Equal for programs that mean the same and ship as many columns (`udfs/canonical.py`)."""
    return canonical.fingerprint(canonical.row_program(program))


def _parse_header(data: bytes) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise CepError("the stored state is cut short", hint=_NEW_CHECKPOINT_HINT) from error
    return header


def _read_table(source: pa.BufferReader) -> pa.Table:
    with pa.ipc.open_stream(source) as reader:
        return reader.read_all()


# ---- one advance -------------------------------------------------------------------------------


class RowAdvance:
    """One advance of a bucket by the kernel. `blocks` is walked through once; `rest` is the next
    state then. `state` and `rows`: what the last advance left, and what has come since.
    `is_sorted`: no row of an earlier advance comes behind one of a later advance, whatever the
    order; the horizon is a time only if there is a WITHIN. Partitions are then remembered without
    an undecided row, so that their rows are counted on. `borrowed`: so many of the last rows are
    only looked at; what begins there belongs to another task. Then there is one partition."""

    def __init__(  # noqa: PLR0913 - the engine's inputs
        self,
        kernel: KernelProgram,
        state: RowState,
        rows: pa.Table,
        horizon: int | float | None,
        tally: ErrorTally,
        *,
        is_sorted: bool = False,
        borrowed: int = 0,
        clock: TaskClock | None = None,
    ) -> None:
        program = kernel.program
        is_ascending = bool(program.orders) and not program.orders[0].descending
        if horizon is not None and not is_ascending and not is_sorted:
            raise CepError(
                "matching in steps needs a first order column that ascends",
                hint="order by the event time, ascending",
            )
        self._program = program
        self._state = state
        self._horizon = horizon
        self._is_sorted = is_sorted
        self._borrowed = borrowed
        self._foreign = SearchCounts()
        self._remembers = is_sorted or keeps_partitions(program)
        self.ignored = 0
        needs_time = program.within is not None or not is_sorted
        if needs_time and (state.rows is not None or horizon is not None):
            fresh = drop_null_times(program, rows)
            self.ignored = rows.num_rows - fresh.num_rows
            rows = fresh
        if state.rows is not None:
            rows = pa.concat_tables([state.rows, rows.cast(state.rows.schema)])
        self._known, self._early = self._split_at_horizon(rows)
        self.table = RowTable(program, self._known)
        self.ignored += self.table.ignored
        self._before = restore_progress(state, self.table, is_open=horizon is not None)
        self.table.dropped = self._before.dropped
        self._waits = self._waiting_partitions()
        begin = np.where(self._waits, self.table.ends, self._before.begin)
        ends = PartitionEnds(replace(self._before, begin=begin), horizon)
        self._search = KernelSearch(kernel, self.table, tally, ends, clock)

    @property
    def counts(self) -> SearchCounts:
        return self._search.counts.without(self._foreign)

    def blocks(self) -> Iterator[MatchBlock]:
        if self._waits.all():
            return
        for block in self._search.blocks():
            own = block.before(self.table.size - self._borrowed) if self._borrowed else block
            self._foreign.add_matches(block, len(own))
            yield own

    def rest(self) -> RowState:
        """The rows that later searches can still read, and where these begin."""
        if self._horizon is None:
            return RowState()
        program, table, progress = self._program, self.table, self._search.standing
        begin = np.where(self._waits, self._before.begin, progress.begin)
        # The last row stands for the partition's key where no other does.
        kept_from = np.clip(begin - rows_back(program), table.begins, table.ends - 1)
        remembered = np.ones(len(kept_from), np.bool_)
        if not self._remembers:
            remembered = begin < table.ends
        size = np.where(remembered, table.ends - kept_from, 0)
        ends = np.cumsum(size)
        positions = np.arange(size.sum()) + np.repeat(kept_from - (ends - size), size)
        rows = self._known.take(pa.array(table.rows(positions)))
        columns = {
            "size": size,
            "begin": begin - kept_from,
            "covered": np.maximum(progress.covered - begin, 0),
            "number": progress.number,
            "dropped": progress.dropped + kept_from - table.begins,
        }
        arrays = [
            pa.array(columns[name][remembered], pa.int64()) for name in PARTITION_SCHEMA.names
        ]
        return RowState(
            pa.concat_tables([rows, self._early]).combine_chunks(),
            pa.Table.from_arrays(arrays, schema=PARTITION_SCHEMA),
            self._horizon,
        )

    def _split_at_horizon(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The rows up to the horizon, and those that came before their time."""
        if self._horizon is None or not rows.num_rows or self._is_sorted:
            return rows, rows.slice(0, 0)
        times = column_to_numpy(rows.column(self._program.orders[0].column))
        is_early = np.asarray(times > self._horizon, np.bool_)
        return rows.filter(pa.array(~is_early)), rows.filter(pa.array(is_early))

    def _waiting_partitions(self) -> Array:
        """Partitions whose next search would come as far as it did in the last advance."""
        table, begin = self.table, self._before.begin
        if self._horizon is None or not table.size:
            return np.zeros(len(table.begins), np.bool_)
        old = int(self._state.partitions.column("size").to_numpy().sum())
        came = _partition_of(table, np.arange(old, table.size))
        waits = np.bincount(came, minlength=len(table.begins)) == 0
        if self._program.within is not None:
            first = np.minimum(begin, table.size - 1)
            waits &= (begin >= table.ends) | ~table.closed_windows(self._horizon)[first]
        return np.asarray(waits)


def restore_progress(state: RowState, table: RowTable, *, is_open: bool) -> SearchProgress:
    """How far the searches are in a table whose first rows are the state's. The rows that came
    since are later: all before them were behind the state's horizon."""
    progress = SearchProgress.at_start(table, is_open=is_open)
    if not state.partitions.num_rows:
        return progress
    old = {name: state.partitions.column(name).to_numpy() for name in PARTITION_SCHEMA.names}
    part = _partition_of(table, np.cumsum(old["size"]) - old["size"])
    progress.begin[part] = table.begins[part] + old["begin"]
    progress.covered[part] = progress.begin[part] + old["covered"]
    progress.number[part] = old["number"]
    progress.dropped[part] = old["dropped"]
    return progress


def _partition_of(table: RowTable, rows: Array) -> Array:
    """The partition of each of these rows of the shipped table."""
    position = rows
    if table.permutation is not None:
        inverse = np.empty(table.size, np.int64)
        inverse[table.permutation] = np.arange(table.size)
        position = inverse[rows]
    return np.asarray(np.searchsorted(table.begins, position, "right") - 1)
