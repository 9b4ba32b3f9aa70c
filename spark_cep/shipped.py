"""What travels: the pattern compiled against the input's columns, keys that are equal when Spark
says so, and the columns that the answer needs. No plan yet, no rows moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_cep.answering.answer import (
    Answer,
    Given,
    Shape,
    Shown,
    Wanted,
    answer_of,
    check_names,
)
from spark_cep.compiling.compile import compile_pattern
from spark_cep.compiling.looked_up_measures import compile_looked_up
from spark_cep.compiling.remote_calls import mentions
from spark_cep.remotes.before import lookups_of
from spark_cep.remotes.given import check_used, texts_of
from spark_cep.remotes.outside import Sources
from spark_cep.shipping.keys import Key, check_groupable, check_ordered_by_bytes, directed, key_of
from spark_cep.shipping.shipment import Shipment
from spark_cep.shipping.typing_by_spark import SparkTyper, quoted
from spark_cep.udfs.program import Order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.compiling.compiled import Compiled
    from spark_cep.compiling.measures import CompiledMeasures
    from spark_cep.compiling.remote_calls import Sought
    from spark_cep.options import Asked
    from spark_cep.shipping.source import Source


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
    sources: Sources


def shipped(source: Source, asked: Asked) -> Shipping:
    """Everything that the user can have done wrong in texts is said here."""
    shipment = Shipment(source.names(), case_sensitive=source.case_sensitive)
    ansi = source.is_on("spark.sql.ansi.enabled", "true")
    sources, typer = Sources(asked.options.remotes, source.df.sparkSession), SparkTyper(source.df)
    compiled = compile_pattern(
        asked.pattern,
        source.columns,
        order_by=directed(source.df, asked.order_by),
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
    texts = [*map(quoted, compiled.partition), *compiled.inferred]
    keys = keys_of(typer.df, texts)
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
    answer = _answer(source, (asked, sources), compiled, shipment, shown)
    # A name that is misspelled is told of before the one that then is used nowhere.
    check_used(asked.options.remotes, _texts(asked))
    mask = shipment.special("mask", "candidates")
    return Shipping(compiled, shipment, keys, columns, orders, mask, answer, ansi, sources)


def _texts(asked: Asked) -> Iterator[object]:
    """All that may name a remote source."""
    yield from texts_of(asked.pattern)
    yield from (text for _, text in asked.options.measures or ())


def keys_of(df: DataFrame, texts: Sequence[str]) -> tuple[Key, ...]:
    """Each text as a key."""
    if not texts:
        return ()
    types = df.select(*[F.expr(text).alias(f"k{n}") for n, text in enumerate(texts)]).schema
    return tuple(
        key_of(F.expr(text), field.dataType) for text, field in zip(texts, types, strict=True)
    )


def _measured(
    source: Source, asked: Asked, compiled: Compiled, sources: Sources
) -> CompiledMeasures:
    assert asked.options.measures is not None
    typer = SparkTyper(source.df, order=compiled.orders[0].expression, partition=compiled.partition)
    asks = any(mentions(text) for _, text in asked.options.measures)
    types = sources.types() if asks else {}
    return compile_looked_up(
        asked.options.measures,
        compiled,
        source.columns,
        typer=typer,
        case_sensitive=source.case_sensitive,
        types=types,
    )


def _answer(
    source: Source,
    wants: tuple[Asked, Sources],
    compiled: Compiled,
    shipment: Shipment,
    shown: Sequence[tuple[str, int]],
) -> Answer:
    asked, sources = wants
    order = compiled.orders[0].expression
    measures: tuple[Shown, ...] = ()
    sought: tuple[Sought, ...] = ()
    reads = None
    if asked.options.measures is not None:
        found = _measured(source, asked, compiled, sources)
        texts = dict(asked.options.measures)
        measures = tuple(Shown(each.name, each.text, texts[each.name]) for each in found.measures)
        reads, sought = found.reads, found.sought
    shape: Shape = (
        "measures" if measures else ("rows" if asked.options.rows == "all" else "structs")
    )
    wanted = Wanted(shape, measures, reads, compiled.after, sought, compiled.hidden)
    check_names(wanted, compiled.variables, source.names(), compiled.partition)
    always = frozenset.intersection(*(branch.filled() for branch in compiled.branches))
    given = Given(source.names(), tuple(shown), shipment.column(order), always)
    return answer_of(wanted, compiled.variables, given, shipment)
