"""The engine of row patterns, and the form in which a row pattern is shipped to it: compiled, so
that no bucket and no trigger compiles it again."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.execution.engine import too_many_rows_error
from spark_cep.udfs.rows.advance import RowAdvance, RowState
from spark_cep.udfs.rows.answer import RowAnswerWriter, bucket_counts
from spark_cep.udfs.rows.compiled import KernelProgram, compile_kernel_program
from spark_cep.udfs.rows.frames import with_every_row
from spark_cep.udfs.rows.leaves import has_anchor
from spark_cep.udfs.rows.table import RowTable
from spark_cep.udfs.task_clock import TaskClock
from spark_cep.udfs.values.tally import ErrorTally

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.events.deadline import Deadline
    from spark_cep.udfs.execution.state import StateHeader, StateStore
    from spark_cep.udfs.output import RowOutput
    from spark_cep.udfs.program import DroppingRule, Order
    from spark_cep.udfs.row_program import RowProgram
    from spark_cep.udfs.rows.gaps.matches import GapSearch
    from spark_cep.udfs.rows.gaps.pattern import GapPattern


@dataclass(frozen=True)
class CompiledRowProgram:
    """`matcher`: for the kernel where `program.matcher` is "walk", else for joins."""

    program: RowProgram
    matcher: KernelProgram | GapPattern

    @property
    def orders(self) -> tuple[Order, ...]:
        return self.program.orders


def compile_row_program(program: RowProgram) -> CompiledRowProgram:
    """Raises PatternError where the program cannot be run."""
    if program.matcher == "walk":
        return CompiledRowProgram(program, compile_kernel_program(program))

    from spark_cep.udfs.rows.gaps.pattern import recognize_gaps  # noqa: PLC0415

    gaps = recognize_gaps(program)
    if isinstance(gaps, str):
        raise CepError(f"the pattern cannot be matched by joins: {gaps}")
    return CompiledRowProgram(program, gaps)


# The state of a bucket is one blob.
_STATE_BLOB: Final = 0


class RowEngine:
    """Implements `Engine`. `is_sorted`: as in `RowAdvance`."""

    def __init__(
        self, compiled: CompiledRowProgram, output: RowOutput, *, is_sorted: bool = False
    ) -> None:
        self._program = compiled.program
        self._matcher = compiled.matcher
        self._output = output
        self._is_sorted = is_sorted
        self._clock = TaskClock(compiled.program.limits.seconds, stopped=True)
        self._metrics: dict[str, int] = {}
        # Of `partitions` in the metrics, those whose rows may still come.
        self._open_partitions = 0
        self._schema: pa.Schema | None = None

    def empty_state(self) -> RowState:
        return RowState()

    def open_remotes(self, scope: str, trigger: str | None = None) -> None:
        """The engine of row patterns looks nothing up: Spark does, before it and behind it."""

    def end_remotes(self) -> None:
        pass

    def set_deadline(self, deadline: Deadline | None) -> None:
        """A row pattern has none: without one match, others would take its rows."""
        assert deadline is None

    def set_dropping(self, rule: DroppingRule | None) -> None:
        """A row pattern has none, for the same reason."""
        assert rule is None

    def advance(
        self,
        state: RowState,
        rows: pa.Table,
        horizon: int | float | None,
        *,
        borrowed: int = 0,
    ) -> Generator[pa.RecordBatch, None, RowState]:
        """`borrowed`: as in `RowAdvance`."""
        return (yield from self._clock.running(self._advance(state, rows, horizon, borrowed)))

    def _advance(
        self, state: RowState, rows: pa.Table, horizon: int | float | None, borrowed: int
    ) -> Generator[pa.RecordBatch, None, RowState]:
        count = rows.num_rows
        if horizon is None:
            # Each reader of a column of several chunks would put them together again.
            rows = rows.combine_chunks()
        tally = ErrorTally(ansi=self._program.ansi)
        search: RowAdvance | GapSearch
        if isinstance(self._matcher, KernelProgram):
            search = RowAdvance(
                self._matcher, state, rows, horizon, tally,
                is_sorted=self._is_sorted, borrowed=borrowed, clock=self._clock,
            )  # fmt: skip
        else:
            assert horizon is None, "joins need the whole input"
            search = self._search_gaps(rows, tally)
        answer = RowAnswerWriter(search.table, self._output)
        blocks = search.blocks()
        if self._program.frame is not None:
            blocks = with_every_row(blocks, search.table.size)
        for block in blocks:
            yield from answer.batches(block)
        self._schema = answer.schema()
        after = search.rest() if isinstance(search, RowAdvance) else self.empty_state()
        self._check_rows(after)
        self._add_metrics(
            {
                "rows": count,
                **bucket_counts(search.table, search.counts, tally),
                "ignored_rows": search.ignored,
            },
            is_open=horizon is not None,
        )
        return after

    def answer_schema(self) -> pa.Schema:
        assert self._schema is not None
        return self._schema

    def take_metrics(self) -> dict[str, Any]:
        taken, self._metrics, self._open_partitions = self._metrics, {}, 0
        spent = round(self._clock.seconds * 1e6)
        slow = int(self._clock.warnings > 0)
        return {**taken, "matching_us": spent, "longest_task_us": spent, "slow_tasks": slow}

    # ---- between the triggers of a stream ------------------------------------------------------

    def load(self, store: StateStore, header: StateHeader) -> RowState:
        if header.horizon is None:
            return self.empty_state()
        state = RowState.from_bytes(store.read(_STATE_BLOB), self._program)
        # Where a trigger changed nothing but the horizon, it wrote the header alone.
        return replace(state, horizon=header.horizon)

    def save(
        self, store: StateStore, header: StateHeader, before: RowState, after: RowState
    ) -> RowState:
        if before.horizon is None or not _has_same_rows(before, after):
            store.write(_STATE_BLOB, after.to_bytes(self._program))
        return after

    def state_metrics(self, header: StateHeader, state: RowState) -> dict[str, int]:
        return {
            "state_rows": state.size,
            "stored_rows": state.size,
            "state_bytes": state.nbytes,
        }

    # ---- matching ------------------------------------------------------------------------------

    @property
    def takes_parts(self) -> bool:
        program = self._program
        # WITHIN needs the time up to which rows have come.
        has_order = program.within is None or not program.orders[0].descending
        # With $ nothing is decided before the end.
        has_end = has_anchor(program.pattern, "end")
        is_whole = has_end or program.frame is not None
        return isinstance(self._matcher, KernelProgram) and has_order and not is_whole

    def _add_metrics(self, counts: dict[str, int], *, is_open: bool) -> None:
        before = self._metrics
        self._metrics = {name: before.get(name, 0) + count for name, count in counts.items()}
        # A partition that was open before is here again.
        self._metrics["partitions"] -= self._open_partitions
        self._open_partitions = counts["partitions"] if is_open else 0

    def _search_gaps(self, rows: pa.Table, tally: ErrorTally) -> GapSearch:
        # Joins need much that the kernel does not.
        from spark_cep.udfs.rows.gaps.matches import GapSearch  # noqa: PLC0415

        assert not isinstance(self._matcher, KernelProgram)
        return GapSearch(self._matcher, RowTable(self._program, rows), tally, self._clock)

    def _check_rows(self, state: RowState) -> None:
        """Without WITHIN a stream keeps as many rows as the user allows."""
        allowed = self._program.limits.rows
        if allowed is None or not state.partitions.num_rows:
            return
        sizes = state.partitions.column("size").to_numpy()
        if sizes.max() <= allowed:
            return
        assert state.rows is not None
        most = int(sizes.argmax())
        row = int(sizes[:most].sum())
        key = [state.rows.column(column)[row].as_py() for column in self._program.keys]
        raise too_many_rows_error(allowed, int(sizes[most]), key)


def _has_same_rows(before: RowState, after: RowState) -> bool:
    """Whether the same rows wait, and for the same searches."""
    if before.rows is None or after.rows is None:
        return before.rows is after.rows
    return bool(before.partitions.equals(after.partitions) and before.rows.equals(after.rows))
