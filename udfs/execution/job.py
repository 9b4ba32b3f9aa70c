"""A streaming query as its workers know it, and the input of one trigger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_cep.udfs.execution.packing import from_blob
from spark_cep.udfs.execution.state import StateHeader, StateIdentity, header_from_bytes

if TYPE_CHECKING:
    from spark_cep.udfs.execution.row_engine import CompiledRowProgram
    from spark_cep.udfs.execution.state import StateStore
    from spark_cep.udfs.output import EventOutput, RowOutput
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.shedding.utility import StreamSheddingSpec


# Before the first watermark no row is late. Far enough from the ends of int64 that the difference
# to any of Spark's times does not overflow.
NO_WATERMARK: Final = -(1 << 62)
MICROSECONDS_PER_MS: Final = 1000


@dataclass(frozen=True)
class StreamJob:
    """`identity`: what the state in a checkpoint is compared with. `token`: the same for all
    triggers of one run of the query, different in every run. `shed`: what may be dropped in
    front of the engine."""

    program: Program | CompiledRowProgram
    output: EventOutput | RowOutput
    schema: pa.Schema
    identity: StateIdentity
    token: str
    shed: StreamSheddingSpec | None = None


@dataclass(frozen=True)
class TriggerInput:
    """What a trigger brings to a bucket. `horizon`: the event time up to which all rows have come
    with this trigger. `scope`, `number`: the query and the trigger within which remote values are
    shared."""

    bucket: int
    blobs: tuple[bytes, ...]
    horizon: int
    scope: str = ""
    number: str | None = None


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as they are stored, every field nullable. A NULL struct has NULL in all its
    fields, also in those that Spark declares as not nullable, and Arrow casts no NULL to such a
    type."""
    return pa.schema([_nullable_field(field) for field in schema])


def _nullable_field(field: pa.Field) -> pa.Field:
    type_ = field.type
    if pa.types.is_struct(type_):
        type_ = pa.struct([_nullable_field(part) for part in type_])
    elif pa.types.is_map(type_):
        key = pa.field("key", _nullable_field(type_.key_field).type, nullable=False)
        type_ = pa.map_(key, _nullable_field(type_.item_field))
    elif pa.types.is_list(type_):
        type_ = pa.list_(_nullable_field(type_.value_field))
    return pa.field(field.name, type_, metadata=field.metadata)


def horizon_of(watermark: int) -> int:
    """Spark's watermark as an event time; it is in milliseconds, and 0 before the first."""
    return watermark * MICROSECONDS_PER_MS if watermark > 0 else NO_WATERMARK


def read_header(job: StreamJob, store: StateStore) -> StateHeader:
    """Raises CepError if the state is another query's."""
    data = store.header()
    return StateHeader(job.identity) if data is None else header_from_bytes(data, job.identity)


def read_rows(job: StreamJob, arrived: TriggerInput) -> pa.Table:
    if not arrived.blobs:
        return job.schema.empty_table()
    # Timestamps arrive labelled with the session's time zone, and are stored without it.
    return pa.concat_tables([from_blob(blob) for blob in arrived.blobs]).cast(job.schema)
