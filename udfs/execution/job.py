"""What a streaming query is, as its workers know it, and what all its triggers share."""

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


# Before the first watermark no row is late. Far enough from the ends of int64 that the distance
# to any time of Spark can be taken.
NO_WATERMARK: Final = -(1 << 62)
MICROSECONDS_PER_MS: Final = 1000


@dataclass(frozen=True)
class StreamJob:
    """`identity` is what the state in a checkpoint is compared with. `token` is the same for all
    triggers of one run of the query, and for nothing else. `shed`: what may be dropped in front
    of the engine."""

    program: Program | CompiledRowProgram
    output: EventOutput | RowOutput
    schema: pa.Schema
    identity: StateIdentity
    token: str
    shed: StreamSheddingSpec | None = None


@dataclass(frozen=True)
class TriggerInput:
    """What a trigger brings to a bucket. `horizon`: the event time up to which all rows have come
    when the trigger has. `scope` and `number`: within which values of remote sources are kept,
    and within which they do not change."""

    bucket: int
    blobs: tuple[bytes, ...]
    horizon: int
    scope: str = ""
    number: str | None = None


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as they lie in the store, where every field may be NULL: a NULL struct has NULLs
    in all its fields, also in those of which Spark says that they have none, and Arrow casts no
    NULL to such a type."""
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
    """Spark's watermark, in milliseconds and 0 before there is one, as an event time."""
    return watermark * MICROSECONDS_PER_MS if watermark > 0 else NO_WATERMARK


def read_header(job: StreamJob, store: StateStore) -> StateHeader:
    found = store.header()
    return StateHeader(job.identity) if found is None else header_from_bytes(found, job.identity)


def read_rows(job: StreamJob, arrived: TriggerInput) -> pa.Table:
    if not arrived.blobs:
        return job.schema.empty_table()
    # Timestamps carry the session's time zone as a label; in the store they have none of it.
    return pa.concat_tables([from_blob(blob) for blob in arrived.blobs]).cast(job.schema)
