"""One partition of a row pattern, matched by several tasks: each has a range of its order.

    range 0      range 1      range 2      ...     ranges, side by side
    ────►│╌╌╌────────►│╌╌╌────────►│╌╌╌──────
         └border┘     └border┘     └border         borders, one after the other

A range is matched from the first row on at which a search begins whatever was before
(`udfs/rows/cuts.py`). Its rows before that, and those that its last searches leave undecided, are
handed on: they are the borders between ranges, and one task matches all of them. A range without
such a row is handed on as a whole, so the answer never depends on what is found, only the time.

Ranges and borders are matched in the parts that fit into memory, as any partition in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.events.table import drop_null_times
from spark_cep.udfs.execution.engine import metrics_row
from spark_cep.udfs.execution.memory import (
    LEAST_BUDGET,
    PART_COST,
    check_fits,
    choose_budget,
    free_memory,
    memory_error,
    return_memory,
)
from spark_cep.udfs.execution.row_engine import CompiledRowProgram, RowEngine
from spark_cep.udfs.execution.spilling import ColumnOrder, OrderedParts, PartReader, SpillFile
from spark_cep.udfs.execution.worker import (
    part_size,
    read_batches,
    read_tables,
    without_row_limit,
)
from spark_cep.udfs.expressions import BIGINT
from spark_cep.udfs.output import BORDER, TASK
from spark_cep.udfs.program import Order
from spark_cep.udfs.rows.advance import PARTITION_SCHEMA, RowState
from spark_cep.udfs.rows.answer import RowAnswerWriter
from spark_cep.udfs.rows.compiled import KernelProgram
from spark_cep.udfs.rows.cuts import StartFinder
from spark_cep.udfs.rows.leaves import rows_back
from spark_cep.udfs.rows.table import RowTable
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    from spark_cep.udfs.output import RowOutput
    from spark_cep.udfs.row_program import RowProgram


# Beside the columns of the rows of borders: their place in the order, and what they are for.
_PLACE: Final = "place"
_USE: Final = "use"
_RANGE_SHIFT: Final = 40

# The rows before the first fixed start: searches of the ranges before go on here.
_HEAD: Final = 0
# From that start on: such searches look at them, and none begins here.
_SEEN: Final = 1
# The rows that the last searches of a range leave: before the next search, of a match before it,
# and the others.
_PASSED: Final = 2
_COVERED: Final = 3
_TAIL: Final = 4

_BLOB_BYTES: Final = 1 << 20


# ---- rows in order -----------------------------------------------------------------------------


class OrderedRows:
    """The rows of a task in the order of a column, in one part if they fit, else spilled and read
    in parts. A part itself is not sorted."""

    def __init__(
        self, batches: Iterator[pa.RecordBatch], order: Order, memory: int | None, files: ExitStack
    ) -> None:
        read, is_all = read_batches(batches, PART_COST, min(memory or LEAST_BUDGET, LEAST_BUDGET))
        self.budget = LEAST_BUDGET
        if not is_all:
            self.budget = choose_budget(memory, free_memory(with_reserved=False))
            spent = sum(PART_COST.of(batch.num_rows, batch.nbytes) for batch in read)
            more, is_all = read_batches(batches, PART_COST, self.budget - spent)
            read += more
            del more
        self.schema = read[0].schema if read else None
        self._rows: pa.Table | None = pa.Table.from_batches(read) if read and is_all else None
        self._reader: PartReader | None = None
        self._file: SpillFile | None = None
        self._parts = 0
        if not is_all:
            self._file = files.enter_context(SpillFile())
            ordered = OrderedParts(self._file, ColumnOrder(order))
            ordered.add(pa.Table.from_batches(read))
            del read
            for rows in read_tables(batches, self.budget):
                ordered.add(rows)
                del rows
            self._reader = ordered.reader()
            return_memory()

    def read(self, held: int) -> pa.Table | None:
        """The next part, None at the end. `held`: what the rows cost that are kept beside it."""
        if self._reader is None:
            rows, self._rows = self._rows, None
            return rows
        rows, horizon = self._reader.read(part_size(self.budget, held))
        if horizon is None:
            self._reader = None
        self._parts += 1
        return rows

    def metrics(self) -> dict[str, int]:
        file = self._file
        if file is None:
            return {}
        return {"parts": self._parts, "spilled_rows": file.rows, "spilled_bytes": file.nbytes}


def _open_horizon(program: RowProgram) -> int | float:
    """Before every time: more rows come, and nothing is known of their time but their order."""
    is_float = bool(program.orders) and program.orders[0].type.kind == "float"
    return -math.inf if is_float else -(1 << 63)


def _make_engine(compiled: CompiledRowProgram, output: RowOutput) -> RowEngine:
    limited = without_row_limit(compiled)
    assert isinstance(limited, CompiledRowProgram)
    return RowEngine(limited, output, is_sorted=True)


def _held_cost(state: RowState) -> int:
    return PART_COST.of(state.size, state.nbytes)


# ---- the rows of borders -----------------------------------------------------------------------


@dataclass(frozen=True)
class _BorderRows:
    rows: pa.Table
    use: int


def _pack_border(border: _BorderRows, place: int) -> Iterator[bytes]:
    rows = border.rows
    step = max(1, _BLOB_BYTES * rows.num_rows // max(rows.nbytes, 1))
    for begin in range(0, rows.num_rows, step):
        part = rows.slice(begin, step).combine_chunks()
        count = part.num_rows
        part = part.append_column(_PLACE, pa.array(np.arange(place + begin, place + begin + count)))
        part = part.append_column(_USE, pa.array(np.full(count, border.use, np.int8)))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
        yield sink.getvalue().to_pybytes()


def _has_borders(batch: pa.RecordBatch) -> bool:
    blobs = batch.column(batch.schema.get_field_index(BORDER))
    return bool(blobs.null_count < len(blobs))


def _unpack_borders(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for blob in batch.column(batch.schema.get_field_index(BORDER)):
            with pa.ipc.open_stream(blob.as_buffer()) as reader:
                yield from reader.read_all().to_batches()


# ---- ranges ------------------------------------------------------------------------------------


def match_range(  # noqa: PLR0913 - what the driver ships
    compiled: CompiledRowProgram,
    output: RowOutput,
    batches: Iterable[pa.RecordBatch],
    number: int,
    ranges: int,
    *,
    memory: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The matches of range `number` that need no other one, then its counts, with the rows for the
    borders in between. The answer has two columns more, TASK and BORDER."""
    try:
        with ExitStack() as files:
            parts = OrderedRows(iter(batches), compiled.orders[0], memory, files)
            if parts.schema is None:
                return
            matcher = RangeMatcher(compiled, output)
            schema = _answer_schema(compiled.program, output, parts.schema)
            place = number << _RANGE_SHIFT
            for found in matcher.match(parts):
                if isinstance(found, pa.RecordBatch):
                    yield _in_range(found, number)
                    continue
                for blob in _pack_border(found, place):
                    yield _border_row(schema, blob, ranges)
                place += found.rows.num_rows
            counts = metrics_row(schema, {**matcher.metrics(), **parts.metrics()})
            yield _in_range(counts, number)
    except CepError as error:
        raise WorkerError(error) from None
    except MemoryError:
        raise WorkerError(memory_error()) from None


