"""A row pattern over a DataFrame, ready to be run: `RowQuery`.

    remote columns -> compile -> choose the matcher -> program

Nothing is sampled: the choice depends on the pattern alone. All rows of a key are in one bucket,
so time is never cut into slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spark_cep.errors import PatternError
from spark_cep.expressions.problems import Place, Problems
from spark_cep.expressions.remote_calls import (
    LookupRequests,
    MeasureTexts,
    PlaceholderTyper,
    mentions_remote,
    over_lookup_columns,
    separate_remote_calls,
)
from spark_cep.expressions.row_grammar import undecidable_node
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.planner.layout import (
    BUCKETS_CONF,
    SLICES_CONF,
    Layout,
    LayoutFacts,
    Slicing,
    choose_row_layout,
)
from spark_cep.planner.matcher import MatcherChoice, MatcherFacts, choose_matcher
from spark_cep.remotes.sources import check_remotes_used
from spark_cep.rows.calls import parse_calls
from spark_cep.rows.compile import compile_row_query
from spark_cep.rows.compiled import RowAnswer, lay_out_row_answer
from spark_cep.rows.lookups import replace_define_calls, replace_measure_calls
from spark_cep.spark.keys import check_ordered_by_bytes, resolve_keys, resolve_order
from spark_cep.spark.lookups import MetricsSink, RemoteSources, add_lookups
from spark_cep.spark.prepare import PreparedRows, select_shipped, shipped_column
from spark_cep.spark.projection import MatchFrame, project_rows, row_schema
from spark_cep.spark.query import NO_OBSERVERS, RowObservers
from spark_cep.spark.remote_report import (
    OutsideLookups,
    add_remote_facts,
    row_calls_by_column,
    row_places,
)
from spark_cep.spark.report import RowFacts, add_stream_facts, build_row_report, row_job_title
from spark_cep.spark.source import estimate_size
from spark_cep.spark.stream import check_decidable, check_max_wait, check_watermark
from spark_cep.spark.typing import SparkTyper, type_of
from spark_cep.udfs.rows.compiled import compile_kernel_program
from spark_cep.udfs.rows.cuts import cut_refusal, endless_refusal
from spark_cep.udfs.rows.leaves import unbounded_reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from spark_cep.explanation.plan import MatchPlan
    from spark_cep.expressions.remote_calls import LookupRequest
    from spark_cep.expressions.schema import Typer
    from spark_cep.expressions.shipment import Shipment
    from spark_cep.expressions.syntax import ParsedExpression
    from spark_cep.options import RowOptions
    from spark_cep.row_patterns import RowPattern
    from spark_cep.rows.compiled import CompiledRowPattern, CompiledRowQuery
    from spark_cep.spark.source import SourceFrame
    from spark_cep.udfs.canonical import Data
    from spark_cep.udfs.execution.shedding import StageBound
    from spark_cep.udfs.output import RowOutput
    from spark_cep.udfs.row_program import RowProgram
    from spark_cep.udfs.shedding.utility import StreamSheddingSpec


# ---- remote data ---------------------------------------------------------------------------------

# The compiler of row patterns knows nothing of remote data. It gets an input that has the looked-up
# columns, texts that read these (`rows/lookups.py`), and measures whose other calls are set aside
# (`expressions/remote_calls.py`). Messages are about the user's texts as written.


@dataclass(frozen=True)
class RowLookups:
    """`pattern`, `measures`: the texts for the compiler; `source`: the input whose columns they
    read. `given`: the user's input; `before`: what is looked up beside it. `aside`: the calls in
    measures that are looked up for the answer."""

    pattern: RowPattern
    measures: tuple[tuple[str, str], ...]
    source: SourceFrame
    given: SourceFrame
    remotes: RemoteSources
    before: tuple[LookupRequest, ...] = ()
    aside: MeasureTexts = field(default_factory=lambda: MeasureTexts(()))

    @property
    def fetches(self) -> bool:
        """Whether anything is fetched before matching."""
        return any(not self.remotes.remotes[each.remote].is_table for each in self.before)

    def meanings(self) -> list[tuple[str, tuple[str, ...]]]:
        """The source and the keys of each looked-up column."""
        return [(each.remote, each.keys) for each in self.before]

    def observed_rows(self, observe: Callable[[DataFrame], DataFrame]) -> DataFrame:
        """The input with its looked-up columns. `observe` gets the rows with their counts."""
        return _add_values(self.given.df, self.before, self.remotes, MetricsSink(observe))

    def typer(self, typer: Typer) -> Typer:
        """A typer that knows the types of the calls that are set aside."""
        if not self.aside.calls:
            return typer
        types = self.remotes.types()
        return PlaceholderTyper(typer, [types[remote] for remote, _ in self.aside.calls])

    def restore_texts(
        self, compiled: CompiledRowPattern, pattern: RowPattern, options: RowOptions
    ) -> tuple[CompiledRowPattern, tuple[LookupRequest, ...]]:
        """The compiled pattern with the user's own texts, and what is looked up for the answer."""
        define = {
            name.casefold(): str(text) for name, text in pattern.define if mentions_remote(text)
        }
        conditions = tuple(
            (text if text is None else define.get(each.name.casefold(), text), by_spark)
            for each, (text, by_spark) in zip(compiled.variables, compiled.conditions, strict=True)
        )
        texts, sql = dict(options.measures), {each.name: each.sql for each in compiled.measures}
        measures = tuple(
            replace(each, sql=over_lookup_columns(each.sql), text=texts[each.name])
            for each in compiled.measures
            if each.name in texts
        )
        restored = replace(compiled, conditions=conditions, measures=measures)
        return restored, self.aside.sought(sql)


