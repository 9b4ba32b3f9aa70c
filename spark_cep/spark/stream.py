"""`match_pattern` on a stream: the same way through Spark up to the shuffle, then a stateful
operator that is told of each trigger's rows.

    ship -> choose, knowing nothing of the data -> pack by bucket -> stateful operator -> project
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema

from spark_cep.errors import CepError, PatternError, PlanError
from spark_cep.planner.layout import BUCKETS_CONF, Layout, parse_bucket_count
from spark_cep.shed import check_history
from spark_cep.spark import prepare
from spark_cep.spark.event_query import add_candidate_mask, build_program, plan_query
from spark_cep.spark.lookups import MetricsSink
from spark_cep.spark.metrics import (
    AnswerRecord,
    keep_record,
    observe_stream_answer,
    observe_stream_lookups,
    observe_stream_shed,
)
from spark_cep.spark.processor import BLOB_SCHEMA, BucketProcessor
from spark_cep.spark.projection import MatchFrame, project_matches, worker_schema
from spark_cep.spark.remote_report import add_remote_facts, event_calls_by_column, event_places
from spark_cep.spark.report import add_stream_facts, build_report, job_title, strip_quotes
from spark_cep.spark.shedding import (
    StreamSheddingPlan,
    drop_shed_rows,
    plan_stream_shedding,
    shed_counts,
)
from spark_cep.spark.shedding_report import add_stream_shedding_facts
from spark_cep.udfs import canonical
from spark_cep.udfs.canonical import event_program, fingerprint
from spark_cep.udfs.execution.job import StreamJob, nullable_schema
from spark_cep.udfs.execution.state import make_identity

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.expressions.shipment import Shipment, ShippedColumn
    from spark_cep.options import MatchRequest
    from spark_cep.spark.event_query import PreparedPattern
    from spark_cep.spark.source import SourceFrame
    from spark_cep.udfs.canonical import Data
    from spark_cep.udfs.execution.row_engine import CompiledRowProgram
    from spark_cep.udfs.output import EventOutput, RowOutput
    from spark_cep.udfs.program import Limits, Program, Window
    from spark_cep.udfs.shedding.utility import StreamSheddingSpec


# --------------------------------------------------------------------------------------------------
# What a stream needs that a batch does not, said before the query is started.
# --------------------------------------------------------------------------------------------------


_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_WATERMARK = "spark.watermarkDelayMs"


def check_watermark(time: StructField | None, order_by: str) -> None:
    """`time`: the first order column as it is shipped; `order_by`: what the user calls it."""
    if time is None:
        raise PatternError(
            "a stream has no order but that of its event times, and the pattern has no order_by",
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
            f"the stream has no watermark on {order_by!r}, so nothing would ever be certain",
            hint=f'df.withWatermark("{name}", "10 seconds") says how late rows may come; '
            "order_by that column itself, not an expression over it",
        )


def check_bounded(window: Window | None, limits: Limits) -> None:
    if window is None and limits.rows is None:
        raise PatternError(
            "without WITHIN the stream would have to keep every row for ever",
            hint='give the pattern a window, .within("10 minutes"), or bound what a partition key '
            "may hold: limits=cep.Limits(rows=100_000) ends the query where one has more",
        )


def check_consumption(compiled: CompiledPattern) -> None:
    """Which matches consume their events hangs on all that a window may still bring."""
    if compiled.window is None and compiled.consumption == "consume" and compiled.strategy != "any":
        raise PatternError(
            "on a stream this pattern would never be certain: it consumes events, takes the next "
            "row that fits, and has no WITHIN after which no row fits any more",
            hint='give it a window, .within("10 minutes"), or let events be reused',
        )


def check_decidable(why_not: str | None, limits: Limits) -> None:
    """`why_not`: why a search of a row pattern may wait for ever."""
    if why_not is None or (limits.rows is not None and not why_not.startswith("$")):
        return
    if why_not.startswith("$"):
        raise PatternError(why_not, hint="leave out the anchor, or match in batches")
    raise PatternError(
        f"on a stream a search could wait for ever: {why_not}",
        hint='bound it: .within("10 minutes"), a quantifier with an end such as b{1,100}, or '
        "limits=cep.Limits(rows=100_000), which ends the query where a partition key has more",
    )


def prepare_session(df: DataFrame) -> None:
    """Sets the state store that Spark's stateful Python operator needs."""
    if find_spec("google.protobuf") is None:
        raise PlanError(
            "patterns on streams need the package protobuf, which Spark talks to its state with",
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
            f"allow to choose it: {problem}",
            hint=f"start the session with {_PROVIDER}={_ROCKS_DB}",
        ) from None


