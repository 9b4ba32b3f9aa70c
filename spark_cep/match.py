"""`match_pattern`: from a DataFrame and a pattern to the DataFrame of its matches.

    compile -> ship -> look at a sample -> choose -> deal to buckets -> engine -> project

Lazy: besides the sample, which reads a bounded number of rows, no Spark job runs here. All that
the user can have done wrong is said here, before any job.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql.pandas.types import to_arrow_schema

from spark_cep.answering.answer import worker_schema
from spark_cep.answering.project import Found, projected
from spark_cep.candidates import candidate_rows
from spark_cep.explaining.metering import Observed, counted_shed, noticed, observed
from spark_cep.explaining.records import Record, new_number, remember
from spark_cep.explaining.report import report, title
from spark_cep.options import Asked, check_options, check_pattern, check_row_options
from spark_cep.planned import check_wishes, planned, program_of
from spark_cep.planning.buckets import size_of
from spark_cep.planning.layout import BUCKETS, SLICES, Dealing, Layout, layout
from spark_cep.planning.slices import slicing
from spark_cep.remotes.before import fetches
from spark_cep.remotes.places import columns_of_events, of_events, with_remotes
from spark_cep.remotes.stage import Counts
from spark_cep.row_match import matched_rows
from spark_cep.row_patterns import RowPattern
from spark_cep.shedding.batch import Shedding, counts_of, decided, shed_rows
from spark_cep.shedding.looked import measured_recall
from spark_cep.shedding.shed import check_can_shed, check_history
from spark_cep.shedding.told import with_shedding
from spark_cep.shipped import Shipping, shipped
from spark_cep.shipping import prepare
from spark_cep.shipping.source import Source, source_of
from spark_cep.shipping.worker_entry import entry
from spark_cep.stream_match import streamed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_cep.pattern import Pattern
    from spark_cep.planning.sample import Sample
    from spark_cep.statistics import Statistics
    from spark_cep.udfs.program import Limits


def match_pattern(  # noqa: PLR0913 - the public signature
    df: DataFrame,
    pattern: Pattern | RowPattern,
    *,
    order_by: str | Column | Sequence[str | Column] | None = None,
    partition_by: str | Sequence[str] | None = None,
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

    Of a row pattern what MATCH_RECOGNIZE gives: the partition columns and the measures; with
    `rows="all"` and its forms a row for each matched row, all its columns included.
    """
    if isinstance(pattern, RowPattern):
        row_options = check_row_options(
            rows=rows, measures=measures, plan=plan, statistics=statistics, limits=limits,
            after_match=after_match, remotes=remotes, shed=shed,
        )  # fmt: skip
        return matched_rows(source_of(df), pattern, row_options, (order_by, partition_by))
    pattern = check_pattern(pattern)
    options = check_options(
        rows=rows, measures=measures, plan=plan, statistics=statistics, limits=limits,
        after_match=after_match, adapt=adapt, remotes=remotes, shed=shed,
    )  # fmt: skip
    return _matched(source_of(df), Asked(pattern, options, order_by, partition_by))


