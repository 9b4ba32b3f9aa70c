"""The matcher in steps: rows in as they come, the answers that no later row can change out.

An advance matches the rows up to a horizon behind those that the last one left, with the kernel
that matches a batch. The last known row of a partition is then not its end: a search that asks for
a row behind it, or reads one, is not decided, and waits with its partition for the next advance.
Any split of the same rows gives the same answer. With WITHIN a search is decided at the latest
when the horizon is a window behind its first row.

A search that waits is begun anew in each advance that brings its partition a row. What it found so
far could be kept, but then a state would hold the kernel's ways and marks, and no state could be
read by another release.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs import canonical
from spark_cep.udfs.errors import CepError
from spark_cep.udfs.events.table import column_to_numpy, drop_null_times
from spark_cep.udfs.rows.answer import RowAnswerWriter, bucket_counts
from spark_cep.udfs.rows.compiled import compile_kernel_program
from spark_cep.udfs.rows.leaves import keeps_partitions, rows_back
from spark_cep.udfs.rows.search import KernelSearch
from spark_cep.udfs.rows.table import PartitionEnds, RowTable, SearchProgress
from spark_cep.udfs.values.tally import ErrorTally

if TYPE_CHECKING:
    from spark_cep.udfs.output import RowOutput
    from spark_cep.udfs.row_program import RowProgram
    from spark_cep.udfs.values.arrow_values import Array


# --------------------------------------------------------------------------------------------------
# What an advance over row patterns leaves for the next one, and its form in bytes.
#
# Of each partition the rows that can still be read, and where its next search begins. Bytes are a
# versioned header, then Arrow IPC; nothing is ever unpickled. The header names the program by a
# fingerprint, so the state of another pattern is refused instead of misread.
# --------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class RowState:
    """`rows` None: nothing was seen yet. First the known rows, partition after partition, each in
    its order; then those that came too early. `horizon`: of the last advance."""

    rows: pa.Table | None = None
    partitions: pa.Table = field(default_factory=PARTITION_SCHEMA.empty_table)
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
        """The state, if it is one of this program's; a CepError that says why if it is not."""
        if len(data) < _PREFIX.size:
            raise CepError("the stored state is cut short", hint=_NEW_CHECKPOINT_HINT)
        magic, version, length = _PREFIX.unpack_from(data)
        if magic != _MAGIC:
            raise CepError("these bytes are no state of a row pattern", hint=_NEW_CHECKPOINT_HINT)
        if version != _VERSION:
            raise CepError(
                f"the stored state has format {version}, this release reads format {_VERSION}",
                hint=f"finish the query with the release that wrote it, or {_NEW_CHECKPOINT_HINT}",
            )
        header = _parse_header(data[_PREFIX.size : _PREFIX.size + length])
        if header["program"] != row_program_fingerprint(program):
            raise CepError(
                "the stored state belongs to another pattern or to other columns",
                hint=f"restore the pattern it was made with, or {_NEW_CHECKPOINT_HINT}",
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


@dataclass(frozen=True)
class InputHorizon:
    """How far the input is complete: every row whose first order column is at most `horizon` has
    come. None: all rows known come before all that are still to come. `final`: none is."""

    horizon: int | float | None = None
    final: bool = False


def advance_rows(
    program: RowProgram, output: RowOutput, state: RowState, arrived: pa.Table, up_to: InputHorizon
) -> tuple[list[pa.RecordBatch], RowState]:
    """The batches of `worker.run` for what has become certain, and the state after it."""
    advancing = RowAdvance(program, output, state, arrived, up_to)
    return list(advancing.batches()), advancing.state


class RowAdvance:
    """One advance of a bucket. `batches` is walked through once; `state` is the next state then,
    and the old one before. `late`: rows that came behind the last horizon, and are dropped."""

    def __init__(
        self, program: RowProgram, output: RowOutput, state: RowState, arrived: pa.Table,
        up_to: InputHorizon,
    ) -> None:  # fmt: skip
        if up_to.horizon is not None and (not program.orders or program.orders[0].descending):
            raise CepError(
                "rows that come in steps need a first order column that ascends",
                hint="order by the event time, ascending",
            )
        self._program = program
        self._output = output
        self.state = state
        self._final = up_to.final
        self._horizon = _later_horizon(state.horizon, up_to.horizon)
        fresh = arrived
        if program.within is not None or self._horizon is not None:
            fresh = drop_null_times(program, arrived)
        self._arrived = arrived.num_rows
        self._ignored = arrived.num_rows - fresh.num_rows
        punctual = self._after(fresh, state.horizon)
        self.late = fresh.num_rows - punctual.num_rows
        rows = punctual
        if state.rows is not None:
            rows = pa.concat_tables([state.rows, punctual.cast(state.rows.schema)])
        self._held = rows.num_rows
        known = None if self._final else self._horizon
        self._early = self._after(rows, known) if known is not None else rows.slice(0, 0)
        self._known = self._until(rows, known)

    def batches(self) -> Iterator[pa.RecordBatch]:
        began, handing = time.perf_counter(), 0.0
        program, tally = self._program, ErrorTally(ansi=self._program.ansi)
        table = RowTable(program, self._known)
        standing = restore_progress(self.state, table, is_open=not self._final)
        horizon = None if self._final else self._horizon
        asleep = self._asleep(table, standing, horizon)
        begin = np.where(asleep, table.ends, standing.begin)
        search = KernelSearch(
            compile_kernel_program(program),
            table,
            tally,
            PartitionEnds(replace(standing, begin=begin), horizon),
        )
        table.dropped = standing.dropped
        answer = RowAnswerWriter(table, self._output)
        if not asleep.all():
            for block in search.blocks():
                for batch in answer.batches(block):
                    paused = time.perf_counter()
                    yield batch
                    handing += time.perf_counter() - paused
        after = search.standing
        after = replace(after, begin=np.where(asleep, standing.begin, after.begin))
        self.state = RowState() if self._final else self._rest(table, after)
        counts = {
            **bucket_counts(table, search.counts, tally),
            "rows": self._arrived,
            "ignored_rows": self._ignored,
            "late_rows": self.late,
            "expired_rows": self._held - self.state.size,
            "state_rows": self.state.size,
            "stored_rows": self.state.size,
            "state_bytes": self.state.nbytes,
            "matching_us": round((time.perf_counter() - began - handing) * 1e6),
        }
        yield answer.metrics(counts)

    # ---- which rows there are ------------------------------------------------------------------

    def _times(self, rows: pa.Table) -> Array:
        return column_to_numpy(rows.column(self._program.orders[0].column))

    def _after(self, rows: pa.Table, horizon: int | float | None) -> pa.Table:
        if horizon is None or not rows.num_rows:
            return rows
        return rows.filter(pa.array(np.asarray(self._times(rows) > horizon, np.bool_)))

    def _until(self, rows: pa.Table, horizon: int | float | None) -> pa.Table:
        if horizon is None or not rows.num_rows:
            return rows
        return rows.filter(pa.array(np.asarray(self._times(rows) <= horizon, np.bool_)))

    # ---- which searches wait -------------------------------------------------------------------

    def _asleep(
        self, table: RowTable, standing: SearchProgress, horizon: int | float | None
    ) -> Array:
        """Partitions whose next search would come as far as it did in the last advance."""
        asleep = np.zeros(len(table.begins), np.bool_)
        if self._final or not table.size:
            return asleep
        old = _count_known_rows(self.state)
        asleep = (
            np.bincount(_partition_of(table, np.arange(old, table.size)), minlength=len(asleep))
            == 0
        )
        if self._program.within is not None:
            first = np.minimum(standing.begin, table.size - 1)
            asleep &= (standing.begin >= table.ends) | ~table.passed(horizon)[first]
        return np.asarray(asleep)

    # ---- what is left --------------------------------------------------------------------------

    def _rest(self, table: RowTable, standing: SearchProgress) -> RowState:
        program = self._program
        reach = rows_back(program)
        # The last row stands for the partition's key where no other does.
        kept_from = np.clip(standing.begin - reach, table.begins, table.ends - 1)
        remembered = np.ones(len(kept_from), np.bool_)
        if not keeps_partitions(program):
            remembered = standing.begin < table.ends
        size = np.where(remembered, table.ends - kept_from, 0)
        ends = np.cumsum(size)
        positions = np.arange(size.sum()) + np.repeat(kept_from - (ends - size), size)
        rows = self._known.take(pa.array(table.rows(positions)))
        columns = {
            "size": size,
            "begin": standing.begin - kept_from,
            "covered": np.maximum(standing.covered - standing.begin, 0),
            "number": standing.number,
            "dropped": standing.dropped + kept_from - table.begins,
        }
        arrays = [
            pa.array(columns[name][remembered], pa.int64()) for name in PARTITION_SCHEMA.names
        ]
        return RowState(
            pa.concat_tables([rows, self._early]).combine_chunks(),
            pa.Table.from_arrays(arrays, schema=PARTITION_SCHEMA),
            self._horizon,
        )


def restore_progress(state: RowState, table: RowTable, *, is_open: bool) -> SearchProgress:
    """Where the searches stand in a table whose first rows are the state's."""
    standing = SearchProgress.at_start(table, is_open=is_open)
    old = {name: state.partitions.column(name).to_numpy() for name in PARTITION_SCHEMA.names}
    if not len(old["size"]):
        return standing
    first = np.cumsum(old["size"]) - old["size"]
    part = _partition_of(table, first)
    _check_order(table, part, old["size"])
    standing.begin[part] = table.begins[part] + old["begin"]
    standing.covered[part] = standing.begin[part] + old["covered"]
    standing.number[part] = old["number"]
    standing.dropped[part] = old["dropped"]
    return standing


def _check_order(table: RowTable, part: Array, size: Array) -> None:
    """Rows that came earlier are earlier, or what is decided would be decided otherwise."""
    before = np.repeat(np.cumsum(size) - size, size)
    expected = np.repeat(table.begins[part], size) + np.arange(len(before)) - before
    if (table.rows(expected) != np.arange(len(before))).any():
        raise CepError(
            "rows of a partition came out of their order",
            hint="rows that come later may not be earlier than the horizon of the last advance",
        )


def _partition_of(table: RowTable, rows: Array) -> Array:
    """The partition of each of these rows of the shipped table."""
    position = rows
    if table.permutation is not None:
        inverse = np.empty(table.size, np.int64)
        inverse[table.permutation] = np.arange(table.size)
        position = inverse[rows]
    return np.asarray(np.searchsorted(table.begins, position, "right") - 1)


def _count_known_rows(state: RowState) -> int:
    return int(state.partitions.column("size").to_numpy().sum())


def _later_horizon(a: int | float | None, b: int | float | None) -> int | float | None:
    if a is None or b is None:
        return a if b is None else b
    return max(a, b)
