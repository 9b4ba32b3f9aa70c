"""A row pattern's way through Spark: from a DataFrame to the DataFrame of its answer.

    compile -> ship -> choose the matcher -> deal to buckets -> matcher -> project

Nothing is sampled: the choice hangs on the pattern alone. All rows of a key are in one place, so
time is never cut into slices.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql.pandas.types import to_arrow_schema

from spark_cep.expressions.problems import Problems
from spark_cep.expressions.remote_calls import LookupRequests, mentions_remote
from spark_cep.expressions.remote_measures import (
    MeasureTexts,
    PlaceholderTyper,
    over_lookup_columns,
    separate_remote_calls,
)
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.expressions.shipment import Shipment
from spark_cep.planner.layout import BUCKETS_CONF, Layout, LayoutFacts, choose_layout
from spark_cep.planner.matcher import MatcherFacts, choose_matcher
from spark_cep.remotes.sources import check_remotes_used
from spark_cep.rows.calls import parse_calls
from spark_cep.rows.compile import CompilerInput, RowPatternRequest, compile_row_pattern
from spark_cep.rows.lookups import replace_define_calls, replace_measure_calls
from spark_cep.spark import prepare, stream
from spark_cep.spark.entry import bucket_entry
from spark_cep.spark.keys import (
    check_groupable,
    check_ordered_by_bytes,
    resolve_keys,
    resolve_order,
)
from spark_cep.spark.lookups import MetricsSink, RemoteSources, add_lookups
from spark_cep.spark.metrics import (
    AnswerObservations,
    AnswerRecord,
    keep_record,
    new_answer_number,
    observe_answer,
    observe_lookups,
    observe_stream_answer,
    observe_stream_lookups,
)
from spark_cep.spark.projection import (
    MatchFrame,
    RowAnswer,
    RowAnswerInputs,
    build_row_answer,
    project_rows,
    row_schema,
)
from spark_cep.spark.remote_report import (
    OutsideLookups,
    add_remote_facts,
    row_calls_by_column,
    row_places,
)
from spark_cep.spark.report import RowFacts, add_stream_facts, build_row_report, row_job_title
from spark_cep.spark.sizes import estimate_size
from spark_cep.spark.stream import (
    check_decidable,
    check_watermark,
    choose_stream_buckets,
    prepare_session,
    query_fingerprint,
)
from spark_cep.spark.typing import SparkTyper, quote_column, type_of
from spark_cep.udfs.canonical import fingerprint, row_program
from spark_cep.udfs.execution.row_engine import compile_row_program
from spark_cep.udfs.program import Order
from spark_cep.udfs.row_program import RowProgram
from spark_cep.udfs.rows.leaves import unbounded_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_cep.expressions.remote_calls import LookupRequest
    from spark_cep.expressions.schema import Typer
    from spark_cep.expressions.syntax import ParsedExpression
    from spark_cep.options import RowOptions
    from spark_cep.row_patterns import RowPattern
    from spark_cep.rows.compiled import CompiledRowPattern
    from spark_cep.spark.source import SourceFrame


# --------------------------------------------------------------------------------------------------
# What a row pattern looks up: on its input before matching, and for its answer.
#
# The compiler of row patterns knows nothing of it: it is given an input with looked-up columns, and
# texts that read them (`compiling/rows/looked_up.py`), and measures whose other calls stand aside
# (`compiling/set_aside.py`). What it says of the user's texts is said of them as written.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowLookups:
    """`pattern`, `measures`: the texts that the compiler gets, `source` the input whose columns
    they read. `given`: the input as it was given; `before`: what is looked up beside it."""

    pattern: RowPattern
    measures: tuple[tuple[str, str], ...]
    source: SourceFrame
    given: SourceFrame
    sources: RemoteSources
    before: tuple[LookupRequest, ...] = ()
    aside: MeasureTexts = field(default_factory=lambda: MeasureTexts(()))

    @property
    def fetches(self) -> bool:
        """Whether anything is fetched before matching."""
        return any(not self.sources.remotes[each.remote].is_table for each in self.before)

    def known_by(self) -> list[tuple[str, tuple[str, ...]]]:
        """What the looked-up columns mean: source and keys."""
        return [(each.remote, each.keys) for each in self.before]

    def rows(self, take: Callable[[DataFrame], DataFrame]) -> DataFrame:
        """The input with its looked-up columns; what was counted goes by `take`."""
        return _add_values(self.given.df, self.before, self.sources, MetricsSink(take))

    def typer(self, typer: Typer) -> Typer:
        """A typer that knows what the measures' calls give."""
        if not self.aside.calls:
            return typer
        types = self.sources.types()
        return PlaceholderTyper(typer, [types[remote] for remote, _ in self.aside.calls])

    def finished(
        self, compiled: CompiledRowPattern, asked: tuple[RowPattern, RowOptions]
    ) -> tuple[CompiledRowPattern, tuple[LookupRequest, ...]]:
        """What the compiler made of it, about the user's own texts; and what is looked up for
        the answer."""
        pattern, options = asked
        define = {
            name.casefold(): str(text) for name, text in pattern.define if mentions_remote(text)
        }
        conditions = tuple(
            (text if text is None else define.get(each.name.casefold(), text), by_spark)
            for each, (text, by_spark) in zip(compiled.variables, compiled.conditions, strict=True)
        )
        texts, sql = dict(options.measures), {each.name: each.sql for each in compiled.measures}
        shown = tuple(
            replace(each, sql=over_lookup_columns(each.sql), text=texts[each.name])
            for each in compiled.measures
            if each.name in texts
        )
        own = replace(compiled, conditions=conditions, measures=shown)
        return own, self.aside.sought(sql)