def _type_text(type_: DataType) -> str:
    return str(type_.simpleString()).upper()


# --------------------------------------------------------------------------------------------------
# What the state of a stream is compared with: the pattern down to the texts that Spark evaluates.
#
# A program knows the shipped columns by their places only, and conditions on one variable as bits
# of a mask. What these are is in no program, but matches in a checkpoint mean nothing without it.
# --------------------------------------------------------------------------------------------------


def query_fingerprint(
    program: Data,
    shipment: Shipment,
    masks: Sequence[Sequence[str | Column]] = (),
    lookups: Sequence[tuple[str, Sequence[str]]] = (),
    inferred: Sequence[str] = (),
) -> Data:
    """The canonical form of a query. `program`: that of the program; `masks`: the conditions of
    each variable; `lookups`: each looked-up column's source and keys; `inferred`: keys without
    which no row is shipped."""
    return canonical.query(
        program,
        [_shipped(each) for each in shipment.shipped],
        [[_expression(each) for each in condition] for condition in masks],
        [canonical.lookup(source, keys) for source, keys in lookups],
        [canonical.sql_text(key) for key in inferred],
    )


def _shipped(each: ShippedColumn) -> Data:
    if each.role == "mask":
        return canonical.candidate_mask()
    assert each.role == "value", "streams are not cut into slices"
    if each.column is not None:
        return canonical.shipped_column(canonical.input_column(each.column))
    return canonical.shipped_column(_expression(each.expression), each.guards)


def _expression(each: str | Column) -> Data:
    if isinstance(each, str):
        return canonical.sql_text(each)
    return canonical.spark_column(str(each))


# --------------------------------------------------------------------------------------------------
# A stream's way through Spark, from prepared rows to the rows that workers give back.
#
# rows with their bucket -> packed by bucket -> one stateful operator, keyed by bucket -> unpacked
#
# The outer two are plain maps: rows and answers pass the stateful operator as Arrow blobs, exact
# whatever their types (`udfs/execution/packing.py`).
# --------------------------------------------------------------------------------------------------


_BUCKETS_A_PARTITION = 4
_LEAST_BUCKETS = 8
_MOST_BUCKETS = 64


@dataclass(frozen=True)
class StreamPlan:
    """What runs in the workers. `fingerprint`: of what it means; `answered`: the schema of its
    answer; `shed`: what may be dropped in front of the engine."""

    program: Program | CompiledRowProgram
    output: EventOutput | RowOutput
    fingerprint: str
    answered: StructType
    buckets: int
    shed: StreamSheddingSpec | None = None


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


def choose_stream_buckets(source: SourceFrame, *, has_keys: bool) -> tuple[int, str]:
    forced = source.setting(BUCKETS_CONF)
    if not has_keys and not forced:
        return 1, "one partition is one bucket"
    partitions = int(source.setting("spark.sql.shuffle.partitions", "200"))
    return bucket_count(partitions, parse_bucket_count(forced) if forced else None)


def match_buckets(df: DataFrame, what: StreamPlan, name: str) -> DataFrame:
    """`df`: the shipped columns and, last, the bucket. `name` is what Spark shows."""
    schema = nullable_schema(to_arrow_schema(df.drop(df.columns[-1]).schema, timezone="UTC"))
    job = StreamJob(
        what.program,
        what.output,
        schema,
        make_identity(what.fingerprint, schema, what.buckets),
        uuid.uuid4().hex,
        what.shed,
    )
    blobs = (
        df.mapInArrow(
            _pack if what.shed is None else _pack_with_arrival, f"bucket int, {BLOB_SCHEMA}"
        )
        .groupBy("bucket")
        .transformWithStateInPandas(BucketProcessor(job), BLOB_SCHEMA, "append", "eventTime")
    )

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.execution.packing import unpack_answer  # noqa: PLC0415

        yield from unpack_answer(batches)

    unpack.__name__ = unpack.__qualname__ = name
    return blobs.mapInArrow(unpack, what.answered)


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from spark_cep.udfs.execution.packing import add_guard, pack_rows  # noqa: PLC0415

    yield from add_guard(pack_rows(batches))