def collect_row_lookups(
    source: SourceFrame, pattern: RowPattern, options: RowOptions
) -> RowLookups:
    """The texts for the compiler and the input that they read. Raises PatternError for calls of
    remote that are wrong."""
    remotes = RemoteSources(options.remotes, source.df.sparkSession)
    texts = [text for _, text in (*pattern.define, *options.measures)]
    if not any(map(mentions_remote, texts)):
        check_remotes_used(options.remotes, texts)
        return RowLookups(pattern, options.measures, source, source, remotes)
    types = remotes.types()
    problems, requests = Problems(), LookupRequests(types)
    defined = replace_define_calls(pattern, requests, problems)
    measures = replace_measure_calls(options.measures, pattern, requests, problems)
    aside = separate_remote_calls(measures, types, problems, _parse_measure)
    problems.raise_if_any()
    check_remotes_used(options.remotes, texts)
    columns = tuple(
        ColumnInfo(each.column, type_of(remotes.type(each.remote))) for each in requests.found
    )
    df = _add_values(source.df, requests.found, remotes)
    extended = replace(source, df=df, columns=(*source.columns, *columns))
    return RowLookups(defined, aside.texts, extended, source, remotes, tuple(requests.found), aside)


def _add_values(
    df: DataFrame,
    requests: Sequence[LookupRequest],
    remotes: RemoteSources,
    counts: MetricsSink | None = None,
) -> DataFrame:
    # Keys of another type may be looked up for the answer, in the same worker.
    return add_lookups(df, requests, replace(remotes, token=f"{remotes.token}-before"), counts)


def _parse_measure(text: str) -> ParsedExpression:
    """The parser of Spark SQL does not know RUNNING and FINAL, which a measure may have."""
    return parse_calls(text, Problems(), in_define=False).parsed


def prepare_row_query(
    given: SourceFrame,
    pattern: RowPattern,
    options: RowOptions,
    *,
    order_by: Any,
    partition_by: Any,
) -> RowQuery:
    """Compiles the pattern. All that can be wrong with what the user wrote is found here."""
    lookups = collect_row_lookups(given, pattern, options)
    source = lookups.source

    def lay_out_answer(
        compiled: CompiledRowPattern, shipment: Shipment, shown: Sequence[tuple[str, int]]
    ) -> RowAnswer:
        check_ordered_by_bytes(source.df, compiled.orders)
        own, sought = lookups.restore_texts(compiled, pattern, options)
        names = given.names() if options.window is None else options.window.shown
        return lay_out_row_answer(own, shipment, shown, names=names, sought=sought)

    query = compile_row_query(
        lookups.pattern,
        source.columns,
        order_by=resolve_order(source.df, order_by),
        partition_by=partition_by,
        typer=lookups.typer(SparkTyper(source.df)),
        time_zone=source.setting("spark.sql.session.timeZone", "UTC"),
        measures=lookups.measures,
        rows=options.rows,
        after_match=options.after_match,
        canonical_keys=lambda *texts: resolve_keys(source.df, *texts),
        lay_out_answer=lay_out_answer,
        case_sensitive=source.case_sensitive,
        ansi=source.is_on("spark.sql.ansi.enabled"),
        in_batch=not source.is_streaming,
        limits=options.limits,
        window=options.window,
    )
    compiled, _ = lookups.restore_texts(query.compiled, pattern, options)
    return RowQuery(pattern, options, lookups, query, compiled)