def collect_row_lookups(
    source: SourceFrame, pattern: RowPattern, options: RowOptions
) -> RowLookups:
    """Says what is wrong with calls of remote; else the texts and the input that they read."""
    sources = RemoteSources(options.remotes, source.df.sparkSession)
    texts = [text for _, text in (*pattern.define, *options.measures)]
    if not any(map(mentions_remote, texts)):
        check_remotes_used(options.remotes, texts)
        return RowLookups(pattern, options.measures, source, source, sources)
    types = sources.types()
    problems, seeking = Problems(), LookupRequests(types)
    defined = replace_define_calls(pattern, seeking, problems)
    measures = replace_measure_calls(options.measures, pattern, seeking, problems)
    aside = separate_remote_calls(measures, types, problems, _parse_measure)
    problems.raise_if_any()
    check_remotes_used(options.remotes, texts)
    found = tuple(
        ColumnInfo(each.column, type_of(sources.type(each.remote))) for each in seeking.found
    )
    df = _add_values(source.df, seeking.found, sources)
    extended = replace(source, df=df, columns=(*source.columns, *found))
    return RowLookups(defined, aside.texts, extended, source, sources, tuple(seeking.found), aside)


def _add_values(
    df: DataFrame,
    sought: Sequence[LookupRequest],
    sources: RemoteSources,
    counts: MetricsSink | None = None,
) -> DataFrame:
    # Keys of another type may be asked for the answer, in the same worker.
    return add_lookups(df, sought, replace(sources, token=f"{sources.token}-before"), counts)


def _parse_measure(text: str) -> ParsedExpression:
    """RUNNING and FINAL are words that no parser knows."""
    return parse_calls(text, Problems(), in_define=False).parsed


@dataclass(frozen=True)
class PreparedRowPattern:
    """What travels: the compiled pattern over `shipment`, and where things are in it."""

    compiled: CompiledRowPattern
    shipment: Shipment
    keys: tuple[int, ...]
    orders: tuple[Order, ...]
    answer: RowAnswer
    ansi: bool


def match_rows(
    source: SourceFrame, pattern: RowPattern, options: RowOptions, by: tuple[Any, Any]
) -> DataFrame:
    """The answer of a row pattern; `by`: order_by and partition_by."""
    look = collect_row_lookups(source, pattern, options)
    source = look.source
    shipped = _prepare_row_pattern(look, (pattern, options), by)
    compiled, shipment, answer = shipped.compiled, shipped.shipment, shipped.answer
    prepared = prepare.select_shipped(source.df, shipment)
    if source.is_streaming:
        return _match_row_stream(shipped, prepared, look, (pattern, options))
    chosen = _choose_layout(source, prepared.df, shipped)
    names = [f"c{column}" for column in shipped.keys]
    program = _build_row_program(shipped, options)
    schema = row_schema(answer, compiled, prepared.df.schema)
    number = new_answer_number()
    choice = choose_matcher(MatcherFacts(program, options.plan))
    program = replace(program, matcher=choice.matcher)
    facts = RowFacts(pattern, compiled, options, program, chosen, choice)
    function = bucket_entry(
        compile_row_program(program),
        answer.output,
        to_arrow_schema(schema, timezone="UTC"),
        row_job_title(facts, number),
    )

    def made() -> tuple[DataFrame, AnswerObservations]:
        # An observation counts once, so what is measured anew needs a new one.
        both = AnswerObservations(Observation(), Observation() if look.fetches else None)
        rows = prepared
        if both.before is not None:
            looked = look.rows(partial(observe_lookups, observation=both.before))
            rows = prepare.select_shipped(looked, shipment)
        df = prepare.distribute_rows(rows.df, names, None, chosen.buckets)
        counted = partial(observe_answer, observation=both.answer)
        found = MatchFrame(df.mapInArrow(function, schema), counted, look.sources)
        return project_rows(found, answer, compiled, prepared.raw), both

    given, observation = made()
    plan = build_row_report(facts, shipment, answer.names(compiled.measures), number)
    places = row_places(OutsideLookups(look.before, answer.sought), look.sources)
    plan = add_remote_facts(plan, look.sources, places, row_calls_by_column(look.before))
    return keep_record(given, AnswerRecord(number, plan, observation, chosen.buckets, made))