def _answer_schema(program: RowProgram, output: RowOutput, shipped: pa.Schema) -> pa.Schema:
    return RowAnswerWriter(RowTable(program, shipped.empty_table()), output).schema()


def _in_range(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    count = batch.num_rows
    more = [pa.array(np.full(count, number, np.int32)), pa.nulls(count, pa.binary())]
    names = [*batch.schema.names, TASK, BORDER]
    return pa.RecordBatch.from_arrays([*batch.columns, *more], names=names)


def _border_row(schema: pa.Schema, blob: bytes, task: int) -> pa.RecordBatch:
    columns = [pa.nulls(1, type_) for type_ in schema.types]
    more = [pa.array([task], pa.int32()), pa.array([blob], pa.binary())]
    return pa.RecordBatch.from_arrays([*columns, *more], names=[*schema.names, TASK, BORDER])


class RangeMatcher:
    """Matches the rows of one range, from its first fixed start to its last decided search."""

    def __init__(self, compiled: CompiledRowProgram, output: RowOutput) -> None:
        assert isinstance(compiled.matcher, KernelProgram)
        self._program = compiled.program
        self._finder = StartFinder(compiled.matcher)
        self._engine = _make_engine(compiled, output)
        self._back = rows_back(compiled.program)
        self._horizon = _open_horizon(compiled.program)
        self._rows = self._ignored = 0

    def metrics(self) -> dict[str, Any]:
        """The rows are counted here, the partition where the borders are matched."""
        own = {"rows": self._rows, "ignored_rows": self._ignored, "partitions": 0}
        return {**self._engine.take_metrics(), **own}

    def match(self, parts: OrderedRows) -> Iterator[pa.RecordBatch | _BorderRows]:
        state: RowState | None = None
        waiting: pa.Table | None = None
        while True:
            rows = parts.read(0 if state is None else _held_cost(state))
            if rows is None:
                break
            rows = self._sorted(rows)
            if state is None:
                if waiting is not None:
                    rows = pa.concat_tables([waiting, rows])
                start = self._finder.find(rows)
                if start is None:
                    known = max(rows.num_rows - self._finder.overlap, 0)
                    yield _BorderRows(rows.slice(0, known), _HEAD)
                    waiting = rows.slice(known)
                    continue
                waiting = None
                begin, back = start.begin, min(start.begin, self._back)
                yield _BorderRows(rows.slice(0, begin), _HEAD)
                yield _BorderRows(rows.slice(begin, start.seen - begin), _SEEN)
                state = _state_before(rows.slice(begin - back, back))
                rows = rows.slice(begin)
            check_fits(state.size + rows.num_rows, state.nbytes + rows.nbytes, [])
            advance = self._engine.advance(state, rows, self._horizon)
            del rows, state
            state = yield from advance
            return_memory()
        if state is not None:
            yield from _tail_of(state)
        elif waiting is not None:
            yield _BorderRows(waiting, _HEAD)

    def _sorted(self, rows: pa.Table) -> pa.Table:
        self._rows += rows.num_rows
        if self._program.within is not None:
            known = drop_null_times(self._program, rows)
            self._ignored += rows.num_rows - known.num_rows
            rows = known
        order = RowTable(self._program, rows).permutation
        return rows if order is None else rows.take(pa.array(order))


def _state_before(rows: pa.Table, covered: int = 0) -> RowState:
    """The state in which the next search begins behind these rows, and so many rows from there on
    are those of a match."""
    columns = {
        "size": rows.num_rows, "begin": rows.num_rows, "covered": covered, "number": 0, "dropped": 1
    }  # fmt: skip
    arrays = [pa.array([columns[name]], pa.int64()) for name in PARTITION_SCHEMA.names]
    return RowState(rows, pa.Table.from_arrays(arrays, schema=PARTITION_SCHEMA), 0)


def _tail_of(state: RowState) -> Iterator[_BorderRows]:
    assert state.rows is not None
    begin, covered = (state.partitions.column(name)[0].as_py() for name in ("begin", "covered"))
    rows = state.rows
    yield _BorderRows(rows.slice(0, begin), _PASSED)
    yield _BorderRows(rows.slice(begin, covered), _COVERED)
    yield _BorderRows(rows.slice(begin + covered), _TAIL)


# ---- borders -----------------------------------------------------------------------------------


def match_borders(
    compiled: CompiledRowProgram,
    output: RowOutput,
    batches: Iterable[pa.RecordBatch],
    *,
    memory: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Passes on the answer of ranges, and matches the rows of borders, which are all in one task.
    The columns that only ranges have are left out."""
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        return
    given = chain([first], batches)
    if not _has_borders(first):
        del first
        yield from map(_without_range_columns, given)
        return
    del first
    try:
        with ExitStack() as files:
            rows = _unpack_borders(given)
            head = next(rows)
            names = head.schema.names
            order = Order(names.index(_PLACE), BIGINT)
            parts = OrderedRows(chain([head], rows), order, memory, files)
            schema = _answer_schema(
                compiled.program, output, pa.schema(list(head.schema)[: -len((_PLACE, _USE))])
            )
            del head
            matcher = BorderMatcher(compiled, output)
            yield from matcher.match(parts)
            yield metrics_row(schema, {**matcher.metrics(), **parts.metrics()})
    except CepError as error:
        raise WorkerError(error) from None
    except MemoryError:
        raise WorkerError(memory_error()) from None


def _without_range_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name not in (TASK, BORDER)])


class BorderMatcher:
    """Matches the rows that ranges handed on. What the searches of one range leave, and the rows
    up to the next fixed start, are one run of the engine."""

    def __init__(self, compiled: CompiledRowProgram, output: RowOutput) -> None:
        self._engine = _make_engine(compiled, output)
        self._horizon = _open_horizon(compiled.program)
        self._rows = 0
        self._begin_run()

    def _begin_run(self) -> None:
        self._state: RowState | None = RowState()
        # What the next advance gets, by use.
        self._passed: list[pa.Table] = []
        self._covered = 0
        self._fresh: list[pa.Table] = []
        self._seen: list[pa.Table] = []

    def metrics(self) -> dict[str, Any]:
        own = {"rows": 0, "ignored_rows": 0, "partitions": 1, "border_rows": self._rows}
        return {**self._engine.take_metrics(), **own}

    def match(self, parts: OrderedRows) -> Iterator[pa.RecordBatch]:
        use = _HEAD
        while True:
            rows = parts.read(0 if self._state is None else _held_cost(self._state))
            if rows is None:
                break
            self._rows += rows.num_rows
            for use, run in self._runs(rows):
                yield from self._take(run, use)
                del run
            del rows
            # Of the other uses more rows may come, which belong to these.
            if use in (_HEAD, _TAIL):
                yield from self._advance(self._horizon)
            return_memory()
        yield from self._advance(None)

    def _runs(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """The rows in order, in runs of the same use."""
        place, use = (to_single_array(rows.column(name)).to_numpy() for name in (_PLACE, _USE))
        if (place[1:] < place[:-1]).any():
            order = np.argsort(place)
            rows, use = rows.take(pa.array(order)), use[order]
        rows = rows.select(rows.column_names[: -len((_PLACE, _USE))])
        bounds = [0, *(np.flatnonzero(use[1:] != use[:-1]) + 1).tolist(), len(use)]
        for begin, end in pairwise(bounds):
            yield int(use[begin]), rows.slice(begin, end - begin)

    def _take(self, rows: pa.Table, use: int) -> Iterator[pa.RecordBatch]:
        if self._seen and use != _SEEN:
            # The first rows of a tail: all up to the fixed start of its range is there.
            yield from self._advance(self._horizon)
            self._begin_run()
        if use == _SEEN:
            self._seen.append(rows)
        elif use == _PASSED:
            self._passed.append(rows)
        else:
            self._covered += rows.num_rows if use == _COVERED else 0
            self._fresh.append(rows)

    def _advance(self, horizon: int | float | None) -> Iterator[pa.RecordBatch]:
        """All rows that wait; None: no others come."""
        waiting = [*self._passed, *self._fresh, *self._seen]
        state = self._state
        assert state is not None
        if self._passed or self._covered:
            passed = [waiting[0].slice(0, 0), *self._passed]
            state = _state_before(pa.concat_tables(passed), self._covered)
        nothing = [table.slice(0, 0) for table in (*waiting[:1], state.rows) if table is not None]
        if not nothing:
            return
        borrowed = sum(rows.num_rows for rows in self._seen)
        rows = pa.concat_tables([nothing[0], *self._fresh, *self._seen])
        self._passed, self._covered, self._fresh, self._seen, self._state = [], 0, [], [], None
        del waiting
        check_fits(state.size + rows.num_rows, state.nbytes + rows.nbytes, [])
        advance = self._engine.advance(state, rows, horizon, borrowed=borrowed)
        del rows, state
        self._state = yield from advance
