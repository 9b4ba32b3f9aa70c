"""A row's score as a column of Spark's own, and the filter on it.

    rows with their mask -> + the columns that conditions read, as doubles or values
                         -> + a number of the row's own -> score -> score >= threshold of its mask

All of it is comparisons with literals, so it runs in the JVM before the shuffle, and every
partition decides alike without asking. What Python computes of the same rows
(`udfs/shedding/utility.py`) is the same score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.errors import PlanError
from spark_cep.expressions.types import name_of
from spark_cep.planner.layout import choose_slicing, time_coordinate
from spark_cep.planner.sample import needed_columns, with_all_columns
from spark_cep.spark import prepare
from spark_cep.spark.prepare import MASK, shipped_column
from spark_cep.spark.sizes import count_cores
from spark_cep.spark.typing import quote_column, type_of
from spark_cep.udfs.costs import TYPICAL_COSTS, measure_costs
from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.events.sampling import estimate_from_table
from spark_cep.udfs.events.table import column_to_numpy, drop_null_times
from spark_cep.udfs.program import Limits, Plan
from spark_cep.udfs.shedding.learning import (
    RowSample,
    SheddingModel,
    estimate_work,
    learn_model,
    statistics_of,
)
from spark_cep.udfs.shedding.quota import (
    LEVEL_PARTS,
    RowKind,
    ScoreCounts,
    kinds_of,
    row_thresholds,
    share_quota,
    weights_of,
)
from spark_cep.udfs.shedding.utility import LEVELS, StreamSheddingSpec, tables_in

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_cep.events.compiled import CompiledEventQuery
    from spark_cep.expressions.shipment import Shipment
    from spark_cep.shed import Shed
    from spark_cep.spark.source import SourceFrame
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.program import Program, Variable
    from spark_cep.udfs.shedding.passing import Feature, PassTable
    from spark_cep.udfs.shedding.utility import Utilities


SCORE = "__cep_score"
DROPPED = "__cep_dropped"
TIE_BREAKER = "__cep_dice"
_READ_COLUMN = "__cep_r{}"
_FEATURE_COLUMN = "__cep_f{}"
_BIN_COLUMN = "__cep_b{}"


@dataclass(frozen=True)
class RowScoring:
    """How rows are scored. `columns`: the input's, that a row's own number is made from."""

    shipment: Shipment
    utilities: Utilities
    columns: tuple[str, ...]
    seed: int


def score_rows(masked: DataFrame, how: RowScoring) -> DataFrame:
    """`masked` with the score as column SCORE, NULL where a row may not be shed."""
    rows = masked.select("*", tie_breaker(how.columns, how.seed).alias(TIE_BREAKER))
    level = "0"
    if how.utilities.tables:
        places = _feature_places(how.utilities)
        # Computed once each, then compared many times.
        read = [
            shipped_column(how.shipment.shipped[f.column]).alias(_READ_COLUMN.format(p))
            for f, p in places.items()
        ]
        rows = rows.select("*", *read)
        features = [
            F.expr(_feature_number(f, _READ_COLUMN.format(p))).alias(_FEATURE_COLUMN.format(p))
            for f, p in places.items()
        ]
        rows = _add_bins(rows.select("*", *features), places)
        worth = _worth_sql(how.utilities, places)
        top = repr(how.utilities.top)
        scaled = f"sqrt(sqrt(least(({worth}) / {top}D, 1D))) * {LEVELS}D"
        level = f"least(CAST({scaled} AS BIGINT), {LEVELS - 1}L)"
    unless = f" AND {MASK} & {how.utilities.needed} = 0" if how.utilities.needed else ""
    score = f"CASE WHEN {MASK} <> 0{unless} THEN {level} + {TIE_BREAKER} END"
    return rows.select(
        *[F.col(quote_column(name)) for name in masked.columns], F.expr(score).alias(SCORE)
    )


def mark_dropped(rows: DataFrame, kinds: Sequence[RowKind]) -> DataFrame:
    """Scored rows with the column DROPPED in place of the score: TRUE of those that are below the
    threshold of their kind. A kind that was not counted stays, and so does all that may not be
    shed."""
    columns = [F.col(quote_column(name)) for name in rows.columns if name != SCORE]
    cases = "".join(f" WHEN {kind.mask} THEN {kind.threshold!r}D" for kind in kinds)
    below = f"coalesce({SCORE} < CASE {MASK}{cases} ELSE 0D END, FALSE)" if kinds else "FALSE"
    # Always so, but Spark does not know. Else it would push the filter in front of all that the
    # score is made of, each step written out anew wherever the next one reads it.
    dropped = f"{below} AND spark_partition_id() >= 0"
    return rows.select(*columns, F.expr(dropped).alias(DROPPED))


def filter_kept(judged_: DataFrame) -> DataFrame:
    """Those that stay."""
    return judged_.filter(~F.col(DROPPED)).drop(DROPPED)


def tie_breaker(columns: Sequence[str], seed: int) -> Column:
    """A number in [0, 1) that hangs on the row's values alone."""
    hashed = F.xxhash64(F.lit(seed), *[F.col(quote_column(name)) for name in columns])
    return F.shiftrightunsigned(hashed, 11).cast("double") * F.lit(2.0**-53)


