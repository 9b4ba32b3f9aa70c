"""Runs a query over a stream: a stateful operator gets the rows of each trigger by bucket.

    shipped rows with their bucket -> packed -> one stateful operator, keyed by bucket -> unpacked

The outer two are plain maps: rows and answers pass the stateful operator as Arrow blobs, exact
whatever their types (`udfs/execution/job.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from spark_cep.errors import CepError, PatternError, PlanError
from spark_cep.expressions.row_grammar import pattern_error
from spark_cep.planner.layout import BUCKETS_CONF, Layout, parse_bucket_count
from spark_cep.remote import Remote, RemoteFunction
from spark_cep.spark.entry import worker_program
from spark_cep.spark.metrics import (
    AnswerRecord,
    keep_record,
    new_answer_number,
    observe_stream_answer,
    observe_stream_lookups,
    observe_stream_shed,
)
from spark_cep.spark.prepare import bucket_column
from spark_cep.spark.processor import BLOB_SCHEMA, BucketProcessor
from spark_cep.spark.projection import MatchFrame
from spark_cep.spark.query import RowObservers
from spark_cep.spark.report import strip_quotes
from spark_cep.spark.source import shuffle_partitions
from spark_cep.spark.versions import arrow_schema, check_streams
from spark_cep.udfs.canonical import fingerprint, with_computed
from spark_cep.udfs.execution.delay import row_keys
from spark_cep.udfs.execution.job import StreamJob, nullable_schema
from spark_cep.udfs.execution.state import make_identity
from spark_cep.udfs.program import Program

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.expressions.problems import Place
    from spark_cep.spark.query import Query
    from spark_cep.spark.source import SourceFrame
    from spark_cep.udfs.program import Limits, Window
    from spark_cep.udfs.row_program import RowProgram


# ---- checks --------------------------------------------------------------------------------------


_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_WATERMARK = "spark.watermarkDelayMs"


def check_watermark(time: StructField | None, order_by: str) -> None:
    """`time`: the first order column as it is shipped; `order_by`: what the user calls it."""
    if time is None:
        raise PatternError(
            "a stream is ordered by its event time, and the pattern has no order_by",
            hint="order_by a TIMESTAMP column that has a watermark",
        )
    order_by = strip_quotes(order_by)
    if time.dataType.typeName() != "timestamp":
        raise PatternError(
            f"a stream is ordered by its event time, and {order_by!r} is "
            f"{_type_text(time.dataType)}",
            hint="order_by a TIMESTAMP column that has a watermark",
        )
    if _WATERMARK not in (time.metadata or {}):
        name = order_by if order_by.isidentifier() else "ts"
        raise PatternError(
            f"the stream has no watermark on {order_by!r}, so no match would ever be final",
            hint=f'df.withWatermark("{name}", "10 seconds") says how late rows may arrive; '
            "order_by that column itself, not an expression over it",
        )


def check_bounded(window: Window | None, limits: Limits) -> None:
    if window is None and limits.rows is None:
        raise PatternError(
            "without WITHIN the stream would have to keep every row forever",
            hint='give the pattern a window, .within("10 minutes"), or limit the rows of a '
            "partition key: limits=cep.Limits(rows=100_000) ends the query where one has more",
        )


def check_consumption(compiled: CompiledPattern) -> None:
    """Refuses a pattern of which every match depends on rows that may still arrive."""
    if compiled.window is None and compiled.consumption == "consume" and compiled.strategy != "any":
        raise PatternError(
            "on a stream no match of this pattern would ever be final: it consumes events, takes "
            "the next row that fits, and has no WITHIN after which no row fits any more",
            hint='give it a window, .within("10 minutes"), or let events be reused',
        )


def check_decidable(why_not: str | None, limits: Limits, place: Place | None = None) -> None:
    """`why_not`: why a search of a row pattern may never end, and the part of PATTERN that says
    so."""
    if why_not is None or (limits.rows is not None and not why_not.startswith("$")):
        return
    if why_not.startswith("$"):
        raise pattern_error(why_not, place, hint="leave out the anchor, or match in batches")
    raise pattern_error(
        f"on a stream a search could wait forever: {why_not}",
        place,
        hint='bound it: .within("10 minutes"), a quantifier with an end such as b{1,100}, or '
        "limits=cep.Limits(rows=100_000), which ends the query where a partition key has more",
    )


def check_max_wait(remotes: Mapping[str, Remote], outside: Collection[str]) -> None:
    """Refuses `max_wait` of sources that are also read outside of the engine, where a row cannot
    be kept for a later trigger. `outside`: their names."""
    for name, remote in remotes.items():
        source = remote.source
        if not isinstance(source, RemoteFunction) or source.max_wait is None:
            continue
        if name in outside:
            raise PatternError(
                f"max_wait of the remote {name!r} has no effect on this stream: measures, row "
                "patterns and conditions that only Spark can evaluate wait for every value",
                hint="leave max_wait out, or look the value up only in conditions that the engine "
                "tests: comparisons, arithmetic, IN",
            )
        if source.strategy == "blocking":
            raise PatternError(
                f'the remote {name!r} has max_wait and the strategy "blocking", which keeps no '
                "value for a later trigger",
                hint='strategy="cached" keeps values',
            )


def check_row_keys(program: Program | RowProgram) -> None:
    """Refuses `max_wait` where a key is known only when several rows are."""
    others = row_keys(program)[1] if isinstance(program, Program) else []
    if others:
        name = program.remotes[others[0].remote].name  # type: ignore[union-attr]
        raise PatternError(
            f"max_wait of the remote {name!r} needs keys that are columns of one row, and a key "
            "here is computed or made of several variables",
            hint="compute the key as a column of the DataFrame, or leave max_wait out",
        )


def prepare_session(df: DataFrame) -> None:
    """Sets the state store that Spark's stateful Python operator needs."""
    if find_spec("google.protobuf") is None:
        raise PlanError(
            "patterns on streams need the package protobuf, which Spark needs to read their state",
            hint="pip install 'spark-cep[streaming]' on the driver and the workers",
        )
    conf: Any = df.sparkSession.conf
    if conf.get(_PROVIDER, "") == _ROCKS_DB:
        return
    try:
        conf.set(_PROVIDER, _ROCKS_DB)
    except Exception as problem:
        raise CepError(
            "patterns on streams need Spark's RocksDB state store, and this session does not "
            f"allow to set it: {problem}",
            hint=f"start the session with {_PROVIDER}={_ROCKS_DB}",
        ) from None