def _match_row_stream(
    shipped: PreparedRowPattern,
    prepared: prepare.PreparedRows,
    look: RowLookups,
    asked: tuple[RowPattern, RowOptions],
) -> DataFrame:
    """The same through a stateful operator: searches wait until no later row can change them."""
    pattern, options = asked
    source = look.source
    compiled, shipment, answer = shipped.compiled, shipped.shipment, shipped.answer
    program = _build_row_program(shipped, options)
    check_decidable(unbounded_reason(program), options.limits)
    first = shipped.orders[0].column if shipped.orders else None
    check_watermark(
        None if first is None else prepared.raw[first],
        str(compiled.orders[0].expression) if compiled.orders else "",
    )
    prepare_session(source.df)
    count, reason = choose_stream_buckets(source, has_keys=bool(shipped.keys))
    choice = choose_matcher(MatcherFacts(program, options.plan, in_batch=False))
    layout_ = Layout(count, reason, None, "none: a stream comes in triggers")
    facts = RowFacts(pattern, compiled, options, program, layout_, choice)
    schema = row_schema(answer, compiled, prepared.df.schema)
    number = new_answer_number()
    if look.fetches:
        prepared = prepare.select_shipped(
            look.rows(partial(observe_stream_lookups, number=number)), shipment
        )
    bucket = prepare.bucket_column([f"c{column}" for column in shipped.keys], None, count)
    form = query_fingerprint(row_program(program), shipment, lookups=look.known_by())
    found = stream.match_buckets(
        prepared.df.select("*", bucket.cast("int").alias("bucket")),
        stream.StreamPlan(
            compile_row_program(program), answer.output, fingerprint(form), schema, count
        ),
        row_job_title(facts, number),
    )
    matches = MatchFrame(found, partial(observe_stream_answer, number=number), look.sources)
    given = project_rows(matches, answer, compiled, prepared.raw)
    plan = build_row_report(facts, shipment, answer.names(compiled.measures), number)
    places = row_places(OutsideLookups(look.before, answer.sought), look.sources)
    plan = add_remote_facts(
        add_stream_facts(plan, program), look.sources, places, row_calls_by_column(look.before)
    )
    return keep_record(given, AnswerRecord(number, plan, None, count))


def _prepare_row_pattern(
    look: RowLookups, asked: tuple[RowPattern, RowOptions], by: tuple[Any, Any]
) -> PreparedRowPattern:
    """Everything that the user can have done wrong in texts is said here."""
    source, options = look.source, asked[1]
    shipment = Shipment(source.names(), case_sensitive=source.case_sensitive)
    ansi = source.is_on("spark.sql.ansi.enabled", "true")
    query = RowPatternRequest(
        look.pattern, resolve_order(source.df, by[0]), by[1], look.measures, options.rows,
        options.after_match,
    )  # fmt: skip
    given = CompilerInput(
        source.columns,
        look.typer(SparkTyper(source.df)),
        shipment,
        source.setting("spark.sql.session.timeZone", "UTC"),
        source.case_sensitive,
        ansi,
        in_batch=not source.is_streaming,
    )
    compiled, sought = look.finished(compile_row_pattern(query, given), asked)
    check_groupable(source.df, compiled.partition)
    check_ordered_by_bytes(source.df, compiled.orders)
    keys, shown = _ship_keys(source, compiled, shipment)
    orders = tuple(
        Order(shipment.column(each.expression), each.type, each.descending, each.nulls_first)
        for each in compiled.orders
    )
    answer = build_row_answer(
        compiled, RowAnswerInputs(look.given.names(), shown, sought), shipment
    )
    if not shipment.shipped:
        # Arrow does not count rows that have no column.
        shipment.column("CAST(1 AS TINYINT)")
    return PreparedRowPattern(compiled, shipment, keys, orders, answer, ansi)


def _ship_keys(
    source: SourceFrame, compiled: CompiledRowPattern, shipment: Shipment
) -> tuple[tuple[int, ...], tuple[tuple[str, int], ...]]:
    """The key columns; the partition columns by name, and what shows them."""
    texts = [quote_column(name) for name in compiled.partition]
    keys = resolve_keys(source.df, texts)
    columns = tuple(
        shipment.column(text if key.plain else key.canonical)
        for text, key in zip(texts, keys, strict=True)
    )
    shown = tuple(
        (name, column if key.shows else shipment.column(quote_column(name)))
        for name, key, column in zip(compiled.partition, keys, columns, strict=True)
    )
    return columns, shown


def _choose_layout(source: SourceFrame, prepared: DataFrame, shipped: PreparedRowPattern) -> Layout:
    return choose_layout(
        LayoutFacts(
            size=estimate_size(prepared, None),
            sample=None,
            has_keys=bool(shipped.keys),
            slicing=None,
            forced_buckets=source.setting(BUCKETS_CONF),
        )
    )


def _build_row_program(shipped: PreparedRowPattern, options: RowOptions) -> RowProgram:
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