def hashable_columns(schema: T.StructType) -> tuple[str, ...]:
    """The columns whose values Spark can hash: all but maps and variants."""
    return tuple(field.name for field in schema if _is_hashable(field.dataType))


def _is_hashable(type_: T.DataType) -> bool:
    if isinstance(type_, T.StructType):
        return all(_is_hashable(field.dataType) for field in type_)
    if isinstance(type_, T.ArrayType):
        return _is_hashable(type_.elementType)
    return not isinstance(type_, T.MapType) and type_.typeName() not in _UNHASHABLE


_UNHASHABLE = {"variant", "interval", "geometry", "geography", "udt"}


# ---- worth -------------------------------------------------------------------------------------


def _feature_places(utilities: Utilities) -> dict[Feature, int]:
    """Every feature that a table reads, with its place among them."""
    tables = tables_in(utilities)
    features = dict.fromkeys(feature for table in tables for feature in table.features)
    return {feature: place for place, feature in enumerate(features)}


def _feature_number(feature: Feature, name: str) -> str:
    """An ordered column as a double; others as they are."""
    if not feature.is_ordered:
        return name
    return f"CAST({time_coordinate(feature.type, name)} AS DOUBLE)"


def _add_bins(rows: DataFrame, places: Mapping[Feature, int]) -> DataFrame:
    """Each feature's bin. Those of ordered columns are found by bisection, a step at a time: a
    literal array and one comparison each. A nested CASE does the same in one expression and takes
    3.5 s for 2 million rows, not 0.5, probably as a method too large for Java to compile."""
    steps = max((_bisection_steps(feature) for feature in places), default=0)
    rows = rows.withColumns(
        {_BIN_COLUMN.format(p): F.expr(_first_bin(f, p)) for f, p in places.items()}
    )
    for step in range(steps):
        found = {
            _BIN_COLUMN.format(p): F.expr(_next_bin(f, p, _bisection_steps(f) - 1 - step))
            for f, p in places.items()
            if step < _bisection_steps(f)
        }
        rows = rows.withColumns(found)
    return rows


def _bisection_steps(feature: Feature) -> int:
    return len(feature.splits).bit_length()


def _first_bin(feature: Feature, place: int) -> str:
    """The bin of a value, or the first one to look further from."""
    if feature.is_ordered:
        return "0"
    name = _FEATURE_COLUMN.format(place)
    values = f"array({', '.join(map(_literal, feature.values))})"
    kind = "BIGINT" if feature.type.kind == "int" else ""
    value = f"CAST({name} AS {kind})" if kind else name
    # array_position counts from 1, and gives 0 for the values that have no bin.
    others, count = feature.size - 2, feature.size - 1
    return f"CAST((array_position({values}, {value}) + {others}) % {count} AS INT)"


