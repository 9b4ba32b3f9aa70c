"""The worker's entry in a batch: the record batches of one bucket in, those of its answer out.

One call serves a whole Spark partition, which is one bucket of many keys (or of time slices).
Matches are handed back block by block while matching goes on, so a large answer is never held.
What is held of the rows depends on how many there are:

    within the budget     all of them, matched in one call of the engine
    more, with keys       parts of some keys, spilled and matched one after the other
    one key with more     parts in order, spilled and matched in advances of the engine, which
                          keeps the rows that it still needs; where it cannot, all of them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.execution.engine import make_engine, metrics_row
from spark_cep.udfs.execution.memory import (
    LEAST_BUDGET,
    PART_COST,
    WAITING_COST,
    RowCost,
    check_fits,
    choose_budget,
    free_memory,
    memory_error,
    return_memory,
)
from spark_cep.udfs.program import Program

if TYPE_CHECKING:
    from spark_cep.udfs.events.deadline import Deadline
    from spark_cep.udfs.execution.engine import Engine
    from spark_cep.udfs.execution.row_engine import CompiledRowProgram
    from spark_cep.udfs.execution.shedding import StageBound
    from spark_cep.udfs.execution.spilling import OrderedParts, Part, PartOrder, SpillFile
    from spark_cep.udfs.output import EventOutput, RowOutput
    from spark_cep.udfs.row_program import RowProgram


def run(  # noqa: PLR0913 - what the driver ships
    program: Program | CompiledRowProgram,
    output: EventOutput | RowOutput,
    batches: Iterable[pa.RecordBatch],
    bucket: int,
    scope: str = "",
    *,
    memory: int | None = None,
    bound: StageBound | None = None,
) -> Iterator[pa.RecordBatch]:
    """All matches of the batches, then one row of metrics. An empty bucket gives no row. `scope`:
    within which remote values count as constant. `memory`: bytes that rows and their matching may
    take before rows are spilled; None: a default, less where the system grants little. `bound`:
    when matching stops, whatever was found by then."""
    engine: Engine[Any] | None = None
    try:
        if bound is not None:
            _begin_task(bound)
        batches = iter(batches)
        # What the system grants is looked up for buckets only that are not small.
        read, is_all = read_batches(batches, PART_COST, min(memory or LEAST_BUDGET, LEAST_BUDGET))
        budget = LEAST_BUDGET
        if not is_all:
            budget = choose_budget(memory, free_memory(with_reserved=False))
            more, is_all = read_batches(batches, PART_COST, budget - _cost_of(read))
            read += more
            del more
        if not read:
            return
        engine = make_engine(without_row_limit(program), output, bucket, is_sorted=True)
        engine.open_remotes(scope)
        matcher = BucketMatcher(_plain_program(program), engine, budget)
        rows = pa.Table.from_batches(read)
        if bound is not None:
            engine.set_deadline(_task_deadline(bound, rows.num_rows if is_all else None))
        # From here on only the matcher holds the rows, so it may let go of them.
        del read
        matches = matcher.match(rows) if is_all else matcher.match_parts(rows, batches)
        del rows
        yield from matches
        engine.end_remotes()
        metrics = {**engine.take_metrics(), **matcher.metrics()}
        yield metrics_row(engine.answer_schema(), metrics)
    except CepError as error:
        raise WorkerError(error) from None
    except MemoryError:
        raise WorkerError(memory_error()) from None
    finally:
        # Also where Spark closes the generator, because it needs no more rows.
        if engine is not None:
            engine.end_remotes()


def _begin_task(bound: StageBound) -> None:
    from spark_cep.udfs.execution.shedding import begin_task  # noqa: PLC0415 - few queries shed

    begin_task(bound.stage, perf_counter())


def _task_deadline(bound: StageBound, rows: int | None) -> Deadline:
    from spark_cep.udfs.execution.shedding import task_deadline  # noqa: PLC0415

    return task_deadline(bound, rows)


def without_row_limit(program: Program | CompiledRowProgram) -> Program | CompiledRowProgram:
    """`Limits.rows` is what a stream may keep; a bucket has all of its rows anyway."""
    if isinstance(program, Program):
        return replace(program, limits=replace(program.limits, rows=None))
    plain = program.program
    return replace(program, program=replace(plain, limits=replace(plain.limits, rows=None)))


def _plain_program(program: Program | CompiledRowProgram) -> Program | RowProgram:
    return program if isinstance(program, Program) else program.program


def read_batches(
    batches: Iterator[pa.RecordBatch], cost: RowCost, most: int
) -> tuple[list[pa.RecordBatch], bool]:
    """The next batches until they cost more than `most`, and whether these were all."""
    read: list[pa.RecordBatch] = []
    total = 0
    while total <= most:
        batch = next(batches, None)
        if batch is None:
            return read, True
        if batch.num_rows:
            read.append(batch)
            total += cost.of(batch.num_rows, batch.nbytes)
    return read, False


def _cost_of(batches: list[pa.RecordBatch]) -> int:
    return sum(PART_COST.of(batch.num_rows, batch.nbytes) for batch in batches)


# Of the budget, for the new rows of an advance, however many rows are kept.
LEAST_NEW_SHARE: Final = 1 / 4


def part_size(budget: int, kept: int) -> int:
    """What the new rows of an advance may cost, if those that are kept for it cost `kept`.

    Kept rows are looked at again in each advance. As many new ones make their number grow by half
    at least, so that each row is looked at a few times, not once for each advance."""
    return max(budget - kept, kept, int(budget * LEAST_NEW_SHARE))


class BucketMatcher:
    """Matches the rows of one bucket with one engine, within a budget of memory."""

    def __init__(self, program: Program | RowProgram, engine: Engine[Any], budget: int) -> None:
        self._program = program
        self._engine = engine
        self._budget = budget
        # The slice of time is a key, but none of the user's.
        is_sliced = isinstance(program, Program) and program.home is not None
        self._named_keys = program.keys[:-1] if is_sliced else program.keys
        self._parts = self._spilled_rows = self._spilled_bytes = 0

    def metrics(self) -> dict[str, int]:
        """The names of `output.SPILL_METRICS`; nothing where nothing was spilled."""
        if not self._spilled_rows:
            return {}
        return {
            "parts": self._parts,
            "spilled_rows": self._spilled_rows,
            "spilled_bytes": self._spilled_bytes,
        }

    def match(self, rows: pa.Table, key: list[object] | None = None) -> Iterator[pa.RecordBatch]:
        """The matches of rows that are complete, in one call. `key`: theirs, None if they are of
        several."""
        count, key = rows.num_rows, key if self._named_keys else []
        advance = self._engine.advance(self._engine.empty_state(), rows, None)
        del rows
        try:
            yield from advance
        except MemoryError:
            raise memory_error(count, key) from None
        self._parts += 1

    def match_parts(
        self, first: pa.Table, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The matches of more rows than fit. `batches`: those behind `first`."""
        tables = _rows_before(first, read_tables(batches, self._budget))
        del first
        if self._program.keys:
            yield from self._match_by_key(tables, 0)
        else:
            yield from self._match_in_order(tables)

    # ---- parts by key --------------------------------------------------------------------------

    def _match_by_key(self, tables: Iterator[pa.Table], level: int) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.execution.spilling import KeyParts, SpillFile  # noqa: PLC0415

        with SpillFile() as file:
            split = KeyParts(file, self._program.keys, level)
            for rows in tables:
                split.add(rows)
                del rows
            self._count_spilled(file)
            return_memory()
            for group in split.groups(self._budget):
                yield from self._match_group(file, group, level)
                return_memory()

    def _match_group(
        self, file: SpillFile, group: list[Part], level: int
    ) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.execution.spilling import MOST_LEVEL  # noqa: PLC0415

        batches = (file.read(piece) for part in group for piece in part.pieces)
        is_one_key = len(group) == 1 and group[0].has_one_key
        if sum(part.cost for part in group) <= self._budget:
            rows = pa.Table.from_batches(batches)
            matches = self.match(rows, self._key_of(rows) if is_one_key else None)
            del rows
            yield from matches
            return
        # Only a part by itself is above the budget.
        tables = read_tables(batches, self._budget)
        if is_one_key or level == MOST_LEVEL:
            yield from self._match_in_order(tables)
        else:
            yield from self._match_by_key(tables, level + 1)

    # ---- parts in order ------------------------------------------------------------------------

    def _match_in_order(self, tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        """The matches of one key, or of all rows where there is none."""
        from spark_cep.udfs.execution.spilling import OrderedParts, SpillFile  # noqa: PLC0415

        rows = next(tables)
        key = self._key_of(rows)
        order = self._part_order(rows.schema) if self._engine.takes_parts else None
        tables = _rows_before(rows, tables)
        del rows
        if order is None:
            yield from self._match_together(tables, key)
            return
        with SpillFile() as file:
            ordered = OrderedParts(file, order)
            for rows in tables:
                ordered.add(rows)
                del rows
            self._count_spilled(file)
            return_memory()
            yield from self._match_in_advances(ordered, key)

    def _match_in_advances(
        self, ordered: OrderedParts, key: list[object]
    ) -> Iterator[pa.RecordBatch]:
        reader, state = ordered.reader(), self._engine.empty_state()
        horizon: int | float | None = 0
        while horizon is not None:
            kept = PART_COST.of(state.size, state.nbytes)
            rows, horizon = reader.read(part_size(self._budget, kept))
            count = state.size + rows.num_rows
            check_fits(count, state.nbytes + rows.nbytes, key)
            advance = self._engine.advance(state, rows, horizon)
            del rows, state
            try:
                state = yield from advance
            except MemoryError:
                raise memory_error(count, key) from None
            del advance
            self._parts += 1
            return_memory()

    def _match_together(
        self, tables: Iterator[pa.Table], key: list[object]
    ) -> Iterator[pa.RecordBatch]:
        """The matches of rows that have to be held together, if they fit."""
        held, count, nbytes = [], 0, 0
        try:
            for rows in tables:
                held.append(rows)
                count, nbytes = count + rows.num_rows, nbytes + rows.nbytes
                check_fits(count, nbytes, key)
                del rows
        except MemoryError:
            raise memory_error(count, key) from None
        matches = self.match(pa.concat_tables(held), key)
        del held
        yield from matches

    def _part_order(self, schema: pa.Schema) -> PartOrder | None:
        """None: the first order column does not sort as numbers do."""
        from spark_cep.udfs.execution.spilling import (  # noqa: PLC0415
            ArrivalOrder,
            ColumnOrder,
            TimeOrder,
            has_numbers,
        )

        program = self._program
        if not program.orders:
            return ArrivalOrder()
        order = program.orders[0]
        if not has_numbers(schema.field(order.column).type):
            return None
        has_time = isinstance(program, Program) or program.within is not None
        return TimeOrder(order.column) if has_time else ColumnOrder(order)

    def _key_of(self, rows: pa.Table) -> list[object]:
        """The key of rows that have the same, for messages."""
        return [rows.column(column)[0].as_py() for column in self._named_keys]

    def _count_spilled(self, file: SpillFile) -> None:
        self._spilled_rows += file.rows
        self._spilled_bytes += file.nbytes


def read_tables(batches: Iterator[pa.RecordBatch], budget: int) -> Iterator[pa.Table]:
    """The batches in tables that can be sorted within the budget. Who takes one lets go of it
    before asking for the next."""
    is_all = False
    while not is_all:
        read, is_all = read_batches(batches, WAITING_COST, budget)
        if read:
            ready = [pa.Table.from_batches(read)]
            del read
            yield ready.pop()


def _rows_before(rows: pa.Table, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    ready = [rows]
    del rows
    yield ready.pop()
    yield from tables
