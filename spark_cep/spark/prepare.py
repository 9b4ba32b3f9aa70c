"""Before the engine: columns are computed, rows that match nothing dropped, the rest distributed.

    input -> + candidate mask -> filter -> c0, c1, ... -> [copies into time slices] -> buckets

All of it is Spark's own work in the JVM. What rows are distributed by is an expression in the
exchange, not a column, so it is not shipped. Python gets whole buckets and cuts them by key itself:
no JVM sort. Where the number of buckets is left to Spark, the exchange is one by a hash of the
keys, whose partitions adaptive execution merges; a number goes to `repartitionById`, which puts
bucket n into partition n.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_cep.errors import PatternError
from spark_cep.events.compiled import drops_rows
from spark_cep.expressions.comparisons import cannot_fail, comparisons_of, is_comparison
from spark_cep.expressions.syntax import SyntaxProblem, parse_expression
from spark_cep.spark import carriers
from spark_cep.spark.selection import Expression, as_column, in_brackets, select_named
from spark_cep.spark.typing import type_of
from spark_cep.spark.versions import repartition_by_number
from spark_cep.udfs.output import TASK
from spark_cep.udfs.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.types import StructType
    from sqlglot import exp

    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.expressions.comparisons import TypeOf
    from spark_cep.expressions.shipment import Shipment, ShippedColumn
    from spark_cep.planner.layout import HotKeys, Layout, Slicing
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.program import Order
    from spark_cep.udfs.row_program import RowProgram


MASK = "__cep_mask"
MOST_VARIABLES = 63
# Of a condition in the filter that is pushed into scans; Spark tests its comparisons once more.
_MOST_COMPARISONS = 20
_MASK_TYPES = ((7, "tinyint"), (15, "smallint"), (31, "int"), (MOST_VARIABLES, "bigint"))


@dataclass(frozen=True)
class PreparedRows:
    """The shipped columns: `df` with the types as they travel, `raw` their own types."""

    df: DataFrame
    raw: StructType


def candidate_mask(masks: Sequence[Sequence[str | Column]]) -> Expression:
    """One bit for each variable: the row meets all of its conditions on a single row."""
    if len(masks) > MOST_VARIABLES:
        raise PatternError(
            f"the pattern has {len(masks)} variables; {MOST_VARIABLES} is the most: the variables "
            "that a row may fill travel with it as the bits of one number",
            hint="split the pattern in two, or use one variable with a quantifier for like rows",
        )
    kind = next(kind for most, kind in _MASK_TYPES if len(masks) <= most)
    bits = [_mask_bit(conditions, 1 << place, kind) for place, conditions in enumerate(masks)]
    texts = [each for each in bits if isinstance(each, str)]
    if len(texts) == len(bits):
        return " | ".join(texts)
    return reduce(lambda left, right: left.bitwiseOR(right), map(as_column, bits))


def _mask_bit(conditions: Sequence[str | Column], bit: int, kind: str) -> Expression:
    """Nested CASEs, so that a later condition is not even tried where an earlier one fails."""
    texts = [each for each in conditions if isinstance(each, str)]
    if len(texts) == len(conditions):
        text, zero = (f"CAST({number} AS {kind})" for number in (bit, 0))
        for condition in reversed(texts):
            text = f"CASE WHEN {in_brackets(condition)} THEN {text} ELSE {zero} END"
        return f"({text})"
    value = F.lit(bit).cast(kind)
    for each in reversed(conditions):
        value = F.when(as_column(each), value).otherwise(F.lit(0).cast(kind))
    return value


def add_mask(df: DataFrame, candidates: Expression) -> DataFrame:
    """The input with the candidate mask beside it."""
    return select_named(df, [(candidates, MASK)], ["*"])


def filter_candidates(
    df: DataFrame, compiled: CompiledPattern, *, is_streaming: bool = False
) -> DataFrame:
    """Without the rows that cannot matter."""
    if not drops_rows(compiled):
        return df
    kept = [f"{in_brackets(key)} IS NOT NULL" for key in compiled.inferred]
    if all(compiled.masks):
        simple = None if is_streaming else _simple_filter(df, compiled.masks)
        # First, so that rows which fail it cost no more than comparisons.
        df = df if simple is None else df.filter(simple)
        kept.insert(0, f"{MASK} != 0")
    if not kept:
        return df
    condition = " AND ".join(kept)
    return df.filter(_above_watermark(condition, compiled) if is_streaming else condition)


def _above_watermark(condition: str, compiled: CompiledPattern) -> Column:
    """The condition in a form that reads the event time. Any other filter Spark moves below the
    watermark, which would then follow only the rows that pass it. The hash is for event times that
    are never NULL: there the optimizer removes the first comparison."""
    order = compiled.orders[0]
    time = as_column(order.expression)
    return F.expr(condition) | has_no_time(time, order.type) | (F.xxhash64(time) == 0)


def _simple_filter(df: DataFrame, masks: Sequence[Sequence[str | Column]]) -> str | None:
    """What the comparisons with literals alone say of the rows that any variable accepts.

    The candidate mask says more, but no source understands it; this filter Spark pushes into scans
    and uses to choose the partitions of tables. None: a variable has no such condition.
    """
    schema = df.schema
    types = {field.name.casefold(): type_of(field.dataType) for field in schema}

    def type_of_column(column: exp.Column) -> Type | None:
        return None if column.table else types.get(column.name.casefold())

    variables = []
    for conditions in masks:
        texts = [f"({each})" for each in conditions if _is_safe_comparison(each, type_of_column)]
        if not texts:
            return None
        variables.append(" AND ".join(texts))
    return " OR ".join(dict.fromkeys(variables))


def _is_safe_comparison(condition: str | Column, type_of_column: TypeOf) -> bool:
    """Whether Spark may test the condition on any row, also where one before it is false, and at
    little cost."""
    if not isinstance(condition, str):
        return False
    try:
        root = parse_expression(condition).root
    except SyntaxProblem:
        return False
    is_short = sum(1 for _ in comparisons_of(root)) <= _MOST_COMPARISONS
    return is_short and is_comparison(root) and cannot_fail(root, type_of_column)


def has_no_time(time: Column, type_: Type) -> Column:
    return time.isNull() | F.isnan(time) if type_.kind == "float" else time.isNull()


def select_shipped(df: DataFrame, shipment: Shipment) -> PreparedRows:
    """The shipped columns; types that cannot travel are encoded."""
    chosen = select_named(df, _shipped_items(shipment, range(len(shipment.shipped))))
    return PreparedRows(_encode_columns(chosen), chosen.schema)


def select_places(
    df: DataFrame, shipment: Shipment, places: Sequence[int], beside: Sequence[str] = ()
) -> DataFrame:
    """Only these of the shipped columns, as they travel, and columns of the rows beside them."""
    return _encode_columns(select_named(df, _shipped_items(shipment, places), beside))


def _shipped_items(shipment: Shipment, places: Iterable[int]) -> list[tuple[Expression, str]]:
    names = shipment.names()
    return [(_shipped_expression(shipment.shipped[place]), names[place]) for place in places]


def _encode_columns(df: DataFrame) -> DataFrame:
    raw = df.schema
    if all(carriers.needs_no_carrier(field.dataType) for field in raw):
        return df
    return df.select(*[carriers.encode(F.col(f.name), f.dataType).alias(f.name) for f in raw])


def shipped_column(each: ShippedColumn) -> Column:
    """A shipped column over rows with their mask."""
    return as_column(_shipped_expression(each))


def _shipped_expression(each: ShippedColumn) -> Expression:
    if each.role == "mask":
        return MASK
    if each.guards is None:
        return each.expression
    bits = sum(1 << variable for variable in each.guards)
    guard = f"({MASK} & {bits}L) != 0L"
    if isinstance(each.expression, str):
        return f"CASE WHEN {guard} THEN {in_brackets(each.expression)} END"
    return F.when(F.expr(guard), as_column(each.expression))


# ---- distribution --------------------------------------------------------------------------------

# The hash has a salt, so that its distribution is never the one that the input has already. Spark
# removes a repartition by what the input is partitioned by, and may then read the input in other
# partitions (by local shuffle reads or unbucketed scans), for it does not know that the workers
# need the keys together.
_SALT = "spark-cep"


def distribute_rows(df: DataFrame, program: Program | RowProgram, layout: Layout) -> DataFrame:
    """All rows of a key, or of a slice of it, in one partition. `program`: for time slices if the
    layout has them."""
    if layout.slicing is not None:
        assert isinstance(program, Program)
        df = copy_into_slices(df, program, layout.slicing)
        *keys, slice_ = program.keys
        assert layout.buckets is not None
        bucket = bucket_column(keys, slice_, layout.buckets)
        return repartition_by_number(df, layout.buckets, bucket)
    if layout.buckets is None:
        return df.repartition(_key_hash(program.keys))
    bucket = bucket_column(program.keys, None, layout.buckets)
    return repartition_by_number(df, layout.buckets, bucket)


def distribute_ranges(df: DataFrame, order: Order, ranges: int) -> DataFrame:
    """The rows of one partition, range n of its order in partition n. Rows that are equal in the
    first order column are in one range; the workers sort."""
    column = F.col(f"c{order.column}")
    if order.descending:
        by = column.desc_nulls_first() if order.nulls_first else column.desc_nulls_last()
    else:
        by = column.asc_nulls_first() if order.nulls_first else column.asc_nulls_last()
    return df.repartitionByRange(ranges, by)


def gather_borders(matched: DataFrame, ranges: int) -> DataFrame:
    """What the tasks of ranges gave, each where it was, the rows of borders in one partition."""
    return repartition_by_number(matched, ranges + 1, F.col(TASK))


def copy_into_slices(df: DataFrame, program: Program, slicing: Slicing) -> DataFrame:
    """Rows copied into the slices that need them, with the slice and whether it is their own."""
    time, slice_, home = (
        f"c{place}" for place in (program.orders[0].column, program.keys[-1], program.home)
    )
    copies = df.select("*", F.expr(f"explode({slicing.slices(time)})").alias(slice_))
    return copies.select("*", F.expr(f"{slice_} <=> ({slicing.home(time)})").alias(home))


def split_hot_keys(
    distributed: DataFrame, program: Program, sliced: Program, hot_keys: HotKeys
) -> tuple[DataFrame, DataFrame]:
    """The rows of all keys but the hot ones, and those of the hot ones in time slices.

    `distributed` is computed once, as both read its shuffle. So does the search for hot keys: it
    counts the rows of each hash of keys. Where it finds none, adaptive execution removes the second
    part, and the join of the first. The found hashes are shuffled, because the wait for a broadcast
    is limited in time.
    """
    key_hash, names = _key_hash(program.keys), distributed.columns
    # It reads every column, or Spark would shuffle the keys once more without the other columns.
    one = F.when(key_hash == 0, F.pmod(F.hash(*names), F.lit(2)) + 1).otherwise(1)
    counts = distributed.groupBy(key_hash.alias("hot")).agg(F.sum(one).alias("rows"))
    hot = counts.filter(F.col("rows") > hot_keys.rows).select("hot").repartition(1)
    # Without the hint adaptive execution sorts and merges: a shuffle of few keys is mostly empty.
    hot = F.broadcast(hot)
    joined = distributed.join(hot, key_hash == F.col("hot"), "left")
    rest = joined.filter(F.col("hot").isNull()).select(*names)
    found = distributed.join(hot, key_hash == F.col("hot")).select(*names)
    copies = copy_into_slices(found, sliced, hot_keys.slicing)
    return rest, copies.repartition(_key_hash(sliced.keys))


def _key_hash(keys: Sequence[int]) -> Column:
    return F.xxhash64(*[F.col(f"c{key}") for key in keys], F.lit(_SALT))


def bucket_column(keys: Sequence[int], slice_: int | None, buckets: int) -> Column:
    """The bucket of a shipped row. Slices of one key go round the buckets, an even deal."""
    count = F.lit(buckets).cast("bigint")
    parts = [F.xxhash64(*[F.col(f"c{key}") for key in keys])] if keys else []
    if slice_ is not None:
        parts.append(F.coalesce(F.col(f"c{slice_}"), F.lit(0).cast("bigint")))
    # Each part is taken modulo first: a sum of two hashes could overflow.
    places = [F.pmod(part, count) for part in parts] or [F.lit(0)]
    return places[0] if len(places) == 1 else F.pmod(reduce(operator.add, places), count)
