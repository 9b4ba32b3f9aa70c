"""One step of a query that looks values up: the rows as they are, and a column for each value.

    df -> keys as columns -> mapInArrow: ask for the next batches, hand on this one -> df + values

For what the engine does not look up itself: measures on matches, row patterns, conditions that
only Spark computes. Keys and values are columns, so all of Spark may stand around them.

Always holds: a row goes out as it came in, bit for bit, and in its place; a key that is NULL is
not asked for; every key is asked for once a batch, however many rows have it.

What was counted goes with the rows, so it arrives from batches, streams and Connect sessions
alike, which accumulators would not. Behind the engine it joins the engine's own counts in the
closing rows; before it, it stands beside the last row of each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from spark_cep.remotes.stage_entry import stage_entry
from spark_cep.shipping import carriers
from spark_cep.shipping.typing_by_spark import quoted
from spark_cep.udfs.remotes.asking import Asked, Asking

if TYPE_CHECKING:
    from spark_cep.udfs.remotes.spec import Remote

METRICS = "metrics"


@dataclass(frozen=True)
class Wanted:
    """The value that `remote` has for `keys`, SQL or Columns over the rows, as column `name`."""

    remote: Remote
    keys: tuple[str | Column, ...]
    name: str
    type: T.DataType


@dataclass(frozen=True)
class Counts:
    """Where counts go. `take` is given the rows with a text column `metrics`, and hands on what
    the query goes on with. `of_engine`: the column is there already, with the engine's counts in
    closing rows, which `take` removes."""

    take: Callable[[DataFrame], DataFrame]
    of_engine: bool = False


def with_looked_up(
    df: DataFrame, wanted: Sequence[Wanted], counts: Counts | None = None
) -> DataFrame:
    """`df` with the values behind its own columns; without the engine's counts if it has them."""
    of_engine = counts is not None and counts.of_engine
    if not wanted:
        return counts.take(df).drop(METRICS) if counts is not None and of_engine else df
    fields = df.schema.fields
    inside = [f"p{place}" for place in range(len(fields))]
    if of_engine:
        inside[df.columns.index(METRICS)] = METRICS
    sent = _sent(df, inside, wanted, of_engine=of_engine)
    values = [
        T.StructField(f"v{place}", carriers.carried(w.type)) for place, w in enumerate(wanted)
    ]
    told = [] if of_engine else [T.StructField(METRICS, T.StringType())]
    schema = T.StructType([*sent.schema.fields[: len(fields)], *values, *told])
    found = sent.mapInArrow(stage_entry(_asking(wanted, schema, of_engine=of_engine)), schema)
    if counts is not None:
        found = counts.take(found)
    own = [
        carriers.decode(F.col(name), field.dataType).alias(field.name)
        for field, name in zip(fields, inside, strict=True)
        if name != METRICS
    ]
    added = [
        carriers.decode(F.col(f"v{place}"), each.type).alias(each.name)
        for place, each in enumerate(wanted)
    ]
    return found.select(*own, *added)


def _sent(
    df: DataFrame, inside: Sequence[str], wanted: Sequence[Wanted], *, of_engine: bool
) -> DataFrame:
    """The rows as they travel, keys behind them."""
    fields = zip(df.schema.fields, inside, strict=True)
    payload = [
        carriers.encode(F.col(quoted(field.name)), field.dataType).alias(name)
        for field, name in fields
    ]
    keys = [
        _key(key, of_engine=of_engine).alias(f"k{place}_{part}")
        for place, each in enumerate(wanted)
        for part, key in enumerate(each.keys)
    ]
    return df.select(*payload, *keys)


def _key(key: str | Column, *, of_engine: bool) -> Column:
    """A closing row has no keys, and computing one might fail there."""
    column = F.expr(key) if isinstance(key, str) else key
    return F.when(F.col(METRICS).isNull(), column) if of_engine else column


def _asking(wanted: Sequence[Wanted], schema: T.StructType, *, of_engine: bool) -> Asking:
    names = tuple(schema.names)
    counts = names.index(METRICS) if of_engine else None
    place = len(names) - len(wanted) - (not of_engine)
    asked = []
    for each in wanted:
        type_ = to_arrow_type(carriers.carried(each.type), timezone="UTC")
        asked.append(Asked(each.remote, tuple(range(place, place + len(each.keys))), type_))
        place += len(each.keys)
    return Asking(tuple(asked), names, counts)
