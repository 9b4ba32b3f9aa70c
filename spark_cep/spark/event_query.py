"""What travels: the pattern compiled against the input's columns, keys that are equal when Spark
says so, and the columns that the answer needs. No plan yet, no rows moved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_cep.events.compile import compile_pattern
from spark_cep.events.measures import compile_remote_measures
from spark_cep.expressions.remote_calls import mentions_remote
from spark_cep.expressions.shipment import Shipment
from spark_cep.planner.choice import PlanChoice, PlanFacts, choose_plan
from spark_cep.planner.named_plans import check_plan_request
from spark_cep.planner.sample import (
    SAMPLE_CONF,
    SAMPLE_ROWS,
    NoSample,
    Sample,
    is_sampling_on,
    needed_columns,
)
from spark_cep.planner.statistics import check_statistics, with_statistics
from spark_cep.remotes.sources import check_remotes_used, pattern_texts
from spark_cep.spark import prepare
from spark_cep.spark.keys import (
    CanonicalKey,
    check_groupable,
    check_ordered_by_bytes,
    resolve_keys,
    resolve_order,
)
from spark_cep.spark.lookups import RemoteSources, add_values, engine_remotes, lookups_of
from spark_cep.spark.projection import (
    AnswerInputs,
    AnswerKind,
    AnswerMeasure,
    AnswerRequest,
    AnswerShape,
    build_answer_shape,
    check_names,
)
from spark_cep.spark.sample import take_sample
from spark_cep.spark.typing import SparkTyper, quote_column
from spark_cep.udfs.program import Adaptation, Order, Plan, Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame

    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.events.measures import CompiledMeasures
    from spark_cep.expressions.remote_calls import LookupRequest
    from spark_cep.options import MatchRequest, Options
    from spark_cep.spark.lookups import MetricsSink
    from spark_cep.spark.source import SourceFrame


@dataclass(frozen=True)
class PreparedPattern:
    """What travels: the compiled pattern over `shipment`, and where things are in it."""

    compiled: CompiledPattern
    shipment: Shipment
    keys: tuple[CanonicalKey, ...]
    key_columns: tuple[int, ...]
    orders: tuple[Order, ...]
    mask: int
    answer: AnswerShape
    ansi: bool
    sources: RemoteSources


def prepare_pattern(source: SourceFrame, asked: MatchRequest) -> PreparedPattern:
    """Everything that the user can have done wrong in texts is said here."""
    shipment = Shipment(source.names(), case_sensitive=source.case_sensitive)
    ansi = source.is_on("spark.sql.ansi.enabled", "true")
    sources, typer = (
        RemoteSources(asked.options.remotes, source.df.sparkSession),
        SparkTyper(source.df),
    )
    compiled = compile_pattern(
        asked.pattern,
        source.columns,
        order_by=resolve_order(source.df, asked.order_by),
        partition_by=asked.partition_by,
        typer=typer,
        shipment=shipment,
        case_sensitive=source.case_sensitive,
        ansi=ansi,
        time_zone=source.setting("spark.sql.session.timeZone", "UTC"),
        lookups=lookups_of(sources, source, typer),
    )
    check_groupable(source.df, compiled.partition)
    check_ordered_by_bytes(source.df, compiled.orders)
    texts = [*map(quote_column, compiled.partition), *compiled.inferred]
    keys = resolve_keys(typer.df, texts)
    columns = tuple(
        shipment.column(text if key.plain else key.canonical)
        for text, key in zip(texts, keys, strict=True)
    )
    orders = tuple(
        Order(shipment.column(each.expression), each.type, each.descending, each.nulls_first)
        for each in compiled.orders
    )
    shown = [
        (name, column if key.shows else shipment.column(quote_column(name)))
        for name, key, column in zip(compiled.partition, keys, columns, strict=False)
    ]
    answer = _build_answer(source, (asked, sources), compiled, shipment, shown)
    # A name that is misspelled is told of before the one that then is used nowhere.
    check_remotes_used(asked.options.remotes, _remote_texts(asked))
    mask = shipment.special("mask", "candidates")
    return PreparedPattern(compiled, shipment, keys, columns, orders, mask, answer, ansi, sources)


def _remote_texts(asked: MatchRequest) -> Iterator[object]:
    """All that may name a remote source."""
    yield from pattern_texts(asked.pattern)
    yield from (text for _, text in asked.options.measures or ())


def _compile_measures(
    source: SourceFrame, asked: MatchRequest, compiled: CompiledPattern, sources: RemoteSources
) -> CompiledMeasures:
    assert asked.options.measures is not None
    typer = SparkTyper(source.df, order=compiled.orders[0].expression, partition=compiled.partition)
    asks = any(mentions_remote(text) for _, text in asked.options.measures)
    types = sources.types() if asks else {}
    return compile_remote_measures(
        asked.options.measures,
        compiled,
        source.columns,
        typer=typer,
        case_sensitive=source.case_sensitive,
        types=types,
    )


def _build_answer(
    source: SourceFrame,
    wants: tuple[MatchRequest, RemoteSources],
    compiled: CompiledPattern,
    shipment: Shipment,
    shown: Sequence[tuple[str, int]],
) -> AnswerShape:
    asked, sources = wants
    order = compiled.orders[0].expression
    measures: tuple[AnswerMeasure, ...] = ()
    sought: tuple[LookupRequest, ...] = ()
    reads = None
    if asked.options.measures is not None:
        found = _compile_measures(source, asked, compiled, sources)
        texts = dict(asked.options.measures)
        measures = tuple(
            AnswerMeasure(each.name, each.text, texts[each.name]) for each in found.measures
        )
        reads, sought = found.reads, found.sought
    shape: AnswerKind = (
        "measures" if measures else ("rows" if asked.options.rows == "all" else "structs")
    )
    wanted = AnswerRequest(shape, measures, reads, compiled.after, sought, compiled.hidden)
    check_names(wanted, compiled.variables, source.names(), compiled.partition)
    always = frozenset.intersection(*(branch.filled() for branch in compiled.branches))
    given = AnswerInputs(source.names(), tuple(shown), shipment.column(order), always)
    return build_answer_shape(wanted, compiled.variables, given, shipment)


# --------------------------------------------------------------------------------------------------
# The rows that a pattern looks at: the input with what is looked up before matching, and the mask
# that says of each row which variables it may be.
# --------------------------------------------------------------------------------------------------


def add_candidate_mask(
    df: DataFrame, shipping: PreparedPattern, counts: MetricsSink | None = None
) -> DataFrame:
    """All rows of `df`. `counts` receives what was looked up."""
    rows = add_values(df, shipping.compiled, shipping.sources, counts)
    return prepare.add_mask(rows, prepare.candidate_mask(shipping.compiled.masks))


# --------------------------------------------------------------------------------------------------
# How it is run: a look at a sample where something hangs on it, then the choice of a plan.
# --------------------------------------------------------------------------------------------------


def check_request(asked: MatchRequest, compiled: CompiledPattern) -> None:
    """What the user says of plans and data has to be about this pattern."""
    options = asked.options
    if options.statistics is not None:
        check_statistics(options.statistics, compiled.variables)
    check_plan_request(options.wish, compiled.variables, compiled.branches)


def plan_query(
    source: SourceFrame, masked: DataFrame, shipping: PreparedPattern, asked: MatchRequest
) -> tuple[Program, PlanChoice, Sample | None]:
    """The program with its plan, why it has that one, and the sample if one was taken. `masked`:
    the input with the candidate mask."""
    options, compiled = asked.options, shipping.compiled
    program = build_program(asked, shipping)
    found = _take_sample(source, masked, shipping, program, asked)
    facts = _choice_facts(asked, compiled, found)
    choice = choose_plan(replace(facts, in_batch=not source.is_streaming))
    program = replace(
        program,
        plan=choice.plan,
        adaptation=_choose_adaptation(options, choice, is_streaming=source.is_streaming),
        estimates=choice.estimates,
        costs=choice.costs,
    )
    return program, choice, found if isinstance(found, Sample) else None


def _choose_adaptation(options: Options, choice: PlanChoice, *, is_streaming: bool) -> Adaptation:
    if not choice.adapts:
        return Adaptation()
    is_auto = options.wish.kind == "auto" and options.adaptation.kind != "off"
    return replace(options.adaptation, to_tree=is_auto, to_hybrid=is_auto and is_streaming)


def _take_sample(
    source: SourceFrame,
    masked: DataFrame,
    shipping: PreparedPattern,
    program: Program,
    asked: MatchRequest,
) -> Sample | NoSample:
    """Only if something hangs on it: the plan is open and the user gave no rates."""
    options, compiled = asked.options, shipping.compiled
    has_rates = options.statistics is not None and options.statistics.rates
    if has_rates or not options.wish.is_open or compiled.strategy != "any":
        return NoSample()
    if source.is_streaming:
        return NoSample("no sample of a stream: each bucket plans from what it has seen")
    if not is_sampling_on(source.setting(SAMPLE_CONF)):
        return NoSample(f"no sample, for {SAMPLE_CONF} is off")
    places = needed_columns(program)
    shipped = [shipping.shipment.shipped[place].expression for place in places]
    said = (shipped, compiled.masks, compiled.window, compiled.conditions, compiled.branches)
    # What a remote source is cannot be compared either.
    known = not (_has_columns(shipped, compiled) or compiled.lookups or compiled.remotes)
    # Of rows that were shed a sample is one of what is left.
    known = known and options.shed is None
    key = repr(said) if known else None
    return take_sample(
        source.df,
        key,
        lambda: prepare.select_places(masked.limit(SAMPLE_ROWS), shipping.shipment, places),
        program,
    )


def _has_columns(shipped: Sequence[str | Column], compiled: CompiledPattern) -> bool:
    """A Column says nothing of itself that could be compared."""
    masks = [text for texts in compiled.masks for text in texts]
    return not all(isinstance(each, str) for each in (*shipped, *masks))


def _choice_facts(
    asked: MatchRequest, compiled: CompiledPattern, sample: Sample | NoSample
) -> PlanFacts:
    statistics = asked.options.statistics
    facts = PlanFacts(
        compiled.variables, compiled.strategy, asked.options.wish, compiled.branches,
        compiled.conditions,
    )  # fmt: skip
    if isinstance(sample, Sample):
        unit = "in all" if sample.complete else "a million rows"
        stay = "" if asked.options.shed is None else " that stay"
        source = f"{sample.source()}{stay}"
        facts = replace(facts, estimates=sample.estimates, source=source, unit=unit)
        if sample.estimates is None and sample.rows:
            facts = replace(facts, notes=(f"no variable accepts any of {source}",))
    elif sample.reason:
        facts = replace(facts, notes=(sample.reason,))
    return facts if statistics is None else with_statistics(facts, statistics)


def build_program(asked: MatchRequest, shipping: PreparedPattern) -> Program:
    """All but how it is run."""
    compiled = shipping.compiled
    return Program(
        columns=shipping.shipment.names(),
        keys=shipping.key_columns,
        orders=shipping.orders,
        mask=shipping.mask,
        variables=compiled.variables,
        conditions=compiled.conditions,
        tree=compiled.tree,
        branches=compiled.branches,
        plan=Plan("eager"),
        window=compiled.window,
        strategy=compiled.strategy,
        consumption=compiled.consumption,
        limits=asked.options.limits,
        ansi=shipping.ansi,
        remotes=tuple(each.remote for each in engine_remotes(compiled, shipping.sources)),
    )