def _matched(source: Source, asked: Asked) -> DataFrame:
    shipping = shipped(source, asked)
    compiled, shipment = shipping.compiled, shipping.shipment
    check_wishes(asked, compiled)
    if asked.options.shed is not None:
        check_can_shed(compiled)
    number = new_number()
    if source.is_streaming:
        return streamed(source, asked, shipping, number)
    masked = candidate_rows(source.df, shipping)
    shedding = _shedding(source, masked, shipping, asked)
    if shedding is not None:
        masked = shed_rows(prepare.filtered(masked, compiled), shedding)
    program, choice, sample = planned(source, masked, shipping, asked)
    prepared = prepare.select(prepare.filtered(masked, compiled), shipment)
    chosen = _layout(source, prepared.df, shipping, sample)
    sent = shipment.as_now()
    df, keys, home = _dealt(prepared.df, shipping, chosen)
    program = replace(program, columns=shipment.names(), keys=keys, home=home)
    schema = worker_schema(shipping.answer.output, compiled.variables, prepared.df.schema)
    function = entry(
        program,
        shipping.answer.output,
        to_arrow_schema(schema, timezone="UTC"),
        title(asked.pattern, compiled, (choice, shedding), number),
    )

    def made() -> tuple[DataFrame, Observed]:
        # An observation counts once, so what is measured anew needs a new one.
        both = Observed(
            Observation(),
            Observation() if fetches(compiled) else None,
            Observation() if shedding is not None and shedding.kinds else None,
        )
        rows = df
        if both.before is not None or both.shed is not None:
            # Not those of the sample, which an observation would take for the query's.
            rows = _observed_rows(source, shipping, shedding, both)
            again = prepare.select(prepare.filtered(rows, compiled), sent)
            rows, _, _ = _dealt(again.df, shipping, chosen)
        counted = partial(observed, observation=both.answer)
        matches = Found(rows.mapInArrow(function, schema), counted, shipping.sources)
        found = projected(
            matches, shipping.answer, compiled.variables, prepared.raw, compiled.after
        )
        return found, both

    answer, observation = made()
    plan = report(
        asked.pattern, compiled, shipment, (choice, chosen, shipping.answer, program), number
    )
    places = of_events(compiled, shipping.answer.sought, shipping.sources)
    plan = with_remotes(plan, shipping.sources, places, columns_of_events(compiled))
    if shedding is not None:
        plan = with_shedding(plan, shedding, compiled)
    recall = None
    if shedding is not None and shedding.kinds:
        recall = partial(measured_recall, shedding.looked, shedding.kinds)
    return remember(answer, Record(number, plan, observation, chosen.buckets, made, recall))


def _shedding(
    source: Source, masked: DataFrame, shipping: Shipping, asked: Asked
) -> Shedding | None:
    """Which rows stay, where a batch is to be shed."""
    shed = asked.options.shed
    if shed is None:
        return None
    if shed.history is not None:
        check_history(source.df, shed.history)
    return decided(source, masked, shipping, program_of(asked, shipping), shed)


def _observed_rows(
    source: Source, shipping: Shipping, shedding: Shedding | None, observed_: Observed
) -> DataFrame:
    """The rows once more, lookups and dropped rows counted."""
    compiled = shipping.compiled
    counts = None
    if observed_.before is not None:
        counts = Counts(partial(noticed, observation=observed_.before))
    rows = candidate_rows(source.df, shipping, counts)
    if shedding is None or observed_.shed is None:
        return rows
    shed = counts_of(compiled.variables)
    counted = partial(counted_shed, counts=shed, observation=observed_.shed)
    return shed_rows(prepare.filtered(rows, compiled), shedding, counted)


def _layout(
    source: Source, prepared: DataFrame, shipping: Shipping, sample: Sample | None
) -> Layout:
    compiled = shipping.compiled
    cut = slicing(
        compiled.branches,
        compiled.window,
        compiled.orders[0].type,
        (compiled.strategy, compiled.consumption),
    )
    rows = sample.rows if sample is not None and sample.complete else None
    return layout(
        Dealing(
            size=size_of(prepared, rows),
            sample=sample,
            has_keys=bool(shipping.keys),
            slicing=cut,
            forced_buckets=source.setting(BUCKETS),
            forced_slices=source.setting(SLICES),
        )
    )


def _dealt(
    prepared: DataFrame, shipping: Shipping, chosen: Layout
) -> tuple[DataFrame, tuple[int, ...], int | None]:
    """The rows in their buckets, the engine's key columns and its home column."""
    shipment, keys = shipping.shipment, shipping.key_columns
    names = [f"c{column}" for column in keys]
    if chosen.slicing is None:
        return prepare.dealt(prepared, names, None, chosen.buckets), keys, None
    slice_ = shipment.special("slice", "time slice")
    home = shipment.special("home", "is in its own slice")
    time = f"c{shipping.orders[0].column}"
    df = prepare.sliced(prepared, chosen.slicing, time, (f"c{slice_}", f"c{home}"))
    return prepare.dealt(df, names, f"c{slice_}", chosen.buckets), (*keys, slice_), home
