"""An event pattern over a DataFrame, ready to be run: `EventQuery`.

    compile -> candidate mask -> decide which rows are shed -> sample -> choose a plan -> program

The steps after compiling are taken when their outcome is first needed, and once. Shedding and the
sample run Spark jobs; the sample reads a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from spark_cep.errors import warn_user
from spark_cep.events.answer import (
    AnswerMeasure,
    AnswerMeasures,
    AnswerShape,
    lay_out_answer,
    lay_out_identities,
)
from spark_cep.events.compile import compile_event_query
from spark_cep.events.measures import compile_measures, compile_remote_measures
from spark_cep.explanation.shedding import format_seconds
from spark_cep.expressions.remote_calls import mentions_remote
from spark_cep.planner.choice import PlanChoice, PlanFacts, choose_plan
from spark_cep.planner.layout import (
    BUCKETS_CONF,
    SLICES_CONF,
    Layout,
    LayoutFacts,
    Slicing,
    choose_layout,
    choose_slicing,
)
from spark_cep.planner.named_plans import check_plan_request
from spark_cep.planner.payload import (
    LEAST_ROW_BYTES,
    PAYLOAD_CONF,
    PayloadChoice,
    PayloadSize,
    choose_by_cost,
    estimate_shares,
    find_too_small,
    parse_payload_setting,
)
from spark_cep.planner.statistics import (
    SAMPLE_CONF,
    SECONDS_CONF,
    NoSample,
    Sample,
    check_statistics,
    is_sampling_on,
    needed_columns,
    sample_seconds,
    with_statistics,
)
from spark_cep.remotes.sources import check_remotes_used, pattern_texts
from spark_cep.shed import check_can_drop_partials, check_can_shed, check_history
from spark_cep.spark.keys import check_ordered_by_bytes, resolve_keys, resolve_order
from spark_cep.spark.lookups import (
    MetricsSink,
    RemoteSources,
    add_values,
    engine_remotes,
    lookups_of,
    needs_fetch,
)
from spark_cep.spark.partial_shedding import PartialQuery, plan_partial_shedding
from spark_cep.spark.payload import PayloadJoin, add_identity, find_no_identity
from spark_cep.spark.prepare import (
    PreparedRows,
    add_mask,
    candidate_mask,
    filter_candidates,
    select_places,
    select_shipped,
    shipped_column,
)
from spark_cep.spark.projection import MatchFrame, event_schema, project_matches
from spark_cep.spark.query import NO_OBSERVERS, RowObservers
from spark_cep.spark.remote_report import add_remote_facts, event_calls_by_column, event_places
from spark_cep.spark.report import add_payload_facts, add_stream_facts, build_report, job_title
from spark_cep.spark.sample import SampleRequest, take_sample
from spark_cep.spark.shedding import (
    SheddingPlan,
    StreamSheddingPlan,
    filter_kept,
    mark_shed_rows,
    measure_recall,
    plan_shedding,
    plan_stream_shedding,
    sample_kept_rows,
    shed_counts,
)
from spark_cep.spark.shedding_report import (
    add_partial_shedding_facts,
    add_shedding_facts,
    add_stream_shedding_facts,
)
from spark_cep.spark.source import count_cores, estimate_bytes, estimate_size, row_bytes
from spark_cep.spark.stream import (
    check_bounded,
    check_consumption,
    check_max_wait,
    check_watermark,
)
from spark_cep.spark.typing import SparkTyper
from spark_cep.udfs.execution.shedding import StageBound, overtime
from spark_cep.udfs.program import Adaptation, Program
from spark_cep.udfs.shedding.partial_matches import drops_partials

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from spark_cep.events.compiled import CompiledEventQuery, CompiledPattern
    from spark_cep.explanation.plan import MatchPlan
    from spark_cep.expressions.schema import RowExpression
    from spark_cep.expressions.shipment import Shipment
    from spark_cep.options import MatchRequest
    from spark_cep.spark.partial_shedding import PartialSheddingPlan
    from spark_cep.spark.source import SourceFrame
    from spark_cep.udfs.canonical import Data
    from spark_cep.udfs.output import EventOutput
    from spark_cep.udfs.remote_spec import RemoteSpec
    from spark_cep.udfs.shedding.utility import StreamSheddingSpec


def prepare_event_query(source: SourceFrame, request: MatchRequest) -> EventQuery:
    """Compiles the pattern. All that can be wrong with what the user wrote is found here."""
    remotes = RemoteSources(request.options.remotes, source.df.sparkSession)
    typer = SparkTyper(source.df)
    without_payload: list[tuple[Shipment, AnswerShape]] = []

    def lay_out(
        compiled: CompiledPattern, shipment: Shipment, shown: Sequence[tuple[str, int]]
    ) -> AnswerShape:
        check_ordered_by_bytes(source.df, compiled.orders)
        if request.options.measures is None and request.options.rows == "one":
            narrow = shipment.as_now()
            reads = _columns_after(source, compiled, typer)
            found = lay_out_identities(compiled, narrow, shown, names=source.names(), reads=reads)
            without_payload.append((narrow, found))
        measures = _compile_measures(source, request, compiled, remotes)
        rows = request.options.rows
        return lay_out_answer(
            compiled, shipment, shown, names=source.names(), rows=rows, measures=measures
        )

    query = compile_event_query(
        request.pattern,
        source.columns,
        order_by=resolve_order(source.df, request.order_by),
        partition_by=request.partition_by,
        typer=typer,
        # The typer's rows have the looked-up columns too, which inferred keys may read.
        canonical_keys=lambda *texts: resolve_keys(typer.df, *texts),
        lay_out_answer=lay_out,
        case_sensitive=source.case_sensitive,
        ansi=source.is_on("spark.sql.ansi.enabled"),
        time_zone=source.setting("spark.sql.session.timeZone", "UTC"),
        lookups=lookups_of(remotes, source, typer),
        limits=request.options.limits,
    )
    # A misspelled name of a source is reported before the one that then is used nowhere.
    check_remotes_used(request.options.remotes, _remote_texts(request))
    _check_request(request, query.compiled)
    narrow = None
    for shipment, answer in without_payload:
        mask = shipment.special("mask", "candidates")
        if _columns_of(query.shipment) - _columns_of(shipment):
            narrow = replace(query, shipment=shipment, answer=answer, mask=mask)
    return EventQuery(request, source, remotes, query, narrow)


def _columns_of(shipment: Shipment) -> set[str]:
    return {each.column for each in shipment.shipped if each.column is not None}


def _columns_after(
    source: SourceFrame, compiled: CompiledPattern, typer: SparkTyper
) -> Mapping[int, frozenset[str]]:
    """What Spark's conditions on matches read of each variable id."""
    if not compiled.after:
        return {}
    case_sensitive = source.case_sensitive
    return compile_measures(
        [], compiled, source.columns, typer=typer, case_sensitive=case_sensitive
    ).reads


