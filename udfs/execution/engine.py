"""What the worker asks of an engine, the same for event patterns and row patterns.

Always holds: any split of the same rows into advances gives the same matches, as long as no row
comes at or before a horizon that has passed.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.output import EventOutput, RowOutput
from spark_cep.udfs.program import Program

if TYPE_CHECKING:
    from spark_cep.udfs.events.deadline import Deadline
    from spark_cep.udfs.execution.row_engine import CompiledRowProgram
    from spark_cep.udfs.execution.state import StateHeader, StateStore
    from spark_cep.udfs.program import DroppingRule


class EngineState(Protocol):
    """What an engine needs of the rows it has seen. `size`: how many rows that is."""

    @property
    def size(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


State = TypeVar("State", bound=EngineState)


class Engine(Protocol[State]):
    """Matches the rows of one bucket: all at once in a batch, trigger by trigger in a stream."""

    def empty_state(self) -> State: ...

    def open_remotes(self, scope: str, trigger: str | None = None) -> None:
        """Says where looked-up values are shared: all of them within `scope`, those that may
        change within one trigger."""

    def end_remotes(self) -> None:
        """Nothing more is looked up: what has not been requested from a source will not be."""

    def set_deadline(self, deadline: Deadline | None) -> None:
        """When the following advances stop matching. Only event patterns have one."""

    def set_dropping(self, rule: DroppingRule | None) -> None:
        """What the following advances drop while matching. Only event patterns have a rule."""

    def advance(
        self, state: State, rows: pa.Table, horizon: int | float | None
    ) -> Generator[pa.RecordBatch, None, State]:
        """Yields the matches that are certain once `rows` have come, and returns the state after
        them. All rows up to the event time `horizon` have come; None: the input has ended."""

    @property
    def takes_parts(self) -> bool:
        """Whether a bucket may come in several advances, each with the next rows in its order,
        and the rows that are kept between them are likely to be few."""

    def answer_schema(self) -> pa.Schema:
        """The columns of the last advance's batches."""

    def take_metrics(self) -> dict[str, Any]:
        """What was counted since they were taken last (`udfs/output.py`)."""

    # ---- between the triggers of a stream ------------------------------------------------------

    def load(self, store: StateStore, header: StateHeader) -> State: ...

    def save(self, store: StateStore, header: StateHeader, before: State, after: State) -> State:
        """Writes what changed, all but the header; returns the state as `load` would."""

    def state_metrics(self, header: StateHeader, state: State) -> dict[str, int]:
        """The size of a saved state (`output.STREAM_METRICS`)."""


def make_engine(
    program: Program | CompiledRowProgram,
    output: EventOutput | RowOutput,
    bucket: int,
    *,
    is_sorted: bool = False,
    joins_on_arrival: bool = False,
) -> Engine[Any]:
    """`is_sorted`: rows come in their order, as in the parts of a batch. `joins_on_arrival`: what
    can be matched when rows arrive is not put off to a later trigger."""
    # Each kind loads libraries that the other does not need.
    if isinstance(program, Program):
        from spark_cep.udfs.execution.event_engine import EventEngine  # noqa: PLC0415

        assert isinstance(output, EventOutput)
        return EventEngine(program, output, bucket, joins_on_arrival=joins_on_arrival)

    from spark_cep.udfs.execution.row_engine import RowEngine  # noqa: PLC0415

    assert isinstance(output, RowOutput)
    return RowEngine(program, output, is_sorted=is_sorted)


def metrics_row(schema: pa.Schema, metrics: Mapping[str, Any]) -> pa.RecordBatch:
    """The row that ends an answer: NULL in every column but the last."""
    # Python's json cannot write the integers of numpy.
    text = json.dumps(metrics, default=int)
    columns = [pa.nulls(1, type_) for type_ in schema.types[:-1]]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array([text], schema.types[-1])], names=schema.names
    )


def too_many_rows_error(allowed: int, held: int, key: list[object]) -> LimitError:
    where = f"partition key {key!r}" if key else "the only partition (no partition_by)"
    return LimitError(
        f"{where} has {held:,} rows that matches to come may need; the limit is {allowed:,}",
        hint="shorten WITHIN or add a partition key, so that fewer rows are held, or raise it: "
        f"limits=cep.Limits(rows={allowed * 10})",
        details={"key": key, "limit": "rows", "allowed": allowed, "reached": held},
    )