def _next_bin(feature: Feature, place: int, power: int) -> str:
    """Whether the number is at least the split so far ahead. Beyond the last one there is none."""
    count = (1 << _bisection_steps(feature)) - 1
    padded = [*feature.splits, *[float("inf")] * (count - len(feature.splits))]
    splits = f"array({', '.join(map(_double_literal, padded))})"
    name, at, ahead = _FEATURE_COLUMN.format(place), _BIN_COLUMN.format(place), 1 << power
    return f"IF({name} >= element_at({splits}, {at} + {ahead}), {at} + {ahead}, {at})"


def _double_literal(number: float) -> str:
    return "CAST('Infinity' AS DOUBLE)" if number == float("inf") else f"{number!r}D"


def _worth_sql(utilities: Utilities, places: Mapping[Feature, int]) -> str:
    """The largest of what the row is worth as each of the variables that it may be."""
    roles = []
    for variable in range(utilities.sheddable.bit_length()):
        if utilities.sheddable >> variable & 1:
            shares = [_share_sql(table, places) for table in utilities.tables.get(variable, ())]
            product = " * ".join(shares) or "1D"
            roles.append(f"CASE WHEN {MASK} & {1 << variable} <> 0 THEN {product} ELSE 0D END")
    return roles[0] if len(roles) == 1 else f"greatest({', '.join(roles)})"


def _share_sql(table: PassTable, places: Mapping[Feature, int]) -> str:
    """The share of the row's bins: an element of all shares, one after the other."""
    at = "0"
    for feature in table.features:
        name, found = _FEATURE_COLUMN.format(places[feature]), _BIN_COLUMN.format(places[feature])
        # NaN is above all splits, also those that are not there.
        last = feature.size - 2
        known = f"CASE WHEN {name} IS NULL THEN {feature.size - 1} ELSE least({found}, {last}) END"
        at = known if at == "0" else f"({at}) * {feature.size} + {known}"
    shares = ", ".join(_double_literal(float(share)) for share in table.shares.ravel())
    return f"element_at(array({shares}), 1 + {at})"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return f"CAST('{value}' AS BIGINT)"
    if value.isascii() and value.isprintable() and not {"'", "\\", "$"} & set(value):
        return f"'{value}'"
    # How a literal is escaped, and whether ${...} in it is replaced, hangs on settings of the
    # session; bytes have one form.
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


# --------------------------------------------------------------------------------------------------
# What two looks at a batch saw, and what follows from it: how many rows may stay, which ones, what
# that is expected to take and to lose.
# --------------------------------------------------------------------------------------------------


# What a row costs beside matching: reading, the shuffle, Arrow, sorting. Of the stock workload's
# floor, on one core.
ROW_OVERHEAD_SECONDS = 0.8e-6
# Halvings of the share, when a time is given: to a thousandth.
_HALVINGS = 10
# Counting the matches of a sample ends at so many of them, or after so long.
_MOST_MATCHES = 5_000_000
_MOST_SECONDS = 10.0


@dataclass(frozen=True)
class SheddingAnalysis:
    """What the two looks saw."""

    program: Program
    shed: Shed
    learnt: SheddingModel
    sampled: RowSample
    counts: Mapping[int, ScoreCounts]

    @property
    def sample(self) -> pa.Table:
        return self.sampled.table

    @property
    def rows(self) -> int:
        """The rows that may be shed."""
        return sum(one.rows for one in self.counts.values())

    def kinds(self, share: float) -> tuple[RowKind, ...]:
        """Each kind of row with its threshold, if so many of all of them stay."""
        rows = {mask: one.rows for mask, one in self.counts.items()}
        weights = weights_of(self.shed.policy, rows, self.learnt.loads)
        return kinds_of(self.counts, share_quota(share * self.rows, rows, weights))

    def stays(self, kinds: Sequence[RowKind]) -> npt.NDArray[np.bool_]:
        """Which rows of the sample stay, but for those that are worth just the threshold: of them
        a like number."""
        utilities = self.learnt.utilities
        mask = column_to_numpy(self.sample.column(self.program.mask)).astype(np.int64)
        own = np.random.default_rng(self.shed.seed % (1 << 64)).random(len(mask))
        score = utilities.levels(mask, self.sample) + own
        return ~(utilities.may_be_shed(mask) & (score < row_thresholds(kinds, mask)))

    def recall(self, kinds: Sequence[RowKind]) -> float:
        stays = self.stays(kinds)
        return self.learnt.drawn.recall(stays)

    def seconds(self, share: float, cores: int) -> float:
        """What the query is expected to take if so many stay: the rows' way and the matching."""
        stays = self.stays(self.kinds(share))
        kept = self.sample.filter(pa.array(stays))
        found = estimate_from_table(self.program, kept) if kept.num_rows else None
        estimates = self.sampled.estimates(found)
        times = self.rows / max(self._may_go() * self.sampled.thinned, 1.0)
        if estimates is not None:
            estimates = replace(estimates, windows=estimates.windows * times)
        work = estimate_work(self.program, estimates, measure_costs())
        return (work + share * self.rows * ROW_OVERHEAD_SECONDS) / cores

    def _may_go(self) -> int:
        """Rows of the sample that may be shed."""
        mask = column_to_numpy(self.sample.column(self.program.mask)).astype(np.int64)
        return int(np.count_nonzero(self.learnt.utilities.may_be_shed(mask)))


