"""Shedding of a stream: by Spark where a history tells what stays, else in front of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.planning.buckets import cores_of
from spark_cep.shedding.batch import Shedding, decided, key_types, learnt_from
from spark_cep.shipping import prepare
from spark_cep.udfs.planning.costs import measured
from spark_cep.udfs.shedding.learning import known_of
from spark_cep.udfs.shedding.spec import StreamShed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_cep.shedding.shed import Shed
    from spark_cep.shipped import Shipping
    from spark_cep.shipping.source import Source
    from spark_cep.udfs.program import Program


@dataclass(frozen=True)
class StreamShedding:
    """`before`: the filter in Spark, or `in_front`: what the workers go by."""

    asked: Shed
    before: Shedding | None
    in_front: StreamShed | None


def stream_shedding(
    source: Source,
    masked: tuple[DataFrame, DataFrame | None],
    shipping: Shipping,
    program: Program,
    shed: Shed,
) -> StreamShedding:
    """`masked`: the stream's rows and those of its history, with their candidate masks."""
    rows, past = masked
    known = None
    if past is not None:
        if shed.keep is not None:
            before = decided(source, past, shipping, program, shed)
            return StreamShedding(shed, before, None)
        candidates = prepare.filtered(past, shipping.compiled)
        learnt, sampled = learnt_from(source, candidates, shipping, program, shed)
        known = known_of(program, sampled, learnt, shed.policy, measured())
    partitions = int(source.setting("spark.sql.shuffle.partitions", "200"))
    in_front = StreamShed(
        shed.keep,
        shed.latency_seconds(),
        shed.rows_per_second,
        shed.policy,
        shed.safety,
        shed.seed,
        min(cores_of(source.df.sparkSession), partitions),
        key_types(shipping, rows),
        known,
    )
    return StreamShedding(shed, None, in_front)
