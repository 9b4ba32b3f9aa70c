"""A stream's way through Spark, from prepared rows to the rows that workers give back.

    rows with their bucket -> packed by bucket -> one stateful operator, keyed by bucket -> unpacked

The outer two are plain maps: rows and answers pass the stateful operator as Arrow blobs, exact
whatever their types (`udfs/streaming/packing.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema

from spark_cep.planning.layout import BUCKETS, forced_buckets
from spark_cep.streaming.processor import BLOBS, BucketProcessor
from spark_cep.udfs.streaming.header import identity
from spark_cep.udfs.streaming.job import Job, as_stored

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from spark_cep.shipping.source import Source
    from spark_cep.udfs.output import Output
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.rows.output import RowOutput
    from spark_cep.udfs.rows.program import RowProgram
    from spark_cep.udfs.shedding.spec import StreamShed

_BUCKETS_A_PARTITION = 4
_LEAST_BUCKETS = 8
_MOST_BUCKETS = 64


@dataclass(frozen=True)
class Streamed:
    """What runs in the workers. `fingerprint`: of what it means; `answered`: the schema of its
    answer; `shed`: what may be dropped in front of the engine."""

    program: Program | RowProgram
    output: Output | RowOutput
    fingerprint: str
    answered: StructType
    buckets: int
    shed: StreamShed | None = None


def bucket_count(shuffle_partitions: int, forced: int | None) -> tuple[int, str]:
    """How many buckets, and why. It has to stay the same as long as a checkpoint lives, so it
    must not hang on what the cluster happens to have.

    >>> bucket_count(4, None)
    (16, '4 for each of 4 shuffle partitions')
    >>> bucket_count(200, None)
    (64, 'at most 64, with 200 shuffle partitions')
    """
    if forced is not None:
        return forced, "set by spark.cep.buckets"
    count = _BUCKETS_A_PARTITION * shuffle_partitions
    if _LEAST_BUCKETS <= count <= _MOST_BUCKETS:
        return count, f"{_BUCKETS_A_PARTITION} for each of {shuffle_partitions} shuffle partitions"
    partitions = f"{shuffle_partitions} shuffle partition{'s' * (shuffle_partitions != 1)}"
    if count < _LEAST_BUCKETS:
        return _LEAST_BUCKETS, f"at least {_LEAST_BUCKETS}, with {partitions}"
    return _MOST_BUCKETS, f"at most {_MOST_BUCKETS}, with {partitions}"


def stream_buckets(source: Source, *, has_keys: bool) -> tuple[int, str]:
    forced = source.setting(BUCKETS)
    if not has_keys and not forced:
        return 1, "one partition is one bucket"
    partitions = int(source.setting("spark.sql.shuffle.partitions", "200"))
    return bucket_count(partitions, forced_buckets(forced) if forced else None)


def matched(df: DataFrame, what: Streamed, name: str) -> DataFrame:
    """`df`: the shipped columns and, last, the bucket. `name` is what Spark shows."""
    schema = as_stored(to_arrow_schema(df.drop(df.columns[-1]).schema, timezone="UTC"))
    job = Job(
        what.program,
        what.output,
        schema,
        identity(what.fingerprint, schema, what.buckets),
        uuid.uuid4().hex,
        what.shed,
    )
    blobs = (
        df.mapInArrow(_pack if what.shed is None else _pack_and_note, f"bucket int, {BLOBS}")
        .groupBy("bucket")
        .transformWithStateInPandas(BucketProcessor(job), BLOBS, "append", "eventTime")
    )

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.streaming.packing import unpacked  # noqa: PLC0415

        yield from unpacked(batches)

    unpack.__name__ = unpack.__qualname__ = name
    return blobs.mapInArrow(unpack, what.answered)


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from spark_cep.udfs.streaming.packing import guarded, packed  # noqa: PLC0415

    yield from guarded(packed(batches))


def _pack_and_note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Buckets that may have to shed are told when their trigger began, and how much it brings."""
    import time  # noqa: PLC0415

    from spark_cep.udfs.shedding.arrival import noting  # noqa: PLC0415
    from spark_cep.udfs.streaming.packing import guarded, packed  # noqa: PLC0415

    yield from guarded(packed(batches, noting(time.time())))