def _type_text(type_: DataType) -> str:
    return str(type_.simpleString()).upper()


_BUCKETS_PER_PARTITION = 4
_MIN_BUCKETS = 8
_MAX_BUCKETS = 64


def run_stream(query: Query) -> DataFrame:
    """The matches, in a streaming DataFrame that knows its plan."""
    check_streams(query.source.df)
    number = new_answer_number()
    query.check_stream()
    prepare_session(query.source.df)
    shipped = query.rows(
        RowObservers(
            partial(observe_stream_lookups, number=number),
            partial(observe_stream_shed, number=number),
        )
    )
    program = query.program()
    check_row_keys(program)
    buckets, reason = _choose_buckets(query.source, has_keys=bool(program.keys))
    layout = Layout(buckets, reason, None, "none: a stream comes in triggers")
    schema = nullable_schema(arrow_schema(shipped.df.schema))
    form = with_computed(query.form(), query.source.computed)
    job = StreamJob(
        worker_program(program),
        query.output,
        schema,
        make_identity(fingerprint(form), schema, buckets),
        uuid.uuid4().hex,
        query.worker_shedding,
    )
    bucket = bucket_column(program.keys, None, buckets).cast("int").alias("bucket")
    found = _match_rows(
        shipped.df.select("*", bucket),
        job,
        query.worker_schema(shipped.df.schema),
        query.title(layout, number),
    )
    counted = partial(observe_stream_answer, number=number)
    matches = query.project(MatchFrame(found, counted, query.remotes), shipped.raw)
    return keep_record(matches, AnswerRecord(number, query.report(layout, number), None, buckets))


def _match_rows(df: DataFrame, job: StreamJob, schema: StructType, title: str) -> DataFrame:
    """What the workers give back for the shipped rows `df`, whose last column is their bucket.
    `title` is what Spark shows."""
    pack = _pack if job.shed is None else _pack_with_arrival
    blobs = (
        df.mapInArrow(pack, f"bucket int, {BLOB_SCHEMA}")
        .groupBy("bucket")
        .transformWithStateInPandas(BucketProcessor(job), BLOB_SCHEMA, "append", "eventTime")
    )

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.execution.job import unpack_answer  # noqa: PLC0415

        yield from unpack_answer(batches)

    unpack.__name__ = unpack.__qualname__ = title
    return blobs.mapInArrow(unpack, schema)


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from spark_cep.udfs.execution.job import add_guard, pack_rows  # noqa: PLC0415

    yield from add_guard(pack_rows(batches))


def _pack_with_arrival(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For buckets that may have to shed: with the time at which the trigger began, and the number
    of its rows."""
    import time  # noqa: PLC0415

    from spark_cep.udfs.execution.job import add_guard, pack_rows  # noqa: PLC0415
    from spark_cep.udfs.shedding.pace import note_arrival  # noqa: PLC0415

    yield from add_guard(pack_rows(batches, note_arrival(time.time())))


# ---- buckets -----------------------------------------------------------------------------------


def bucket_count(shuffle_partitions: int, forced: int | None) -> tuple[int, str]:
    """How many buckets, and why. The number has to stay the same as long as a checkpoint is used,
    so it must not depend on the size of the cluster.

    >>> bucket_count(4, None)
    (16, '4 for each of 4 shuffle partitions')
    >>> bucket_count(200, None)
    (64, 'at most 64, with 200 shuffle partitions')
    """
    if forced is not None:
        return forced, "set by spark.cep.buckets"
    count = _BUCKETS_PER_PARTITION * shuffle_partitions
    if _MIN_BUCKETS <= count <= _MAX_BUCKETS:
        return (
            count,
            f"{_BUCKETS_PER_PARTITION} for each of {shuffle_partitions} shuffle partitions",
        )
    partitions = f"{shuffle_partitions} shuffle partition{'s' * (shuffle_partitions != 1)}"
    if count < _MIN_BUCKETS:
        return _MIN_BUCKETS, f"at least {_MIN_BUCKETS}, with {partitions}"
    return _MAX_BUCKETS, f"at most {_MAX_BUCKETS}, with {partitions}"


def _choose_buckets(source: SourceFrame, *, has_keys: bool) -> tuple[int, str]:
    forced = source.setting(BUCKETS_CONF)
    if not has_keys and not forced:
        return 1, "one partition is one bucket"
    partitions = shuffle_partitions(source.df.sparkSession)
    return bucket_count(partitions, parse_bucket_count(forced) if forced else None)