def choose_share(looked: SheddingAnalysis, span: float | None, cores: int) -> tuple[float, str]:
    """The share of the rows that may stay, and why."""
    shed, rows = looked.shed, looked.rows
    if shed.keep is not None:
        return shed.keep, f"{100 * shed.keep:g}% of {rows:,} rows that may be shed"
    if shed.rows_per_second is not None:
        assert span is not None
        allowed = shed.rows_per_second * max(span, 1.0)
        share = min(1.0, allowed / rows) if rows else 1.0
        return share, f"{rows:,} rows in {span:,.0f} seconds of event time"
    bound = shed.latency_seconds()
    assert bound is not None
    expected = looked.seconds(1.0, cores) if rows else 0.0
    reason = f"matching {rows:,} rows is expected to take {expected:.2g} seconds"
    budget = bound * shed.safety
    if expected <= budget:
        return 1.0, reason
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if looked.seconds(middle, cores) > budget else (middle, high)
    return low, reason


def measure_recall(looked: SheddingAnalysis, kinds: Sequence[RowKind]) -> tuple[int, int] | None:
    """Of the sample's matches, all of them and those that shedding leaves; None if there are too
    many to count. What is dropped takes matches away and adds none, so one run of the engine over
    all rows has both."""
    if looked.program.remotes:
        return None
    limits = Limits(partial_matches=_MOST_MATCHES, matches=_MOST_MATCHES)
    program = replace(looked.program, plan=Plan("lazy-chain"), limits=limits)
    stays = looked.stays(kinds)
    step = advance_events(program, EventState(), looked.sample, None)
    found, kept, until = 0, 0, monotonic() + _MOST_SECONDS
    try:
        for matches in step.matches:
            whole = np.ones(len(matches), dtype=np.bool_)
            for positions in matches.rows.values():
                here = stays[step.events.rows(positions)]
                whole &= here.all(axis=1) if here.ndim > 1 else here
            found, kept = found + len(matches), kept + int(np.count_nonzero(whole))
            if monotonic() > until:
                return None
    except LimitError:
        return None
    return found, kept


# --------------------------------------------------------------------------------------------------
# Shedding of a batch: look at some of the rows, count the scores of all, cut, filter.
#
#     masked rows -> whole windows of some keys, chosen by hash -> utilities, loads
#                 -> scores of all rows, counted by kind        -> thresholds -> a filter in Spark
#
# Both looks are jobs, and they run when the answer is asked for its plan, before any action: a
# quota of rows cannot be met without counting them. Nothing in them hangs on how the rows are
# dealt to partitions or in which order they come, so the same input sheds the same rows. They
# read the columns that conditions need, no payload.
# --------------------------------------------------------------------------------------------------


# Enough that bins of rare values have draws, and half a second of Spark's and Python's time.
SAMPLE_ROWS = 50_000
_TIME, _STRETCH = "__cep_time", "__cep_stretch"


