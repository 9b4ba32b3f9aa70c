"""A row pattern's way through Spark: from a DataFrame to the DataFrame of its answer.

    compile -> ship -> choose the matcher -> deal to buckets -> matcher -> project

Nothing is sampled: the choice hangs on the pattern alone. All rows of a key are in one place, so
time is never cut into slices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql.pandas.types import to_arrow_schema

from spark_cep.answering.project import Found
from spark_cep.answering.row_answer import (
    RowAnswer,
    RowInputs,
    row_answer_of,
    row_projected,
    row_schema,
)
from spark_cep.compiling.rows.compile import RowInput, RowQuery, compile_rows
from spark_cep.explaining.metering import Observed, noticed, observed
from spark_cep.explaining.records import Record, new_number, remember
from spark_cep.explaining.row_report import RowFacts, row_report, row_title
from spark_cep.explaining.stream_report import of_stream
from spark_cep.planning.buckets import size_of
from spark_cep.planning.layout import BUCKETS, Dealing, Layout, layout
from spark_cep.planning.rows import MatcherFacts, choose_matcher
from spark_cep.remotes.places import Elsewhere, columns_of, of_rows, with_remotes
from spark_cep.row_lookups import Looking, looking
from spark_cep.shipped import keys_of
from spark_cep.shipping import prepare
from spark_cep.shipping.keys import check_groupable, check_ordered_by_bytes, directed
from spark_cep.shipping.shipment import Shipment
from spark_cep.shipping.typing_by_spark import SparkTyper, quoted
from spark_cep.shipping.worker_entry import row_entry
from spark_cep.streaming import path as stream
from spark_cep.streaming.checks import check_decidable, check_watermark, prepare_session
from spark_cep.streaming.meaning import meaning
from spark_cep.streaming.path import stream_buckets
from spark_cep.streaming.progress import counted, told
from spark_cep.udfs.program import Order
from spark_cep.udfs.rows.carried import fingerprint
from spark_cep.udfs.rows.program import RowProgram
from spark_cep.udfs.rows.reach import unbounded

if TYPE_CHECKING:
    from spark_cep.compiling.rows.compiled import CompiledRows
    from spark_cep.options import RowOptions
    from spark_cep.row_patterns import RowPattern
    from spark_cep.shipping.source import Source


@dataclass(frozen=True)
class _Shipped:
    """What travels: the compiled pattern over `shipment`, and where things are in it."""

    compiled: CompiledRows
    shipment: Shipment
    keys: tuple[int, ...]
    orders: tuple[Order, ...]
    answer: RowAnswer
    ansi: bool


def matched_rows(
    source: Source, pattern: RowPattern, options: RowOptions, by: tuple[Any, Any]
) -> DataFrame:
    """The answer of a row pattern; `by`: order_by and partition_by."""
    look = looking(source, pattern, options)
    source = look.source
    shipped = _shipped(look, (pattern, options), by)
    compiled, shipment, answer = shipped.compiled, shipped.shipment, shipped.answer
    prepared = prepare.select(source.df, shipment)
    if source.is_streaming:
        return _streamed(shipped, prepared, look, (pattern, options))
    chosen = _layout(source, prepared.df, shipped)
    names = [f"c{column}" for column in shipped.keys]
    program = _program(shipped, options)
    schema = row_schema(answer, compiled, prepared.df.schema)
    number = new_number()
    choice = choose_matcher(MatcherFacts(program, options.plan))
    program = replace(program, matcher=choice.matcher)
    facts = RowFacts(pattern, compiled, options, program, chosen, choice)
    function = row_entry(
        program, answer.output, to_arrow_schema(schema, timezone="UTC"), row_title(facts, number)
    )

    def made() -> tuple[DataFrame, Observed]:
        # An observation counts once, so what is measured anew needs a new one.
        both = Observed(Observation(), Observation() if look.fetches else None)
        rows = prepared
        if both.before is not None:
            looked = look.rows(partial(noticed, observation=both.before))
            rows = prepare.select(looked, shipment)
        df = prepare.dealt(rows.df, names, None, chosen.buckets)
        counted = partial(observed, observation=both.answer)
        found = Found(df.mapInArrow(function, schema), counted, look.sources)
        return row_projected(found, answer, compiled, prepared.raw), both

    given, observation = made()
    plan = row_report(facts, shipment, answer.names(compiled.measures), number)
    places = of_rows(Elsewhere(look.before, answer.sought), look.sources)
    plan = with_remotes(plan, look.sources, places, columns_of(look.before))
    return remember(given, Record(number, plan, observation, chosen.buckets, made))


def _streamed(
    shipped: _Shipped,
    prepared: prepare.Prepared,
    look: Looking,
    asked: tuple[RowPattern, RowOptions],
) -> DataFrame:
    """The same through a stateful operator: searches wait until no later row can change them."""
    pattern, options = asked
    source = look.source
    compiled, shipment, answer = shipped.compiled, shipped.shipment, shipped.answer
    program = _program(shipped, options)
    check_decidable(unbounded(program), options.limits)
    first = shipped.orders[0].column if shipped.orders else None
    check_watermark(
        None if first is None else prepared.raw[first],
        str(compiled.orders[0].expression) if compiled.orders else "",
    )
    prepare_session(source.df)
    count, reason = stream_buckets(source, has_keys=bool(shipped.keys))
    choice = choose_matcher(MatcherFacts(program, options.plan, in_batch=False))
    layout_ = Layout(count, reason, None, "none: a stream comes in triggers")
    facts = RowFacts(pattern, compiled, options, program, layout_, choice)
    schema = row_schema(answer, compiled, prepared.df.schema)
    number = new_number()
    if look.fetches:
        prepared = prepare.select(look.rows(partial(told, number=number)), shipment)
    bucket = prepare.bucket_of([f"c{column}" for column in shipped.keys], None, count)
    known_by = meaning(fingerprint(program), shipment, look.known_by())
    found = stream.matched(
        prepared.df.select("*", bucket.cast("int").alias("bucket")),
        stream.Streamed(program, answer.output, known_by, schema, count),
        row_title(facts, number),
    )
    matches = Found(found, partial(counted, number=number), look.sources)
    given = row_projected(matches, answer, compiled, prepared.raw)
    plan = row_report(facts, shipment, answer.names(compiled.measures), number)
    places = of_rows(Elsewhere(look.before, answer.sought), look.sources)
    plan = with_remotes(of_stream(plan, program), look.sources, places, columns_of(look.before))
    return remember(given, Record(number, plan, None, count))


def _shipped(look: Looking, asked: tuple[RowPattern, RowOptions], by: tuple[Any, Any]) -> _Shipped:
    """Everything that the user can have done wrong in texts is said here."""
    source, options = look.source, asked[1]
    shipment = Shipment(source.names(), case_sensitive=source.case_sensitive)
    ansi = source.is_on("spark.sql.ansi.enabled", "true")
    query = RowQuery(
        look.pattern, directed(source.df, by[0]), by[1], look.measures, options.rows,
        options.after_match,
    )  # fmt: skip
    given = RowInput(
        source.columns,
        look.typer(SparkTyper(source.df)),
        shipment,
        source.setting("spark.sql.session.timeZone", "UTC"),
        source.case_sensitive,
        ansi,
        in_batch=not source.is_streaming,
    )
    compiled, sought = look.finished(compile_rows(query, given), asked)
    check_groupable(source.df, compiled.partition)
    check_ordered_by_bytes(source.df, compiled.orders)
    keys, shown = _keys(source, compiled, shipment)
    orders = tuple(
        Order(shipment.column(each.expression), each.type, each.descending, each.nulls_first)
        for each in compiled.orders
    )
    answer = row_answer_of(compiled, RowInputs(look.given.names(), shown, sought), shipment)
    if not shipment.shipped:
        # Arrow does not count rows that have no column.
        shipment.column("CAST(1 AS TINYINT)")
    return _Shipped(compiled, shipment, keys, orders, answer, ansi)


def _keys(
    source: Source, compiled: CompiledRows, shipment: Shipment
) -> tuple[tuple[int, ...], tuple[tuple[str, int], ...]]:
    """The key columns; the partition columns by name, and what shows them."""
    texts = [quoted(name) for name in compiled.partition]
    keys = keys_of(source.df, texts)
    columns = tuple(
        shipment.column(text if key.plain else key.canonical)
        for text, key in zip(texts, keys, strict=True)
    )
    shown = tuple(
        (name, column if key.shows else shipment.column(quoted(name)))
        for name, key, column in zip(compiled.partition, keys, columns, strict=True)
    )
    return columns, shown


def _layout(source: Source, prepared: DataFrame, shipped: _Shipped) -> Layout:
    return layout(
        Dealing(
            size=size_of(prepared, None),
            sample=None,
            has_keys=bool(shipped.keys),
            slicing=None,
            forced_buckets=source.setting(BUCKETS),
        )
    )


def _program(shipped: _Shipped, options: RowOptions) -> RowProgram:
    compiled = shipped.compiled
    return RowProgram(
        columns=shipped.shipment.names(),
        keys=shipped.keys,
        orders=shipped.orders,
        variables=compiled.variables,
        pattern=compiled.pattern,
        measures=tuple(each.expression for each in compiled.readings),
        rows=compiled.rows,
        skip=compiled.skip,
        limits=options.limits,
        within=compiled.window,
        ansi=shipped.ansi,
    )