def _compile_measures(
    source: SourceFrame, request: MatchRequest, compiled: CompiledPattern, remotes: RemoteSources
) -> AnswerMeasures | None:
    written = request.options.measures
    if written is None:
        return None
    found = compile_remote_measures(
        written,
        compiled,
        source.columns,
        typer=SparkTyper(
            source.df, order=compiled.orders[0].expression, partition=compiled.partition
        ),
        case_sensitive=source.case_sensitive,
        types=remotes.types() if any(mentions_remote(text) for _, text in written) else {},
    )
    texts = dict(written)
    measures = [AnswerMeasure(each.name, each.text, texts[each.name]) for each in found.measures]
    return AnswerMeasures(tuple(measures), found.reads, found.sought)


def _remote_texts(request: MatchRequest) -> Iterator[object]:
    """All that may name a remote source."""
    yield from pattern_texts(request.pattern)
    yield from (text for _, text in request.options.measures or ())


def _check_request(request: MatchRequest, compiled: CompiledPattern) -> None:
    """What the user says of plans, data and shedding has to fit this pattern."""
    options = request.options
    if options.statistics is not None:
        check_statistics(options.statistics, compiled.variables)
    check_plan_request(options.plan_request, compiled.variables, compiled.branches)
    if options.shed is not None:
        check_can_shed(compiled)
        if drops_partials(options.shed.policy):
            check_can_drop_partials(options.shed.policy, compiled, options.plan_request)


