"""Shedding of a batch: look at some of the rows, count the scores of all, cut, filter.

    masked rows -> whole windows of some keys, chosen by hash -> utilities, loads
                -> scores of all rows, counted by kind        -> thresholds -> a filter in Spark

Both looks are jobs, and they run when the answer is asked for its plan, before any action: a quota
of rows cannot be met without counting them. Nothing in them hangs on how the rows are dealt to
partitions or in which order they come, so the same input sheds the same rows. They read the
columns that conditions need, no payload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import functions as F

from spark_cep.compiling.types import name_of
from spark_cep.errors import PlanError
from spark_cep.planning.buckets import cores_of
from spark_cep.planning.sample import needed, with_all_columns
from spark_cep.planning.slices import coordinate, slicing
from spark_cep.shedding.column import (
    DROPPED,
    SCORE,
    Scored,
    dice,
    hashable,
    judged,
    kept,
    scored,
)
from spark_cep.shedding.looked import Looked, share_of
from spark_cep.shipping import prepare
from spark_cep.shipping.typing_by_spark import type_of
from spark_cep.udfs.events import without_null_times
from spark_cep.udfs.planning.costs import TYPICAL
from spark_cep.udfs.shedding.learning import Learnt, Sampled, learn
from spark_cep.udfs.shedding.quota import (
    PARTS,
    Kind,
    Scores,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_cep.shedding.shed import Shed
    from spark_cep.shipped import Shipping
    from spark_cep.shipping.source import Source
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.program import Program, Variable

# Enough that bins of rare values have draws, and half a second of Spark's and Python's time.
ROWS = 50_000
_TIME, _STRETCH = "__cep_time", "__cep_stretch"


@dataclass(frozen=True)
class Shedding:
    """What was decided. `kinds` empty: there is room for all rows, and none is shed. `share`: of
    the rows that may be shed, what stays. `looked`: what it was decided by."""

    asked: Shed
    how: Scored
    kinds: tuple[Kind, ...]
    share: float
    recall: float
    reason: str
    looked: Looked


def decided(
    source: Source, masked: DataFrame, shipping: Shipping, program: Program, shed: Shed
) -> Shedding:
    """`masked`: all rows with their candidate mask. `program`: still without a plan."""
    ends = [] if shed.rows_per_second is None else _ends(shipping)
    rows = prepare.filtered(masked, shipping.compiled)
    learnt, sampled = learnt_from(source, rows, shipping, program, shed)
    how = Scored(shipping.shipment, learnt.utilities, hashable(source.df.schema), shed.seed)
    counts, span = _counted(scored(rows, how), ends)
    looked = Looked(program, shed, learnt, sampled, counts)
    share, reason = share_of(looked, span, cores_of(source.df.sparkSession))
    if share >= 1:
        return Shedding(shed, how, (), 1.0, 1.0, reason, looked)
    kinds = looked.kinds(share)
    return Shedding(shed, how, kinds, share, looked.recall(kinds), reason, looked)


def shed_rows(
    masked: DataFrame, shedding: Shedding, counted: Callable[[DataFrame], DataFrame] | None = None
) -> DataFrame:
    """The rows with their candidate mask that stay. `counted` looks at all of them before."""
    if not shedding.kinds:
        return masked
    rows = judged(scored(masked, shedding.how), shedding.kinds)
    return kept(rows if counted is None else counted(rows))


def counts_of(variables: Sequence[Variable]) -> Column:
    """What an observation of judged rows counts: of each positive variable the rows that stay and
    those that go, as the text that buckets' counts are in (`udfs/output.py`)."""
    dropped = F.col(DROPPED)
    found: list[Column] = []
    for place, each in enumerate(variables):
        if not each.negated:
            may_be = F.col(prepare.MASK).bitwiseAND(F.lit(1 << place).cast("bigint")) != 0
            both = F.count_if(may_be & ~dropped), F.count_if(may_be & dropped)
            found += [F.lit(each.name), F.array(*both)]
    return F.to_json(F.create_map(F.lit("shed"), F.create_map(*found)))


def learnt_from(
    source: Source, rows: DataFrame, shipping: Shipping, program: Program, shed: Shed
) -> tuple[Learnt, Sampled]:
    """What a sample of candidate rows says, and the sample. Loads are those of a typical machine:
    measured ones would deal the quota to the kinds in another way each time."""
    sampled = _sample(rows, source, shipping, program, shed)
    return learn(program, sampled, shed.policy, TYPICAL, key_types(shipping, rows)), sampled