@dataclass(frozen=True)
class SheddingPlan:
    """What was decided. `kinds` empty: there is room for all rows, and none is shed. `share`: of
    the rows that may be shed, what stays. `looked`: what it was decided by."""

    asked: Shed
    how: RowScoring
    kinds: tuple[RowKind, ...]
    share: float
    recall: float
    reason: str
    looked: SheddingAnalysis


def plan_shedding(
    source: SourceFrame,
    masked: DataFrame,
    shipping: CompiledEventQuery,
    program: Program,
    shed: Shed,
) -> SheddingPlan:
    """`masked`: all rows with their candidate mask. `program`: still without a plan."""
    ends = [] if shed.rows_per_second is None else _time_bounds(shipping)
    rows = prepare.filter_candidates(masked, shipping.compiled)
    learnt, sampled = learn_from_rows(source, rows, shipping, program, shed)
    how = RowScoring(
        shipping.shipment, learnt.utilities, hashable_columns(source.df.schema), shed.seed
    )
    counts, span = _count_scores(score_rows(rows, how), ends)
    looked = SheddingAnalysis(program, shed, learnt, sampled, counts)
    share, reason = choose_share(looked, span, count_cores(source.df.sparkSession))
    if share >= 1:
        return SheddingPlan(shed, how, (), 1.0, 1.0, reason, looked)
    kinds = looked.kinds(share)
    return SheddingPlan(shed, how, kinds, share, looked.recall(kinds), reason, looked)