@dataclass(frozen=True)
class EventQuery:
    """Implements `Query`. `with_payload` ships all columns that the answer shows; `narrow` the
    identities of rows instead, by which their payload is joined to the matches. None: the answer
    has no payload to join."""

    request: MatchRequest
    source: SourceFrame
    remotes: RemoteSources
    with_payload: CompiledEventQuery
    narrow: CompiledEventQuery | None = None

    @property
    def query(self) -> CompiledEventQuery:
        """The one of both that runs. A sample may be read to choose it."""
        if self._payload is None or not self._payload.joins:
            return self.with_payload
        assert self.narrow is not None
        return self.narrow

    @property
    def compiled(self) -> CompiledPattern:
        return self.with_payload.compiled

    @property
    def answer(self) -> AnswerShape:
        assert self.query.answer is not None
        return self.query.answer

    # ---- rows --------------------------------------------------------------------------------

    @property
    def fetches(self) -> bool:
        return needs_fetch(self.compiled)

    @property
    def sheds(self) -> bool:
        return self._shedding is not None and bool(self._shedding.kinds)

    @property
    def loses_matches(self) -> bool:
        return self.sheds or (self._partials is not None and self._partials.rule is not None)

    def rows(self, observers: RowObservers = NO_OBSERVERS) -> PreparedRows:
        if observers.lookups is None:
            rows = self._marked
        else:
            rows = self._mark(self._add_mask(self._source_rows, MetricsSink(observers.lookups)))
        if self.sheds:
            counted = self._shed_observer(observers)
            rows = filter_kept(rows if counted is None else counted(rows))
        return select_shipped(rows, self.query.shipment)

    @cached_property
    def _marked(self) -> DataFrame:
        return self._mark(self._masked)

    def _mark(self, masked: DataFrame) -> DataFrame:
        """The rows that can matter, marked if some are dropped."""
        is_streaming = self.source.is_streaming
        rows = filter_candidates(masked, self.compiled, is_streaming=is_streaming)
        return rows if self._shedding is None else mark_shed_rows(rows, self._shedding)

    def _shed_observer(self, observers: RowObservers) -> Callable[[DataFrame], DataFrame] | None:
        shed = observers.shed
        if shed is None:
            return None
        counts = shed_counts(self.compiled.variables)
        return lambda df: shed(df, counts)

    @cached_property
    def _masked(self) -> DataFrame:
        """All rows, with what is looked up before matching and their candidate mask."""
        return self._add_mask(self._source_rows)

    @cached_property
    def _source_rows(self) -> DataFrame:
        """The input, with the identity of its rows if their payload is joined."""
        df = self.source.df
        return add_identity(df) if self.query is self.narrow else df

    def _add_mask(self, df: DataFrame, counts: MetricsSink | None = None) -> DataFrame:
        rows = add_values(df, self.compiled, self.remotes, counts)
        return add_mask(rows, candidate_mask(self.compiled.masks))

    # ---- shedding ----------------------------------------------------------------------------

    @cached_property
    def _partials(self) -> PartialSheddingPlan | None:
        """How partial matches are shed, with the plan for it."""
        shed = self.request.options.shed
        if shed is None or not drops_partials(shed.policy):
            return None
        past = None
        if shed.history is not None:
            check_history(self.source.df, shed.history)
            past = self._add_mask(shed.history)
        query = PartialQuery(self.source, self.query, self._unplanned, shed, self._plan_facts)
        return plan_partial_shedding(query, self._masked, past)

    @cached_property
    def _shedding(self) -> SheddingPlan | None:
        """Which rows Spark drops: in a batch, or where a history says what a stream may drop."""
        if self._stream_shedding is not None:
            return self._stream_shedding.before
        shed = self.request.options.shed
        if shed is None or self.source.is_streaming or self._partials is not None:
            return None
        if shed.history is not None:
            check_history(self.source.df, shed.history)
        found = plan_shedding(self.source, self._masked, self.query, self._unplanned, shed)
        if found.kinds and not found.cost.pays:
            spent, saved = (format_seconds(each) for each in (found.cost.spent, found.cost.saved))
            warn_user(
                f"shedding is expected to cost more than it saves: choosing among "
                f"{found.looked.size} rows takes {spent}, and saves {saved} of moving and "
                "matching them"
            )
        return found

    @cached_property
    def _stream_shedding(self) -> StreamSheddingPlan | None:
        """What may be dropped of a stream, and where. A history is read now."""
        shed = self.request.options.shed
        if shed is None or not self.source.is_streaming or self._partials is not None:
            return None
        past = None
        if shed.history is not None:
            check_history(self.source.df, shed.history)
            past = self._add_mask(shed.history)
        return plan_stream_shedding(
            self.source, (self._masked, past), self.query, self._unplanned, shed
        )

    @property
    def worker_shedding(self) -> StreamSheddingSpec | None:
        if self._partials is not None:
            return self._partials.in_front
        return None if self._stream_shedding is None else self._stream_shedding.in_front

    @property
    def bound(self) -> StageBound | None:
        shed, shedding = self.request.options.shed, self._shedding
        seconds = None if shed is None else shed.latency_seconds()
        if shed is None or seconds is None or self.source.is_streaming:
            return None
        if self._partials is not None:
            rows = float(self._partials.rows)
        else:
            assert shedding is not None
            rows = shedding.share * shedding.looked.rows
        cores = count_cores(self.source.df.sparkSession)
        return StageBound(seconds * shed.safety * overtime(shed.safety), rows, cores)

    def recall(self) -> tuple[int, int] | None:
        if self._partials is not None:
            return self._partials.measure_recall()
        assert self._shedding is not None
        return measure_recall(self._shedding.looked, self._shedding.kinds)

    # ---- the plan ------------------------------------------------------------------------------

    @property
    def _plan_facts(self) -> PlanFacts:
        """What is known for the choice of a plan, without estimates."""
        options, compiled = self.request.options, self.compiled
        return PlanFacts(
            compiled.variables, compiled.strategy, options.plan_request, compiled.branches,
            compiled.conditions, in_batch=not self.source.is_streaming,
        )  # fmt: skip

    @cached_property
    def _choice(self) -> PlanChoice:
        if self._partials is not None:
            return self._partials.choice
        options, sample, facts = self.request.options, self._sample, self._plan_facts
        if isinstance(sample, Sample):
            unit = "in all" if sample.complete else "a million rows"
            stay = "" if options.shed is None else " that stay"
            source = f"{sample.source()}{stay}"
            facts = replace(facts, estimates=sample.estimates, source=source, unit=unit)
            if sample.estimates is None and sample.rows:
                facts = replace(facts, notes=(f"no variable accepts any of {source}",))
        elif sample.reason:
            facts = replace(facts, notes=(sample.reason,))
        if options.statistics is not None:
            facts = with_statistics(facts, options.statistics)
        return choose_plan(facts)

    @cached_property
    def _sample(self) -> Sample | NoSample:
        """Taken only if something depends on it: the plan is open and the user gave no rates."""
        options, compiled = self.request.options, self.compiled
        has_rates = options.statistics is not None and options.statistics.rates
        if has_rates or not options.plan_request.is_open or compiled.strategy != "any":
            return NoSample()
        if self._partials is not None:
            return NoSample("shedding has its own sample")
        if self.source.is_streaming:
            return NoSample("no sample of a stream: each bucket plans from what it has seen")
        if not is_sampling_on(self.source.setting(SAMPLE_CONF)):
            return NoSample(f"no sample, for {SAMPLE_CONF} is off")
        seconds = sample_seconds(self.source.setting(SECONDS_CONF))
        if self._shedding is not None:
            return sample_kept_rows(self._shedding.looked, self._shedding.kinds)
        shipment = self.with_payload.shipment
        shipped = shipment.shipped
        places = needed_columns(self._unplanned)
        reads = [shipped[place].expression for place in places]
        request = SampleRequest(
            self._unplanned,
            lambda df: select_places(self._sampled_rows(df), shipment, places),
            reads=[*reads, *(text for texts in compiled.masks for text in texts)],
            by_itself=self._looks_up,
            key=self._sample_key(reads),
        )
        return take_sample(self.source.df, request, seconds)

    @property
    def _looks_up(self) -> bool:
        return bool(self.compiled.lookups or self.compiled.remotes)

    def _sampled_rows(self, df: DataFrame) -> DataFrame:
        """The rows of the input, or of its first rows, that a sample is made of."""
        return self._add_mask(df)

    def _sample_key(self, shipped: Sequence[RowExpression]) -> str | None:
        """What a sample is made of; None where two queries cannot be compared: a Column and a
        remote source say nothing of themselves."""
        compiled = self.compiled
        texts = [*shipped, *(text for texts in compiled.masks for text in texts)]
        if not all(isinstance(each, str) for each in texts):
            return None
        if self._looks_up:
            return None
        said = (shipped, compiled.masks, compiled.window, compiled.conditions, compiled.branches)
        return repr(said)

    def layout(self, shipped: DataFrame) -> Layout:
        compiled, sample = self.compiled, self._sample
        slicing = choose_slicing(
            compiled.branches,
            compiled.window,
            compiled.orders[0].type,
            (compiled.strategy, compiled.consumption),
        )
        known = sample if isinstance(sample, Sample) else None
        rows = known.rows if known is not None and known.complete else None
        return choose_layout(
            LayoutFacts(
                size=estimate_size(shipped, rows, self.source.df),
                has_keys=bool(self.query.keys),
                slicing=slicing,
                forced_buckets=self.source.setting(BUCKETS_CONF),
                forced_slices=self.source.setting(SLICES_CONF),
            )
        )

    # ---- the program and its answer --------------------------------------------------------------

    @cached_property
    def _remote_specs(self) -> tuple[RemoteSpec, ...]:
        """How the engine asks its sources. Tables among them are collected now."""
        return tuple(each.remote for each in engine_remotes(self.compiled, self.remotes))

    @cached_property
    def _unplanned(self) -> Program:
        """The program before a plan is chosen, to make statistics with."""
        return self.with_payload.program(remotes=self._remote_specs)

    def _over(self, slicing: Slicing | None) -> CompiledEventQuery:
        return self.query if slicing is None else self.query.with_slices()

    def program(self, slicing: Slicing | None = None) -> Program:
        choice = self._choice
        return self._over(slicing).program(
            choice.plan,
            adaptation=self._adaptation(choice),
            estimates=choice.estimates,
            costs=choice.costs,
            remotes=self._remote_specs,
            planner=choice.planner or "dp",
            optimize=self.request.options.optimize,
            dropping=None if self._partials is None else self._partials.rule,
        )

    def _adaptation(self, choice: PlanChoice) -> Adaptation:
        options = self.request.options
        if not choice.adapts:
            return Adaptation()
        request = options.plan_request
        is_auto = (request.kind, request.planner) == ("auto", "dp")
        is_auto = is_auto and options.adaptation.kind != "off"
        to_hybrid = self.source.is_streaming and (is_auto or request.kind == "hybrid")
        return replace(options.adaptation, to_tree=is_auto, to_hybrid=to_hybrid)

    @property
    def output(self) -> EventOutput:
        return self.answer.output

    def worker_schema(self, shipped: StructType) -> StructType:
        return event_schema(self.output, self.compiled.variables, shipped)

    def project(self, matches: MatchFrame, raw: StructType) -> DataFrame:
        compiled, answer = self.compiled, self.answer
        if self.query is not self.narrow:
            return project_matches(matches, answer, compiled.variables, raw, compiled.after)
        rows = filter_candidates(self._masked, compiled)
        expected = self._shipping_schema()
        join = PayloadJoin(answer, compiled.variables, compiled.after, rows, expected)
        return join.project(matches, raw)

    def _shipping_schema(self) -> StructType:
        """The schema of the answer with a shipped payload. Nothing runs for it."""
        compiled, answer = self.compiled, self.with_payload.answer
        assert answer is not None
        shipped = select_shipped(self._masked, self.with_payload.shipment)
        schema = event_schema(answer.output, compiled.variables, shipped.df.schema)
        matches = shipped.df.mapInArrow(lambda batches: batches, schema)
        found = MatchFrame(matches, lambda df: df, self.remotes)
        return project_matches(found, answer, compiled.variables, shipped.raw, ()).schema

    # ---- the payload ---------------------------------------------------------------------------

    @cached_property
    def _payload(self) -> PayloadChoice | None:
        """Whether the payload is joined; None: there is none."""
        if self.narrow is None:
            return None
        setting = parse_payload_setting(self.source.setting(PAYLOAD_CONF))
        if setting == "ship":
            return PayloadChoice(False, f"set by {PAYLOAD_CONF}")
        refusal = self._payload_refusal()
        if refusal is None and setting == "auto":
            refusal = find_too_small(self._payload_size(self.narrow))
        if refusal is None:
            refusal = find_no_identity(self._add_mask(self.source.df))
        if refusal is not None:
            return PayloadChoice(False, refusal)
        if setting == "join":
            return PayloadChoice(True, f"set by {PAYLOAD_CONF}")
        return choose_by_cost(estimate_shares(self.compiled, self._sample))

    def _payload_refusal(self) -> str | None:
        """What of the request does not go with a join."""
        if self.source.is_streaming:
            return "a stream is read once"
        if self._looks_up:
            return "the pattern reads remote data"
        if self.request.options.shed is not None:
            return "rows are shed"
        if not all(branch.filled() for branch in self.compiled.branches):
            return "a match may have no rows"
        return None

    def _payload_size(self, narrow: CompiledEventQuery) -> PayloadSize:
        schema = self.source.df.schema
        shipped = _columns_of(narrow.shipment)
        payload = row_bytes(field for field in schema if field.name not in shipped)
        # Spark's optimizer is not asked where the answer does not depend on it.
        size = estimate_bytes(self.source.df) if payload >= LEAST_ROW_BYTES else None
        return PayloadSize(payload, None if size is None else size * payload // row_bytes(schema))

    # ---- reports -------------------------------------------------------------------------------

    def title(self, layout: Layout, number: int) -> str:
        del layout
        shedding = self._shedding
        shed = None if self._stream_shedding is None else self._stream_shedding.asked
        decided = self._choice, self._partials or shedding or shed
        return job_title(self.request.pattern, self.compiled, decided, number)

    def report(self, layout: Layout, number: int) -> MatchPlan:
        compiled, program = self.compiled, self.program(layout.slicing)
        plan = build_report(
            self.request.pattern,
            compiled,
            self._over(layout.slicing).shipment,
            (self._choice, layout, self.answer, program),
            number,
        )
        if self.source.is_streaming:
            plan = add_stream_facts(plan, program)
        if self._payload is not None:
            plan = add_payload_facts(plan, self._payload)
        places = event_places(compiled, self.answer.sought, self.remotes)
        plan = add_remote_facts(plan, self.remotes, places, event_calls_by_column(compiled))
        if self._partials is not None:
            return add_partial_shedding_facts(plan, self._partials, compiled)
        if self._stream_shedding is not None:
            return add_stream_shedding_facts(plan, self._stream_shedding, compiled)
        if self._shedding is not None:
            return add_shedding_facts(plan, self._shedding, compiled)
        return plan

    # ---- streams -------------------------------------------------------------------------------

    def check_stream(self) -> None:
        compiled, order = self.compiled, self.query.orders[0]
        check_bounded(compiled.window, self.request.options.limits)
        check_consumption(compiled)
        outside = {each.remote.name for each in compiled.lookups}
        check_max_wait(self.remotes.remotes, outside | {e.remote for e in self.answer.sought})
        time = shipped_column(self.query.shipment.shipped[order.column])
        schema = self.source.df.select(time.alias("time")).schema
        check_watermark(schema["time"], str(compiled.orders[0].expression))

    def form(self) -> Data:
        return self.query.form(self.program())