@dataclass(frozen=True)
class RowQuery:
    """Implements `Query`. `compiled`: the pattern with the user's own texts."""

    pattern: RowPattern
    options: RowOptions
    lookups: RowLookups
    query: CompiledRowQuery
    compiled: CompiledRowPattern

    @property
    def source(self) -> SourceFrame:
        return self.lookups.source

    @property
    def remotes(self) -> RemoteSources:
        return self.lookups.remotes

    @property
    def answer(self) -> RowAnswer:
        assert self.query.answer is not None
        return self.query.answer

    # ---- rows --------------------------------------------------------------------------------

    @property
    def fetches(self) -> bool:
        return self.lookups.fetches

    @property
    def sheds(self) -> bool:
        """Never: without a row, a row pattern would match other rows."""
        return False

    @property
    def loses_matches(self) -> bool:
        return self.sheds

    @property
    def worker_shedding(self) -> StreamSheddingSpec | None:
        return None

    @property
    def bound(self) -> StageBound | None:
        return None

    def recall(self) -> tuple[int, int] | None:
        return None

    def rows(self, observers: RowObservers = NO_OBSERVERS) -> PreparedRows:
        rows = self.source.df
        if observers.lookups is not None and self.fetches:
            rows = self.lookups.observed_rows(observers.lookups)
        return select_shipped(rows, self.query.shipment)

    def layout(self, shipped: DataFrame) -> Layout:
        facts = LayoutFacts(
            size=estimate_size(shipped, None, self.source.df),
            has_keys=bool(self.query.keys),
            slicing=None,
            forced_buckets=self.source.setting(BUCKETS_CONF),
            forced_slices=self.source.setting(SLICES_CONF),
        )
        return choose_row_layout(facts, None if facts.has_keys else self._range_refusal())

    def _range_refusal(self) -> str | None:
        """Why one partition of all rows is not matched in ranges. Spark computes its rows twice
        then: once for a sample of the order."""
        if self.fetches:
            return "remote data would be fetched twice"
        if self.compiled.aggregates:
            return "Spark groups the answer by places of rows, which each range counts anew"
        shipped = [str(each.expression) for each in self.query.shipment.shipped]
        if any(" OVER (" in text for text in shipped):
            return "Spark computes a condition on neighbouring rows, with all rows in one task"
        refusal = cut_refusal(self._program)
        if refusal is None:
            refusal = endless_refusal(compile_kernel_program(self._program))
        return refusal

    # ---- the program and its answer --------------------------------------------------------------

    @cached_property
    def _choice(self) -> MatcherChoice:
        in_batch = not self.source.is_streaming
        facts = MatcherFacts(self.query.program(), self.options.plan, in_batch=in_batch)
        return choose_matcher(facts)

    @cached_property
    def _program(self) -> RowProgram:
        return self.query.program(self._choice.matcher)

    def program(self, slicing: Slicing | None = None) -> RowProgram:
        assert slicing is None, "the rows of a key stay together"
        return self._program

    @property
    def output(self) -> RowOutput:
        return self.answer.output

    def worker_schema(self, shipped: StructType) -> StructType:
        return row_schema(self.answer, self.compiled, shipped)

    def project(self, matches: MatchFrame, raw: StructType) -> DataFrame:
        return project_rows(matches, self.answer, self.compiled, raw)

    # ---- reports -------------------------------------------------------------------------------

    def _facts(self, layout: Layout) -> RowFacts:
        return RowFacts(
            self.pattern, self.compiled, self.options, self._program, layout, self._choice
        )

    def title(self, layout: Layout, number: int) -> str:
        return row_job_title(self._facts(layout), number)

    def report(self, layout: Layout, number: int) -> MatchPlan:
        columns = self.answer.names(self.compiled.measures)
        plan = build_row_report(self._facts(layout), self.query.shipment, columns, number)
        if self.source.is_streaming:
            plan = add_stream_facts(plan, self._program)
        before = self.lookups.before
        places = row_places(OutsideLookups(before, self.answer.sought), self.remotes)
        return add_remote_facts(plan, self.remotes, places, row_calls_by_column(before))

    # ---- streams -------------------------------------------------------------------------------

    def check_stream(self) -> None:
        node = undecidable_node(self.pattern.root)
        place = None if node is None else Place(self.pattern.text, node.start, node.end)
        check_decidable(unbounded_reason(self.query.program()), self.options.limits, place)
        check_max_wait(self.lookups.remotes.remotes, self.lookups.remotes.remotes)
        time, text = None, ""
        if self.query.orders:
            first = shipped_column(self.query.shipment.shipped[self.query.orders[0].column])
            time = self.source.df.select(first.alias("time")).schema["time"]
            text = str(self.compiled.orders[0].expression)
        check_watermark(time, text)
        if self.compiled.orders[0].descending:
            raise PatternError(
                "a stream is ordered by its event time, which is ascending",
                hint="remove DESC; other order columns may be descending",
            )

    def form(self) -> Data:
        return self.query.form(self._program, self.lookups.meanings())
