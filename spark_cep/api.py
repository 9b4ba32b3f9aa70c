"""`match_pattern`: from a DataFrame and a pattern to the DataFrame of its matches.

    compile -> ship -> look at a sample -> choose -> deal to buckets -> engine -> project

Lazy: besides the sample, which reads a bounded number of rows, no Spark job runs here. All that
the user can have done wrong is said here, before any job.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql.pandas.types import to_arrow_schema

from spark_cep.errors import PlanError
from spark_cep.explanation import page
from spark_cep.explanation.comparison import comparison_lines
from spark_cep.options import MatchRequest, check_options, check_pattern, check_row_options
from spark_cep.planner.layout import (
    BUCKETS_CONF,
    SLICES_CONF,
    Layout,
    LayoutFacts,
    choose_layout,
    choose_slicing,
)
from spark_cep.row_patterns import RowPattern
from spark_cep.shed import check_can_shed, check_history
from spark_cep.spark import prepare
from spark_cep.spark.entry import bucket_entry
from spark_cep.spark.event_query import (
    PreparedPattern,
    add_candidate_mask,
    build_program,
    check_request,
    plan_query,
    prepare_pattern,
)
from spark_cep.spark.keys import with_partition_columns
from spark_cep.spark.lookups import MetricsSink, needs_fetch
from spark_cep.spark.metrics import (
    AnswerObservations,
    AnswerRecord,
    analyze_answers,
    keep_record,
    new_answer_number,
    observe_answer,
    observe_lookups,
    observe_shed,
    records_of,
)
from spark_cep.spark.projection import MatchFrame, project_matches, worker_schema
from spark_cep.spark.remote_report import add_remote_facts, event_calls_by_column, event_places
from spark_cep.spark.report import build_report, job_title
from spark_cep.spark.row_query import match_rows
from spark_cep.spark.shedding import (
    SheddingPlan,
    drop_shed_rows,
    measure_recall,
    plan_shedding,
    shed_counts,
)
from spark_cep.spark.shedding_report import add_shedding_facts
from spark_cep.spark.sizes import estimate_size
from spark_cep.spark.source import SourceFrame, read_source
from spark_cep.spark.stream import match_stream
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.explanation.plan import MatchPlan
    from spark_cep.pattern import Pattern
    from spark_cep.planner.sample import Sample
    from spark_cep.statistics import Statistics
    from spark_cep.udfs.program import Limits


@public
def plan_of(df: DataFrame) -> MatchPlan:
    """The plan behind a DataFrame that came out of `match_pattern`, or was derived from one."""
    found = records_of(df)
    if len(found) > 1:
        raise PlanError(
            f"{len(found)} patterns were matched for this DataFrame",
            hint="ask for the plan of the one that you mean; cep.explain(df) prints all",
        )
    return found[0].plan


@public
def explain(df: DataFrame, mode: str = "text") -> None:
    """Prints the plan; `mode` is "text", "json", "html" or "analyze".

    "html" is a page to be written to a file; a notebook shows the same for `cep.plan_of(df)`.
    "analyze" runs the query, and prints what was measured beside what was estimated.
    """
    show = _MODES.get(mode)
    if show is None:
        raise PlanError(
            f"{mode!r} is no mode of explain", hint='use mode="text", "json", "html" or "analyze"'
        )
    sys.stdout.write(show(df) + "\n")


def _explain_text(df: DataFrame) -> str:
    return "\n\n".join(str(record.plan) for record in records_of(df))


def _explain_json(df: DataFrame) -> str:
    dicts = [record.plan.to_dict() for record in records_of(df)]
    whole = dicts[0] if len(dicts) == 1 else dicts
    return json.dumps(whole, indent=2, ensure_ascii=False)


def _explain_html(df: DataFrame) -> str:
    return page.render_page([record.plan.facts for record in records_of(df)])


def _explain_analyze(df: DataFrame) -> str:
    return "\n\n".join("\n".join(comparison_lines(each)) for each in analyze_answers(df))


_MODES: Mapping[str, Callable[[DataFrame], str]] = {
    "text": _explain_text,
    "json": _explain_json,
    "html": _explain_html,
    "analyze": _explain_analyze,
}


@public
def match_pattern(  # noqa: PLR0913 - the public signature
    df: DataFrame,
    pattern: Pattern | RowPattern,
    *,
    order_by: str | Column | Sequence[str | Column] | None = None,
    partition_by: str | Column | Sequence[str | Column] | None = None,
    measures: Mapping[str, str] | None = None,
    rows: str = "one",
    after_match: str | None = None,
    plan: Any = "auto",
    statistics: Statistics | None = None,
    adapt: Any = "invariants",
    remotes: Mapping[str, Any] | None = None,
    shed: Any = None,
    limits: Limits | None = None,
) -> DataFrame:
    """The matches of a pattern in the rows of `df`.

    Of an event pattern one row for each match: the partition columns, a struct for each positive
    variable (an array of structs for a Kleene variable, NULL for one that the match leaves
    unfilled), `match_start` and `match_end`. `measures` gives expressions over the variables
    instead of the structs, `rows="all"` one row for each matched event.

    `partition_by` takes names and Columns. A Column that is more than a reference is added to the
    input under its own name, as by `df.withColumn`.

    Of a row pattern what MATCH_RECOGNIZE gives: the partition columns and the measures; with
    `rows="all"` and its forms a row for each matched row, all its columns included.
    """
    if isinstance(pattern, RowPattern):
        row_options = check_row_options(
            rows=rows, measures=measures, plan=plan, statistics=statistics, limits=limits,
            after_match=after_match, remotes=remotes, shed=shed,
        )  # fmt: skip
        source, keys = with_partition_columns(read_source(df), partition_by)
        return match_rows(source, pattern, row_options, (order_by, keys))
    pattern = check_pattern(pattern)
    options = check_options(
        rows=rows, measures=measures, plan=plan, statistics=statistics, limits=limits,
        after_match=after_match, adapt=adapt, remotes=remotes, shed=shed,
    )  # fmt: skip
    source, keys = with_partition_columns(read_source(df), partition_by)
    return _match_events(source, MatchRequest(pattern, options, order_by, keys))


def _match_events(source: SourceFrame, asked: MatchRequest) -> DataFrame:
    shipping = prepare_pattern(source, asked)
    compiled, shipment = shipping.compiled, shipping.shipment
    check_request(asked, compiled)
    if asked.options.shed is not None:
        check_can_shed(compiled)
    number = new_answer_number()
    if source.is_streaming:
        return match_stream(source, asked, shipping, number)
    masked = add_candidate_mask(source.df, shipping)
    shedding = _decide_shedding(source, masked, shipping, asked)
    if shedding is not None:
        masked = drop_shed_rows(prepare.filter_candidates(masked, compiled), shedding)
    program, choice, sample = plan_query(source, masked, shipping, asked)
    prepared = prepare.select_shipped(prepare.filter_candidates(masked, compiled), shipment)
    chosen = _choose_layout(source, prepared.df, shipping, sample)
    sent = shipment.as_now()
    df, keys, home = _distribute_rows(prepared.df, shipping, chosen)
    program = replace(program, columns=shipment.names(), keys=keys, home=home)
    schema = worker_schema(shipping.answer.output, compiled.variables, prepared.df.schema)
    function = bucket_entry(
        program,
        shipping.answer.output,
        to_arrow_schema(schema, timezone="UTC"),
        job_title(asked.pattern, compiled, (choice, shedding), number),
    )

    def made() -> tuple[DataFrame, AnswerObservations]:
        # An observation counts once, so what is measured anew needs a new one.
        both = AnswerObservations(
            Observation(),
            Observation() if needs_fetch(compiled) else None,
            Observation() if shedding is not None and shedding.kinds else None,
        )
        rows = df
        if both.before is not None or both.shed is not None:
            # Not those of the sample, which an observation would take for the query's.
            rows = _observe_rows(source, shipping, shedding, both)
            again = prepare.select_shipped(prepare.filter_candidates(rows, compiled), sent)
            rows, _, _ = _distribute_rows(again.df, shipping, chosen)
        counted = partial(observe_answer, observation=both.answer)
        matches = MatchFrame(rows.mapInArrow(function, schema), counted, shipping.sources)
        found = project_matches(
            matches, shipping.answer, compiled.variables, prepared.raw, compiled.after
        )
        return found, both

    answer, observation = made()
    plan = build_report(
        asked.pattern, compiled, shipment, (choice, chosen, shipping.answer, program), number
    )
    places = event_places(compiled, shipping.answer.sought, shipping.sources)
    plan = add_remote_facts(plan, shipping.sources, places, event_calls_by_column(compiled))
    if shedding is not None:
        plan = add_shedding_facts(plan, shedding, compiled)
    recall = None
    if shedding is not None and shedding.kinds:
        recall = partial(measure_recall, shedding.looked, shedding.kinds)
    return keep_record(
        answer, AnswerRecord(number, plan, observation, chosen.buckets, made, recall)
    )


def _decide_shedding(
    source: SourceFrame, masked: DataFrame, shipping: PreparedPattern, asked: MatchRequest
) -> SheddingPlan | None:
    """Which rows stay, where a batch is to be shed."""
    shed = asked.options.shed
    if shed is None:
        return None
    if shed.history is not None:
        check_history(source.df, shed.history)
    return plan_shedding(source, masked, shipping, build_program(asked, shipping), shed)


def _observe_rows(
    source: SourceFrame,
    shipping: PreparedPattern,
    shedding: SheddingPlan | None,
    observed_: AnswerObservations,
) -> DataFrame:
    """The rows once more, lookups and dropped rows counted."""
    compiled = shipping.compiled
    counts = None
    if observed_.before is not None:
        counts = MetricsSink(partial(observe_lookups, observation=observed_.before))
    rows = add_candidate_mask(source.df, shipping, counts)
    if shedding is None or observed_.shed is None:
        return rows
    shed = shed_counts(compiled.variables)
    counted = partial(observe_shed, counts=shed, observation=observed_.shed)
    return drop_shed_rows(prepare.filter_candidates(rows, compiled), shedding, counted)


def _choose_layout(
    source: SourceFrame, prepared: DataFrame, shipping: PreparedPattern, sample: Sample | None
) -> Layout:
    compiled = shipping.compiled
    cut = choose_slicing(
        compiled.branches,
        compiled.window,
        compiled.orders[0].type,
        (compiled.strategy, compiled.consumption),
    )
    rows = sample.rows if sample is not None and sample.complete else None
    return choose_layout(
        LayoutFacts(
            size=estimate_size(prepared, rows),
            sample=sample,
            has_keys=bool(shipping.keys),
            slicing=cut,
            forced_buckets=source.setting(BUCKETS_CONF),
            forced_slices=source.setting(SLICES_CONF),
        )
    )


def _distribute_rows(
    prepared: DataFrame, shipping: PreparedPattern, chosen: Layout
) -> tuple[DataFrame, tuple[int, ...], int | None]:
    """The rows in their buckets, the engine's key columns and its home column."""
    shipment, keys = shipping.shipment, shipping.key_columns
    names = [f"c{column}" for column in keys]
    if chosen.slicing is None:
        return prepare.distribute_rows(prepared, names, None, chosen.buckets), keys, None
    slice_ = shipment.special("slice", "time slice")
    home = shipment.special("home", "is in its own slice")
    time = f"c{shipping.orders[0].column}"
    df = prepare.copy_into_slices(prepared, chosen.slicing, time, (f"c{slice_}", f"c{home}"))
    return prepare.distribute_rows(df, names, f"c{slice_}", chosen.buckets), (*keys, slice_), home
