"""`match_pattern` on a stream: the same way through Spark up to the shuffle, then a stateful
operator that is told of each trigger's rows.

    ship -> choose, knowing nothing of the data -> pack by bucket -> stateful operator -> project
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from spark_cep.answering.answer import worker_schema
from spark_cep.answering.project import Found, projected
from spark_cep.candidates import candidate_rows
from spark_cep.explaining.records import Record, remember
from spark_cep.explaining.report import report, title
from spark_cep.explaining.stream_report import of_stream
from spark_cep.planned import planned, program_of
from spark_cep.planning.layout import Layout
from spark_cep.remotes.places import columns_of_events, of_events, with_remotes
from spark_cep.remotes.stage import Counts
from spark_cep.shedding.batch import counts_of, shed_rows
from spark_cep.shedding.shed import check_history
from spark_cep.shedding.stream import StreamShedding, stream_shedding
from spark_cep.shedding.told import with_stream_shedding
from spark_cep.shipping import prepare
from spark_cep.streaming import path as stream
from spark_cep.streaming.checks import (
    check_bounded,
    check_consumed,
    check_watermark,
    prepare_session,
)
from spark_cep.streaming.meaning import meaning
from spark_cep.streaming.path import stream_buckets
from spark_cep.streaming.progress import counted, told, told_shed
from spark_cep.udfs.state import fingerprint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_cep.options import Asked
    from spark_cep.shipped import Shipping
    from spark_cep.shipping.source import Source


def streamed(source: Source, asked: Asked, shipping: Shipping, number: int) -> DataFrame:
    """The matches of a stream, in a streaming DataFrame."""
    compiled, shipment, output = shipping.compiled, shipping.shipment, shipping.answer.output
    check_bounded(compiled.window, asked.options.limits)
    check_consumed(compiled)
    masked = candidate_rows(source.df, shipping, Counts(partial(told, number=number)))
    program, choice, _ = planned(source, masked, shipping, asked)
    prepared = prepare.select(prepare.filtered(masked, compiled), shipment)
    check_watermark(prepared.raw[shipping.orders[0].column], str(compiled.orders[0].expression))
    prepare_session(source.df)
    shedding = _shedding(source, masked, shipping, asked)
    if shedding is not None and shedding.before is not None:
        counts = partial(told_shed, counts=counts_of(compiled.variables), number=number)
        stay = shed_rows(prepare.filtered(masked, compiled), shedding.before, counts)
        prepared = prepare.select(stay, shipment)
    count, reason = stream_buckets(source, has_keys=bool(shipping.keys))
    program = replace(program, columns=shipment.names(), keys=shipping.key_columns)
    schema = worker_schema(output, compiled.variables, prepared.df.schema)
    names = [f"c{column}" for column in shipping.key_columns]
    bucket = prepare.bucket_of(names, None, count).cast("int").alias("bucket")
    lookups = [(each.remote.name, *each.keys) for each in compiled.lookups]
    known_by = meaning(fingerprint(program), shipment, [*compiled.masks, *lookups])
    in_front = None if shedding is None else shedding.in_front
    shed = None if shedding is None else shedding.before or shedding.asked
    found = stream.matched(
        prepared.df.select("*", bucket),
        stream.Streamed(program, output, known_by, schema, count, in_front),
        title(asked.pattern, compiled, (choice, shed), number),
    )
    answer = projected(
        Found(found, partial(counted, number=number), shipping.sources),
        shipping.answer,
        compiled.variables,
        prepared.raw,
        compiled.after,
    )
    layout_ = Layout(count, reason, None, "none: a stream comes in triggers")
    plan = report(
        asked.pattern, compiled, shipment, (choice, layout_, shipping.answer, program), number
    )
    places = of_events(compiled, shipping.answer.sought, shipping.sources)
    plan = with_remotes(
        of_stream(plan, program), shipping.sources, places, columns_of_events(compiled)
    )
    if shedding is not None:
        plan = with_stream_shedding(plan, shedding, compiled)
    return remember(answer, Record(number, plan, None, count))


def _shedding(
    source: Source, masked: DataFrame, shipping: Shipping, asked: Asked
) -> StreamShedding | None:
    """What may be dropped, and where; a history is looked at now."""
    shed = asked.options.shed
    if shed is None:
        return None
    past = None
    if shed.history is not None:
        check_history(source.df, shed.history)
        past = candidate_rows(shed.history, shipping)
    return stream_shedding(source, (masked, past), shipping, program_of(asked, shipping), shed)
