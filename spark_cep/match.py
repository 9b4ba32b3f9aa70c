"""`match_pattern`: from a DataFrame and a pattern to the DataFrame of its matches.

    compile -> ship -> look at a sample -> choose -> deal to buckets -> engine -> project

Lazy: besides the sample, which reads a bounded number of rows, no Spark job runs here. All that
the user can have done wrong is said here, before any job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from spark_cep.answering.answer import (
    Answer,
    Given,
    Shape,
    Shown,
    Wanted,
    answer_of,
    check_names,
    worker_schema,
)
from spark_cep.answering.metering import observed
from spark_cep.answering.project import projected
from spark_cep.answering.records import Record, new_number, remember
from spark_cep.answering.report import report, title
from spark_cep.compiling.compile import compile_pattern
from spark_cep.compiling.measures import compile_measures
from spark_cep.options import Options, check_options, check_pattern
from spark_cep.planning.buckets import size_of
from spark_cep.planning.choice import Facts, choose
from spark_cep.planning.forced import check_wish
from spark_cep.planning.given import check_statistics, with_statistics
from spark_cep.planning.layout import BUCKETS, SLICES, Dealing, Layout, layout
from spark_cep.planning.sample import (
    ROWS,
    SAMPLE,
    NoSample,
    Sample,
    is_wanted,
    look,
    needed,
)
from spark_cep.planning.slices import slicing
from spark_cep.shipping import prepare
from spark_cep.shipping.keys import Key, check_groupable, check_ordered_by_bytes, directed, key_of
from spark_cep.shipping.shipment import Shipment
from spark_cep.shipping.source import Source, source_of
from spark_cep.shipping.typing_by_spark import SparkTyper, quoted
from spark_cep.shipping.worker_entry import entry
from spark_cep.udfs.program import Adaptation, Limits, Order, Plan, Program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_cep.compiling.compiled import Compiled
    from spark_cep.pattern import Pattern
    from spark_cep.statistics import Statistics


def match_pattern(  # noqa: PLR0913 - the public signature
    df: DataFrame,
    pattern: Pattern,
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
    """The matches of an event pattern in the rows of `df`.

    One row for each match: the partition columns, a struct for each positive variable (an array
    of structs for a Kleene variable, NULL for one that the match leaves unfilled), `match_start`
    and `match_end`. `measures` gives expressions over the variables instead of the structs,
    `rows="all"` one row for each matched event.
    """
    pattern = check_pattern(pattern)
    options = check_options(
        rows=rows, measures=measures, plan=plan, statistics=statistics, limits=limits,
        after_match=after_match, adapt=adapt, remotes=remotes, shed=shed,
    )  # fmt: skip
    return _matched(source_of(df), Asked(pattern, options, order_by, partition_by))


@dataclass(frozen=True)
class Asked:
    """What the user wants, options checked."""

    pattern: Pattern
    options: Options
    order_by: Any
    partition_by: Any


@dataclass(frozen=True)
class Shipping:
    """What travels: the compiled pattern over `shipment`, and where things are in it."""

    compiled: Compiled
    shipment: Shipment
    keys: tuple[Key, ...]
    key_columns: tuple[int, ...]
    orders: tuple[Order, ...]
    mask: int
    answer: Answer
    ansi: bool


def _matched(source: Source, asked: Asked) -> DataFrame:
    shipping = _shipping(source, asked)
    compiled, shipment = shipping.compiled, shipping.shipment
    masked = prepare.masked(source.df, prepare.mask(compiled.masks))
    program = _program(asked, shipping)
    if asked.options.statistics is not None:
        check_statistics(asked.options.statistics, compiled.variables)
    check_wish(asked.options.wish, compiled.variables, compiled.branches)
    found = _sampled(source, masked, shipping, program, asked)
    choice = choose(_facts(asked, compiled, found))
    sample = found if isinstance(found, Sample) else None
    prepared = prepare.select(prepare.filtered(masked, compiled), shipment)
    chosen = _layout(source, prepared.df, shipping, sample)
    df, keys, home = _dealt(prepared.df, shipping, chosen)
    program = replace(
        program, columns=shipment.names(), keys=keys, home=home, plan=choice.plan,
        adaptation=asked.options.adaptation if choice.adapts else Adaptation(),
        estimates=choice.estimates,
    )  # fmt: skip
    number = new_number()
    schema = worker_schema(shipping.answer.output, compiled.variables, prepared.df.schema)
    function = entry(
        program,
        shipping.answer.output,
        to_arrow_schema(schema, timezone="UTC"),
        title(asked.pattern, compiled, choice, number),
    )
    observation = Observation()
    matches = observed(df.mapInArrow(function, schema), observation)
    answer = projected(matches, shipping.answer, compiled.variables, prepared.raw, compiled.after)
    plan = report(
        asked.pattern, compiled, shipment, (choice, chosen, shipping.answer, program), number
    )
    return remember(answer, Record(number, plan, observation, chosen.buckets))


def _shipping(source: Source, asked: Asked) -> Shipping:
    shipment = Shipment(source.names(), case_sensitive=source.case_sensitive)
    ansi = source.is_on("spark.sql.ansi.enabled", "true")
    compiled = compile_pattern(
        asked.pattern,
        source.columns,
        order_by=directed(source.df, asked.order_by),
        partition_by=asked.partition_by,
        typer=SparkTyper(source.df),
        shipment=shipment,
        case_sensitive=source.case_sensitive,
        ansi=ansi,
        time_zone=source.setting("spark.sql.session.timeZone", "UTC"),
    )
    check_groupable(source.df, compiled.partition)
    check_ordered_by_bytes(source.df, compiled.orders)
    texts = [*map(quoted, compiled.partition), *compiled.inferred]
    keys = _keys(source.df, texts)
    columns = tuple(
        shipment.column(text if key.plain else key.canonical)
        for text, key in zip(texts, keys, strict=True)
    )
    orders = tuple(
        Order(shipment.column(each.expression), each.type, each.descending, each.nulls_first)
        for each in compiled.orders
    )
    shown = [
        (name, column if key.shows else shipment.column(quoted(name)))
        for name, key, column in zip(compiled.partition, keys, columns, strict=False)
    ]
    answer = _answer(source, asked, compiled, shipment, shown)
    mask = shipment.special("mask", "candidates")
    return Shipping(compiled, shipment, keys, columns, orders, mask, answer, ansi)


def _keys(df: DataFrame, texts: Sequence[str]) -> tuple[Key, ...]:
    if not texts:
        return ()
    types = df.select(*[F.expr(text).alias(f"k{n}") for n, text in enumerate(texts)]).schema
    return tuple(
        key_of(F.expr(text), field.dataType) for text, field in zip(texts, types, strict=True)
    )


def _answer(
    source: Source,
    asked: Asked,
    compiled: Compiled,
    shipment: Shipment,
    shown: Sequence[tuple[str, int]],
) -> Answer:
    order = compiled.orders[0].expression
    measures: tuple[Shown, ...] = ()
    reads = None
    if asked.options.measures is not None:
        found = compile_measures(
            asked.options.measures,
            compiled,
            source.columns,
            typer=SparkTyper(source.df, order=order, partition=compiled.partition),
            case_sensitive=source.case_sensitive,
        )
        texts = dict(asked.options.measures)
        measures = tuple(Shown(each.name, each.text, texts[each.name]) for each in found.measures)
        reads = found.reads
    shape: Shape = (
        "measures" if measures else ("rows" if asked.options.rows == "all" else "structs")
    )
    wanted = Wanted(shape, measures, reads, compiled.after)
    check_names(wanted, compiled.variables, source.names(), compiled.partition)
    always = frozenset.intersection(*(branch.filled() for branch in compiled.branches))
    given = Given(source.names(), tuple(shown), shipment.column(order), always)
    return answer_of(wanted, compiled.variables, given, shipment)


def _sampled(
    source: Source, masked: DataFrame, shipping: Shipping, program: Program, asked: Asked
) -> Sample | NoSample:
    """Only if something hangs on it: the plan is open and the user gave no rates."""
    options, compiled = asked.options, shipping.compiled
    has_rates = options.statistics is not None and options.statistics.rates
    if has_rates or not options.wish.is_open or compiled.strategy != "any":
        return NoSample()
    if not is_wanted(source.setting(SAMPLE)):
        return NoSample(f"no sample, for {SAMPLE} is off")
    places = needed(program)
    shipped = [shipping.shipment.shipped[place].expression for place in places]
    said = (shipped, compiled.masks, compiled.window, compiled.conditions, compiled.branches)
    key = None if _has_columns(shipped, compiled) else repr(said)
    return look(
        source.df, key, lambda: prepare.some(masked.limit(ROWS), shipping.shipment, places), program
    )


def _has_columns(shipped: Sequence[str | Column], compiled: Compiled) -> bool:
    """A Column says nothing of itself that could be compared."""
    masks = [text for texts in compiled.masks for text in texts]
    return not all(isinstance(each, str) for each in (*shipped, *masks))


def _facts(asked: Asked, compiled: Compiled, sample: Sample | NoSample) -> Facts:
    statistics = asked.options.statistics
    facts = Facts(
        compiled.variables, compiled.strategy, asked.options.wish, compiled.branches,
        compiled.conditions,
    )  # fmt: skip
    if isinstance(sample, Sample):
        unit = "in all" if sample.complete else "a million rows"
        facts = replace(facts, estimates=sample.estimates, source=sample.source(), unit=unit)
    elif sample.reason:
        facts = replace(facts, notes=(sample.reason,))
    return facts if statistics is None else with_statistics(facts, statistics)


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


def _program(asked: Asked, shipping: Shipping) -> Program:
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
    )