def _pack_with_arrival(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Buckets that may have to shed are told when their trigger began, and how much it brings."""
    import time  # noqa: PLC0415

    from spark_cep.udfs.execution.packing import add_guard, pack_rows  # noqa: PLC0415
    from spark_cep.udfs.shedding.pace import note_arrival  # noqa: PLC0415

    yield from add_guard(pack_rows(batches, note_arrival(time.time())))


def match_stream(
    source: SourceFrame, asked: MatchRequest, shipping: PreparedPattern, number: int
) -> DataFrame:
    """The matches of a stream, in a streaming DataFrame."""
    compiled, shipment, output = shipping.compiled, shipping.shipment, shipping.answer.output
    check_bounded(compiled.window, asked.options.limits)
    check_consumption(compiled)
    masked = add_candidate_mask(
        source.df, shipping, MetricsSink(partial(observe_stream_lookups, number=number))
    )
    program, choice, _ = plan_query(source, masked, shipping, asked)
    prepared = prepare.select_shipped(prepare.filter_candidates(masked, compiled), shipment)
    check_watermark(prepared.raw[shipping.orders[0].column], str(compiled.orders[0].expression))
    prepare_session(source.df)
    shedding = _decide_stream_shedding(source, masked, shipping, asked)
    if shedding is not None and shedding.before is not None:
        counts = partial(observe_stream_shed, counts=shed_counts(compiled.variables), number=number)
        stay = drop_shed_rows(prepare.filter_candidates(masked, compiled), shedding.before, counts)
        prepared = prepare.select_shipped(stay, shipment)
    count, reason = choose_stream_buckets(source, has_keys=bool(shipping.keys))
    program = replace(program, columns=shipment.names(), keys=shipping.key_columns)
    schema = worker_schema(output, compiled.variables, prepared.df.schema)
    names = [f"c{column}" for column in shipping.key_columns]
    bucket = prepare.bucket_column(names, None, count).cast("int").alias("bucket")
    lookups = [(each.remote.name, each.keys) for each in compiled.lookups]
    form = query_fingerprint(
        event_program(program), shipment, compiled.masks, lookups, compiled.inferred
    )
    in_front = None if shedding is None else shedding.in_front
    shed = None if shedding is None else shedding.before or shedding.asked
    found = match_buckets(
        prepared.df.select("*", bucket),
        StreamPlan(program, output, fingerprint(form), schema, count, in_front),
        job_title(asked.pattern, compiled, (choice, shed), number),
    )
    answer = project_matches(
        MatchFrame(found, partial(observe_stream_answer, number=number), shipping.sources),
        shipping.answer,
        compiled.variables,
        prepared.raw,
        compiled.after,
    )
    layout_ = Layout(count, reason, None, "none: a stream comes in triggers")
    plan = build_report(
        asked.pattern, compiled, shipment, (choice, layout_, shipping.answer, program), number
    )
    places = event_places(compiled, shipping.answer.sought, shipping.sources)
    plan = add_remote_facts(
        add_stream_facts(plan, program), shipping.sources, places, event_calls_by_column(compiled)
    )
    if shedding is not None:
        plan = add_stream_shedding_facts(plan, shedding, compiled)
    return keep_record(answer, AnswerRecord(number, plan, None, count))


def _decide_stream_shedding(
    source: SourceFrame, masked: DataFrame, shipping: PreparedPattern, asked: MatchRequest
) -> StreamSheddingPlan | None:
    """What may be dropped, and where; a history is looked at now."""
    shed = asked.options.shed
    if shed is None:
        return None
    past = None
    if shed.history is not None:
        check_history(source.df, shed.history)
        past = add_candidate_mask(shed.history, shipping)
    return plan_stream_shedding(
        source, (masked, past), shipping, build_program(asked, shipping), shed
    )