# ---- two looks at the rows ---------------------------------------------------------------------


def _sample(
    rows: DataFrame, source: Source, shipping: Shipping, program: Program, shed: Shed
) -> Sampled:
    """Rows of whole stretches of time of some keys, so that rows which may be in one match are
    there together. Which ones is decided by a hash, and so are the rows of a stretch that is
    longer than the sample."""
    stretched = _stretched(rows, shipping, shed)
    own = dice(hashable(source.df.schema), shed.seed)
    chosen = stretched.orderBy(_STRETCH, own).limit(ROWS)
    found = prepare.some(chosen, shipping.shipment, needed(program), [_STRETCH]).toArrow()
    stretch = found.column(_STRETCH).to_numpy()
    found, thinned = with_all_columns(program, found), 1.0
    if found.num_rows == ROWS:
        # The last stretch may go on behind the sample. If the others are enough, it is left out.
        whole = int(np.searchsorted(stretch, stretch[-1]))
        if whole >= ROWS // 2:
            found = found.slice(0, whole)
        else:
            last = stretched.filter(F.col(_STRETCH) == int(stretch[-1])).count()
            thinned = (whole + last) / ROWS
    return Sampled(without_null_times(program, found), thinned)


def _stretched(rows: DataFrame, shipping: Shipping, shed: Shed) -> DataFrame:
    """Rows that have an event time, with the hash of their key and stretch."""
    compiled, shipped = shipping.compiled, shipping.shipment.shipped
    order = compiled.orders[0]
    rules = compiled.strategy, compiled.consumption
    cut = slicing(compiled.branches, compiled.window, order.type, rules)
    assert cut is not None
    time = prepare.computed(shipped[shipping.orders[0].column]).alias(_TIME)
    timed = rows.select("*", time).filter(~prepare.without_time(F.col(_TIME), order.type))
    keys = [prepare.computed(shipped[column]) for column in shipping.key_columns]
    stretch = F.xxhash64(F.lit(shed.seed), F.expr(cut.home(_TIME)), *keys)
    return timed.select("*", stretch.alias(_STRETCH))


def _counted(rows: DataFrame, ends: Sequence[Column]) -> tuple[dict[int, Scores], float | None]:
    """How many rows have which score, by mask; and, given the columns of their `ends`, the seconds
    of event time that they span."""
    place = F.floor(F.col(SCORE) * PARTS).cast("bigint").alias("place")
    found = (
        rows.filter(F.col(SCORE).isNotNull())
        .groupBy(F.col(prepare.MASK).cast("bigint").alias("mask"), place)
        .agg(F.count("*").alias("rows"), *ends)
        .toArrow()
        .sort_by([("mask", "ascending"), ("place", "ascending")])
    )
    masks, places, amounts = (found.column(n).to_numpy() for n in ("mask", "place", "rows"))
    scores = {
        int(mask): Scores(places[masks == mask], amounts[masks == mask])
        for mask in np.unique(masks)
    }
    if not ends:
        return scores, None
    first, last = pc.min(found.column("first")).as_py(), pc.max(found.column("last")).as_py()
    return scores, 0.0 if first is None else (last - first) / 1e6


def _ends(shipping: Shipping) -> list[Column]:
    order = shipping.compiled.orders[0]
    if order.type.kind not in {"timestamp", "timestamp_ntz"}:
        raise PlanError(
            "shed= with rows_per_second needs an event time in seconds, and the first order "
            f"column is {name_of(order.type)}",
            hint="order by a timestamp, or say which share stays: cep.Shed(keep=0.3)",
        )
    text = order.expression if isinstance(order.expression, str) else None
    time = F.expr(coordinate(order.type, text)) if text else F.unix_micros(order.expression)
    return [F.min(time).alias("first"), F.max(time).alias("last")]


def key_types(shipping: Shipping, rows: DataFrame) -> tuple[Type, ...]:
    """The types of the keys, if their values may be looked at as they are."""
    if not all(key.plain for key in shipping.keys):
        return ()
    keys = [prepare.computed(shipping.shipment.shipped[c]) for c in shipping.key_columns]
    return tuple(type_of(field.dataType) for field in rows.select(*keys).schema) if keys else ()