def drop_shed_rows(
    masked: DataFrame,
    shedding: SheddingPlan,
    counted: Callable[[DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """The rows with their candidate mask that stay. `counted` looks at all of them before."""
    if not shedding.kinds:
        return masked
    rows = mark_dropped(score_rows(masked, shedding.how), shedding.kinds)
    return filter_kept(rows if counted is None else counted(rows))


def shed_counts(variables: Sequence[Variable]) -> Column:
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


def learn_from_rows(
    source: SourceFrame, rows: DataFrame, shipping: CompiledEventQuery, program: Program, shed: Shed
) -> tuple[SheddingModel, RowSample]:
    """What a sample of candidate rows says, and the sample. Loads are those of a typical machine:
    measured ones would deal the quota to the kinds in another way each time."""
    sampled = _draw_sample(rows, source, shipping, program, shed)
    return learn_model(
        program, sampled, shed.policy, TYPICAL_COSTS, plain_key_types(shipping, rows)
    ), sampled


# ---- two looks at the rows ---------------------------------------------------------------------


def _draw_sample(
    rows: DataFrame, source: SourceFrame, shipping: CompiledEventQuery, program: Program, shed: Shed
) -> RowSample:
    """Rows of whole stretches of time of some keys, so that rows which may be in one match are
    there together. Which ones is decided by a hash, and so are the rows of a stretch that is
    longer than the sample."""
    stretched = _add_stretch(rows, shipping, shed)
    own = tie_breaker(hashable_columns(source.df.schema), shed.seed)
    chosen = stretched.orderBy(_STRETCH, own).limit(SAMPLE_ROWS)
    found = prepare.select_places(
        chosen, shipping.shipment, needed_columns(program), [_STRETCH]
    ).toArrow()
    stretch = found.column(_STRETCH).to_numpy()
    found, thinned = with_all_columns(program, found), 1.0
    if found.num_rows == SAMPLE_ROWS:
        # The last stretch may go on behind the sample. If the others are enough, it is left out.
        whole = int(np.searchsorted(stretch, stretch[-1]))
        if whole >= SAMPLE_ROWS // 2:
            found = found.slice(0, whole)
        else:
            last = stretched.filter(F.col(_STRETCH) == int(stretch[-1])).count()
            thinned = (whole + last) / SAMPLE_ROWS
    return RowSample(drop_null_times(program, found), thinned)


def _add_stretch(rows: DataFrame, shipping: CompiledEventQuery, shed: Shed) -> DataFrame:
    """Rows that have an event time, with the hash of their key and stretch."""
    compiled, shipped = shipping.compiled, shipping.shipment.shipped
    order = compiled.orders[0]
    rules = compiled.strategy, compiled.consumption
    cut = choose_slicing(compiled.branches, compiled.window, order.type, rules)
    assert cut is not None
    time = prepare.shipped_column(shipped[shipping.orders[0].column]).alias(_TIME)
    timed = rows.select("*", time).filter(~prepare.has_no_time(F.col(_TIME), order.type))
    keys = [prepare.shipped_column(shipped[column]) for column in shipping.key_columns]
    stretch = F.xxhash64(F.lit(shed.seed), F.expr(cut.home(_TIME)), *keys)
    return timed.select("*", stretch.alias(_STRETCH))


def _count_scores(
    rows: DataFrame, ends: Sequence[Column]
) -> tuple[dict[int, ScoreCounts], float | None]:
    """How many rows have which score, by mask; and, given the columns of their `ends`, the seconds
    of event time that they span."""
    place = F.floor(F.col(SCORE) * LEVEL_PARTS).cast("bigint").alias("place")
    found = (
        rows.filter(F.col(SCORE).isNotNull())
        .groupBy(F.col(prepare.MASK).cast("bigint").alias("mask"), place)
        .agg(F.count("*").alias("rows"), *ends)
        .toArrow()
        .sort_by([("mask", "ascending"), ("place", "ascending")])
    )
    masks, places, amounts = (found.column(n).to_numpy() for n in ("mask", "place", "rows"))
    scores = {
        int(mask): ScoreCounts(places[masks == mask], amounts[masks == mask])
        for mask in np.unique(masks)
    }
    if not ends:
        return scores, None
    first, last = pc.min(found.column("first")).as_py(), pc.max(found.column("last")).as_py()
    return scores, 0.0 if first is None else (last - first) / 1e6


def _time_bounds(shipping: CompiledEventQuery) -> list[Column]:
    order = shipping.compiled.orders[0]
    if order.type.kind not in {"timestamp", "timestamp_ntz"}:
        raise PlanError(
            "shed= with rows_per_second needs an event time in seconds, and the first order "
            f"column is {name_of(order.type)}",
            hint="order by a timestamp, or say which share stays: cep.Shed(keep=0.3)",
        )
    text = order.expression if isinstance(order.expression, str) else None
    time = F.expr(time_coordinate(order.type, text)) if text else F.unix_micros(order.expression)
    return [F.min(time).alias("first"), F.max(time).alias("last")]


def plain_key_types(shipping: CompiledEventQuery, rows: DataFrame) -> tuple[Type, ...]:
    """The types of the keys, if their values may be looked at as they are."""
    if not all(key.plain for key in shipping.keys):
        return ()
    keys = [prepare.shipped_column(shipping.shipment.shipped[c]) for c in shipping.key_columns]
    return tuple(type_of(field.dataType) for field in rows.select(*keys).schema) if keys else ()


# --------------------------------------------------------------------------------------------------
# Shedding of a stream: by Spark where a history tells what stays, else in front of the engine.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamSheddingPlan:
    """`before`: the filter in Spark, or `in_front`: what the workers go by."""

    asked: Shed
    before: SheddingPlan | None
    in_front: StreamSheddingSpec | None


def plan_stream_shedding(
    source: SourceFrame,
    masked: tuple[DataFrame, DataFrame | None],
    shipping: CompiledEventQuery,
    program: Program,
    shed: Shed,
) -> StreamSheddingPlan:
    """`masked`: the stream's rows and those of its history, with their candidate masks."""
    rows, past = masked
    known = None
    if past is not None:
        if shed.keep is not None:
            before = plan_shedding(source, past, shipping, program, shed)
            return StreamSheddingPlan(shed, before, None)
        candidates = prepare.filter_candidates(past, shipping.compiled)
        learnt, sampled = learn_from_rows(source, candidates, shipping, program, shed)
        known = statistics_of(program, sampled, learnt, shed.policy, measure_costs())
    partitions = int(source.setting("spark.sql.shuffle.partitions", "200"))
    in_front = StreamSheddingSpec(
        shed.keep,
        shed.latency_seconds(),
        shed.rows_per_second,
        shed.policy,
        shed.safety,
        shed.seed,
        min(count_cores(source.df.sparkSession), partitions),
        plain_key_types(shipping, rows),
        known,
    )
    return StreamSheddingPlan(shed, None, in_front)
