"""Shedding before the shuffle: the score of each row as a Spark column, the two jobs that decide
which scores stay, and the plans for batches and streams.

    rows with their mask -> the columns that conditions read, as doubles or values
                         -> a tie-breaker -> the score -> score >= the threshold of its mask

The score consists of comparisons with literals, so it runs in the JVM, and all partitions decide
alike. It equals the score that Python computes (`udfs/shedding/utility.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_cep.errors import PlanError
from spark_cep.expressions.types import name_of
from spark_cep.planner.layout import time_coordinate
from spark_cep.planner.statistics import Sample, scale_to_million
from spark_cep.spark import prepare
from spark_cep.spark.prepare import MASK, shipped_column
from spark_cep.spark.row_hashes import (
    BLOCK,
    TIME,
    BlockHash,
    block_hash,
    hashable_columns,
    tie_breaker,
)
from spark_cep.spark.selection import quote_column
from spark_cep.spark.shedding_cuts import cuts_of
from spark_cep.spark.shedding_sample import draw_rows, meets_quota, plain_key_types
from spark_cep.spark.source import count_cores, shuffle_partitions
from spark_cep.spark.versions import collect_arrow
from spark_cep.udfs.costs import TYPICAL_COSTS, measure_costs
from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.events.sampling import estimate_from_table
from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.program import Limits, Plan
from spark_cep.udfs.shedding.blocks import cut_blocks
from spark_cep.udfs.shedding.learning import (
    RowSample,
    SheddingModel,
    estimate_work,
    learn_model,
    statistics_of,
    takes_blocks,
    variable_masks,
)
from spark_cep.udfs.shedding.matches import ALL_MATCHES
from spark_cep.udfs.shedding.quota import (
    KEEP_ALL,
    LEVEL_PARTS,
    RowKind,
    ScoreCounts,
    kinds_of,
    kinds_together,
    levels_in_blocks,
    number_kinds,
    row_thresholds,
    share_quota,
    weights_of,
)
from spark_cep.udfs.shedding.utility import LEVELS, StreamSheddingSpec

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_cep.events.compiled import CompiledEventQuery
    from spark_cep.expressions.shipment import Shipment
    from spark_cep.shed import Shed
    from spark_cep.spark.shedding_cuts import KindCuts
    from spark_cep.spark.shedding_sample import DrawnRows
    from spark_cep.spark.source import SourceFrame
    from spark_cep.udfs.program import Program, Variable
    from spark_cep.udfs.shedding.learning import Choice
    from spark_cep.udfs.shedding.matches import Recall
    from spark_cep.udfs.shedding.passing import Feature, PassTable
    from spark_cep.udfs.shedding.utility import Utilities

    Numbers = npt.NDArray[np.float64]


SCORE = "__cep_score"
DROPPED = "__cep_dropped"
TIE_BREAKER = "__cep_dice"
_CUT = "__cep_cut"
_READ_COLUMN = "__cep_r{}"
_FEATURE_COLUMN = "__cep_f{}"
_BIN_COLUMN = "__cep_b{}"


@dataclass(frozen=True)
class RowScoring:
    """How rows are scored. `columns`: the input columns that the tie-breaker hashes. A share of the
    `blocks` is preferred, if it is below 1."""

    shipment: Shipment
    utilities: Utilities
    columns: tuple[str, ...]
    seed: int
    blocks: float = 1.0
    block: BlockHash | None = None


def score_rows(masked: DataFrame, how: RowScoring) -> DataFrame:
    """`masked` with the column SCORE, which is NULL if a row must not be shed."""
    rows = masked.select("*", tie_breaker(how.columns, how.seed).alias(TIE_BREAKER))
    takes_all = how.block is None or how.blocks >= 1
    if how.block is not None and not takes_all:
        rows = how.block.add(rows)
    level = "0"
    inside = "" if takes_all else f"{BLOCK} < {how.blocks!r}D"
    if not how.utilities.is_even:
        places = _feature_places(how.utilities)
        # Each is computed once and compared many times.
        read = [
            shipped_column(how.shipment.shipped[f.column]).alias(_READ_COLUMN.format(p))
            for f, p in places.items()
        ]
        rows = rows.select("*", *read)
        features = [
            F.expr(_feature_where(inside, _feature_number(f, _READ_COLUMN.format(p)))).alias(
                _FEATURE_COLUMN.format(p)
            )
            for f, p in places.items()
        ]
        rows = _add_bins(rows.select("*", *features), places)
        utility = _utility_sql(how.utilities, places)
        top = repr(how.utilities.top)
        scaled = f"sqrt(sqrt(least(({utility}) / {top}D, 1D))) * {LEVELS}D"
        level = f"least(CAST({scaled} AS BIGINT), {LEVELS - 1}L)"
    if not takes_all:
        level = f"CASE WHEN {inside} THEN {level} ELSE {_outside_sql()} END"
    unless = f" AND {MASK} & {how.utilities.needed} = 0" if how.utilities.needed else ""
    score = f"CASE WHEN {MASK} <> 0{unless} THEN {level} + {TIE_BREAKER} END"
    return rows.select(
        *[F.col(quote_column(name)) for name in masked.columns], F.expr(score).alias(SCORE)
    )


def mark_dropped(rows: DataFrame, kinds: Sequence[RowKind]) -> DataFrame:
    """Scored rows with the column DROPPED in place of the score: TRUE below the threshold of their
    kind. Kinds that were not counted stay, and so do rows that must not be shed."""
    columns = [F.col(quote_column(name)) for name in rows.columns if name != SCORE]
    below = f"coalesce({SCORE} < {_threshold_sql(kinds)}, FALSE)" if kinds else "FALSE"
    # The last condition is always true, but Spark does not know that. Without it, Spark would push
    # the filter below the steps of the score, and inline each step wherever the next one reads it.
    dropped = f"{below} AND spark_partition_id() >= 0"
    return rows.select(*columns, F.expr(dropped).alias(DROPPED))


def _outside_sql() -> str:
    """The level of a row in a block that is not preferred."""
    return f"-1L - CAST({BLOCK} * {LEVELS}D AS BIGINT)"


def _threshold_sql(kinds: Sequence[RowKind]) -> str:
    cases = "".join(f" WHEN {kind.mask} THEN {kind.threshold!r}D" for kind in kinds)
    return f"CASE {MASK}{cases} ELSE {KEEP_ALL!r}D END"


def mark_below_cuts(
    masked: DataFrame, how: RowScoring, kinds: Sequence[RowKind], cuts: Sequence[KindCuts]
) -> DataFrame:
    """What `mark_dropped` gives of scored rows, without scores. Comparisons come first, and hashes
    are for the rows that they leave open."""
    tie, cut = tie_breaker(how.columns, how.seed), F.col(_CUT)
    rows = _add_cuts(masked, how, cuts)
    below = (cut > 0) & (tie < cut)
    if how.block is not None and how.blocks < 1:
        rows = rows.select("*", how.block.time.alias(TIME))
        if all(kind.threshold > 0 for kind in kinds):
            # Scores in blocks that are not preferred are below 0.
            below = (how.block.column() >= how.blocks) | below
        else:
            rows = rows.select("*", how.block.column().alias(BLOCK))
            level, least = F.expr(_outside_sql()), F.expr(_threshold_sql(kinds))
            # The tie-breaker is between 0 and 1, and most blocks are not at the threshold.
            outside = (level < least - 2) | ((level <= least) & (level + tie < least))
            below = F.when(F.col(BLOCK) < how.blocks, below).otherwise(outside)
    dropped = F.coalesce(F.when(cut >= 1, True).when(cut.isNotNull(), below), F.lit(False))
    # The last condition is there for the same reason as in `mark_dropped`.
    dropped &= F.spark_partition_id() >= 0
    return rows.select(*map(quote_column, masked.columns), dropped.alias(DROPPED))


def _add_cuts(masked: DataFrame, how: RowScoring, cuts: Sequence[KindCuts]) -> DataFrame:
    """The rows with the column _CUT, which is NULL if a row must not be shed."""
    features = {(f.column, f.period): f for one in cuts if (f := one.feature) is not None}
    places = {each: place for place, each in enumerate(features)}
    read = [
        shipped_column(how.shipment.shipped[f.column]).alias(_READ_COLUMN.format(places[each]))
        for each, f in features.items()
    ]
    numbers = [
        f"{_feature_number(f, _READ_COLUMN.format(p))} AS {_FEATURE_COLUMN.format(p)}"
        for p, f in enumerate(features.values())
    ]
    cases = ""
    for one in cuts:
        place = 0 if one.feature is None else places[one.feature.column, one.feature.period]
        cases += f" WHEN {one.mask} THEN {one.sql(_FEATURE_COLUMN.format(place))}"
    cut = f"CASE {MASK}{cases} END AS {_CUT}" if cases else f"CAST(NULL AS DOUBLE) AS {_CUT}"
    return masked.select("*", *read).selectExpr("*", *numbers).selectExpr("*", cut)


def filter_kept(marked: DataFrame) -> DataFrame:
    """The rows that stay."""
    return marked.filter(~F.col(DROPPED)).drop(DROPPED)


# ---- utility in SQL ----------------------------------------------------------------------------


def _feature_places(utilities: Utilities) -> dict[Feature, int]:
    """The features of all tables, numbered."""
    features = dict.fromkeys(f for table in utilities.tables for f in table.features)
    return {feature: place for place, feature in enumerate(features)}


def _feature_number(feature: Feature, name: str) -> str:
    """An ordered column as a double; others unchanged."""
    if not feature.is_ordered:
        return name
    number = f"CAST({time_coordinate(feature.type, name)} AS DOUBLE)"
    return number if feature.period is None else f"pmod({number}, {feature.period!r}D)"


def _feature_where(inside: str, number: str) -> str:
    """NULL in the blocks that are not preferred: nothing is compared there."""
    return f"CASE WHEN {inside} THEN {number} END" if inside else number


def _add_bins(rows: DataFrame, places: Mapping[Feature, int]) -> DataFrame:
    """The bin of each feature. Ordered columns use bisection, one column per step: a literal array
    and one comparison each. A nested CASE would be one expression, and takes 3.5 s for 2 million
    rows instead of 0.5 s, probably because the method is too large for the JIT."""
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
    """The bin of a value, or the start of the bisection."""
    if feature.is_ordered:
        return "0"
    name = _FEATURE_COLUMN.format(place)
    values = f"array({', '.join(map(_literal, feature.values))})"
    kind = "BIGINT" if feature.type.kind == "int" else ""
    value = f"CAST({name} AS {kind})" if kind else name
    # array_position counts from 1, and is 0 for values without a bin.
    others, count = feature.size - 2, feature.size - 1
    return f"CAST((array_position({values}, {value}) + {others}) % {count} AS INT)"


def _next_bin(feature: Feature, place: int, power: int) -> str:
    """One step of the bisection. Splits beyond the last are infinite."""
    count = (1 << _bisection_steps(feature)) - 1
    padded = [*feature.splits, *[float("inf")] * (count - len(feature.splits))]
    splits = f"array({', '.join(map(_double_literal, padded))})"
    name, at, ahead = _FEATURE_COLUMN.format(place), _BIN_COLUMN.format(place), 1 << power
    return f"IF({name} >= element_at({splits}, {at} + {ahead}), {at} + {ahead}, {at})"


def _double_literal(number: float) -> str:
    return "CAST('Infinity' AS DOUBLE)" if number == float("inf") else f"{number!r}D"


def _utility_sql(utilities: Utilities, places: Mapping[Feature, int]) -> str:
    """The utility of the row, over the variables that it may be, added in the order of roles."""
    roles = []
    for role in utilities.roles:
        shares = [_double_literal(role.scale), *(_share_sql(t, places) for t in role.tables)]
        is_candidate = f"{MASK} & {1 << role.variable} <> 0"
        roles.append(f"CASE WHEN {is_candidate} THEN {' * '.join(shares)} ELSE 0D END")
    return " + ".join(roles) or "0D"


def _share_sql(table: PassTable, places: Mapping[Feature, int]) -> str:
    """The share of the row's bins: an element of the flattened shares."""
    at = "0"
    for feature in table.features:
        name, found = _FEATURE_COLUMN.format(places[feature]), _BIN_COLUMN.format(places[feature])
        # NaN is above all splits, also the infinite ones.
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
    # Escapes in a literal, and whether ${...} is substituted, depend on settings of the session;
    # bytes are always written in the same way.
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


# ---- analysis of a batch -------------------------------------------------------------------------


# The cost of a row besides matching: reading, the shuffle, Arrow, sorting. Measured with the stock
# workload and an engine that does nothing, on one core.
ROW_OVERHEAD_SECONDS = 0.8e-6
# What shedding a batch takes in any case (planning, starting jobs, learning), and for each row that
# may be shed, on one core: to draw rows, to drop others in the action, and to count the scores.
CHOOSING_SECONDS = 0.4
DRAWING_ROW_SECONDS = 0.3e-6
DROPPING_ROW_SECONDS = 0.3e-6
COUNTING_ROW_SECONDS = 0.5e-6
# Bisection steps for the share that fits into a latency: to a thousandth.
_HALVINGS = 10
# The limits of counting the matches of a sample.
_MOST_MATCHES = 5_000_000
_MOST_SECONDS = 10.0


@dataclass(frozen=True)
class SheddingAnalysis:
    """What the sample and the counts of scores showed, and what was chosen. `blocks_below`: the
    hash below which blocks are preferred. `size`: how many rows may be shed."""

    program: Program
    shed: Shed
    learnt: SheddingModel
    sampled: RowSample
    choice: Choice
    counts: Mapping[int, ScoreCounts]
    blocks_below: float = 1.0
    size: CandidateCount | None = None

    @property
    def sample(self) -> pa.Table:
        return self.sampled.table

    @property
    def rows(self) -> int:
        """The number of rows that may be shed."""
        if self.size is not None:
            return self.size.rows
        return sum(one.rows for one in self.counts.values())

    def kinds(self, share: float) -> tuple[RowKind, ...]:
        """The kinds with their thresholds if this share of the rows stays."""
        rows = {mask: one.rows for mask, one in self.counts.items()}
        weights: Mapping[int, float] | None = self.choice.weights(rows)
        if not takes_blocks(self.shed.policy):
            weights = weights_of(self.shed.policy, rows, self.learnt.loads)
        if weights is None:
            return kinds_together(self.counts, share * self.rows)
        return kinds_of(self.counts, share_quota(share * self.rows, rows, weights))

    def stays(self, kinds: Sequence[RowKind]) -> npt.NDArray[np.bool_]:
        """Flags of the rows of the sample that stay. Without their tie-breakers, of those at the
        threshold the number is right, but they need not be the same rows."""
        utilities = self.choice.utilities
        mask = _mask_of(self.program, self.sample)
        own = self.sampled.own
        if own is None:
            own = np.random.default_rng(self.shed.seed % (1 << 64)).random(len(mask))
        levels = utilities.levels(mask, self.sample)
        if self.sampled.blocks is not None and self.choice.blocks < 1:
            levels = levels_in_blocks(levels, self.sampled.blocks, self.blocks_below)
        below = levels + own < row_thresholds(kinds, mask)
        return ~(utilities.may_be_shed(mask) & below)


@dataclass(frozen=True)
class CandidateCount:
    """How many rows may be shed, and, if that was asked, the seconds that they span. `is_exact`:
    they were counted, not estimated."""

    rows: int
    span: float | None = None
    is_exact: bool = True

    def __str__(self) -> str:
        """
        >>> str(CandidateCount(10_234)), str(CandidateCount(1_998_412, is_exact=False))
        ('10,234', 'about 2,000,000')
        """
        return f"{self.rows:,}" if self.is_exact else f"about {float(f'{self.rows:.3g}'):,.0f}"


def choose_share(
    shed: Shed, size: CandidateCount, seconds: Callable[[float], float]
) -> tuple[float, str]:
    """The share of the rows that stays, and why. `seconds`: the expected time at a share."""
    rows = size.rows
    if shed.keep is not None:
        return shed.keep, f"{100 * shed.keep:g}% of {size} rows that may be shed"
    if shed.rows_per_second is not None:
        assert size.span is not None
        allowed = shed.rows_per_second * max(size.span, 1.0)
        share = min(1.0, allowed / rows) if rows else 1.0
        return share, f"{size} rows in {size.span:,.0f} seconds of event time"
    bound = shed.latency_seconds()
    assert bound is not None
    expected = seconds(1.0) if rows else 0.0
    reason = f"matching {size} rows is expected to take {expected:.2g} seconds"
    budget = bound * shed.safety
    if expected <= budget:
        return 1.0, reason
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if seconds(middle) > budget else (middle, high)
    return low, reason


def expected_seconds(
    program: Program, learnt: SheddingModel, sampled: RowSample, size: CandidateCount, cores: int
) -> Callable[[float], float]:
    """The expected time of the query if a share of the rows stays: moving rows, and matching."""
    estimates, times = learnt.estimates, _times(program, sampled, size.rows)
    if estimates is not None:
        estimates = replace(estimates, windows=estimates.windows * times)
    work = estimate_work(program, estimates, measure_costs())

    def seconds(share: float) -> float:
        moving = share * size.rows * ROW_OVERHEAD_SECONDS
        return (learnt.choose(share).work * work + moving) / cores

    return seconds


@dataclass(frozen=True)
class SheddingCost:
    """The seconds that shedding is expected to take, and those of moving and matching rows that it
    is expected to save."""

    spent: float
    saved: float

    @property
    def pays(self) -> bool:
        return self.spent <= self.saved


def expected_cost(
    seconds: Callable[[float], float], share: float, size: CandidateCount, cores: int, jobs: int
) -> SheddingCost:
    """`seconds`: the expected time of the query at a share. `jobs`: how often rows were read."""
    of_row = DRAWING_ROW_SECONDS + DROPPING_ROW_SECONDS + COUNTING_ROW_SECONDS * (jobs > 1)
    spent = CHOOSING_SECONDS + size.rows * of_row / cores
    return SheddingCost(spent, max(seconds(1.0) - seconds(share), 0.0))


def _times(program: Program, sampled: RowSample, rows: int) -> float:
    """How many times the rows of the sample there are."""
    mask = _mask_of(program, sampled.table)
    _, needed = variable_masks(program)
    may_go = np.count_nonzero((mask != 0) & (mask & needed == 0))
    return rows / max(may_go * sampled.row_weight, 1.0)


def measure_recall(analysis: SheddingAnalysis, kinds: Sequence[RowKind]) -> tuple[int, int] | None:
    """The number of matches in the sample, and of those that shedding leaves; None if there are too
    many to count. Dropped rows only take matches away, so one run of the engine over all rows
    counts both."""
    if analysis.program.remotes:
        return None
    limits = Limits(partial_matches=_MOST_MATCHES, matches=_MOST_MATCHES)
    program = replace(analysis.program, plan=Plan("lazy-chain"), limits=limits)
    stays = analysis.stays(kinds)
    step = advance_events(program, EventState(), analysis.sample, None)
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


def sample_kept_rows(analysis: SheddingAnalysis, kinds: Sequence[RowKind]) -> Sample:
    """The rows of the sample that stay, for the choice of a plan: no row is read for it."""
    program, sampled = analysis.program, analysis.sampled
    kept = sampled.table.filter(pa.array(analysis.stays(kinds)))
    # Arithmetic errors in a sample affect only the speed of the query.
    with np.errstate(all="ignore"):
        estimates = sampled.estimates(estimate_from_table(program, kept))
    if _times(program, sampled, analysis.rows) <= 1 and sampled.row_weight <= 1:
        return Sample(kept.num_rows, True, estimates)
    rows = max(kept.num_rows * sampled.row_weight, 1.0)
    return Sample(kept.num_rows, False, scale_to_million(estimates, rows), is_drawn=True)


# ---- shedding of a batch -------------------------------------------------------------------------
#
# masked rows -> a sample of whole windows of some keys -> utilities, loads
#             -> rows drawn at random -> their scores -> thresholds -> a filter in Spark
#             -> where these are too few: scores of all rows, counted by kind -> thresholds
#
# Drawing is a job, which runs when the query is built, before any action, and counting a second
# one. Neither depends on how rows are partitioned or ordered, so the same input always sheds the
# same rows.


@dataclass(frozen=True)
class SheddingPlan:
    """The shedding of a batch. Without `kinds` no row is shed. `share`: the share of the rows that
    may be shed that stays."""

    asked: Shed
    how: RowScoring
    kinds: tuple[RowKind, ...]
    share: float
    recall: Recall
    reason: str
    looked: SheddingAnalysis
    cost: SheddingCost


def plan_shedding(
    source: SourceFrame,
    masked: DataFrame,
    shipping: CompiledEventQuery,
    program: Program,
    shed: Shed,
) -> SheddingPlan:
    """`masked`: all rows with their candidate mask. `program`: still without a plan."""
    rows = prepare.filter_candidates(masked, shipping.compiled)
    _check_time_unit(shipping, shed)
    sampled, every = draw_rows(source, rows, shipping, program, shed)
    learnt = _learn(program, sampled, shed)
    drawn = _sheddable(program, every)
    size = _count_candidates(drawn, (every, sampled), program, shed)
    cores = count_cores(source.df.sparkSession)
    seconds = expected_seconds(program, learnt, sampled, size, cores)
    share, reason = choose_share(shed, size, seconds)
    choice = learnt.choose(share, _times(program, sampled, size.rows))
    block = block_hash(shipping, shed.seed, sampled.stretch)
    hashes = drawn.blocks[sampled.stretch]
    below = cut_blocks(hashes, choice.blocks)
    columns = hashable_columns(source.df.schema)
    how = RowScoring(shipping.shipment, choice.utilities, columns, shed.seed, below, block)
    counts: Mapping[int, ScoreCounts] = {}
    jobs = 1
    if share < 1 or shed.keep is not None:
        if meets_quota(drawn, share):
            counts = count_drawn_scores(drawn, program, choice, (hashes, below))
        else:
            counts, jobs = _count_scores(score_rows(_may_be_shed(rows, program), how)), 2
            size = replace(size, rows=sum(one.rows for one in counts.values()), is_exact=True)
            reason = choose_share(shed, size, seconds)[1] if shed.keep is not None else reason
    analysis = SheddingAnalysis(program, shed, learnt, sampled, choice, counts, below, size)
    cost = expected_cost(seconds, share, size, cores, jobs)
    if share >= 1:
        return SheddingPlan(shed, how, (), 1.0, ALL_MATCHES, reason, analysis, cost)
    recall = choice.recall if size.rows else ALL_MATCHES
    return SheddingPlan(shed, how, analysis.kinds(share), share, recall, reason, analysis, cost)


def mark_shed_rows(masked: DataFrame, shedding: SheddingPlan) -> DataFrame:
    """The masked rows, with the column DROPPED if some are dropped."""
    if not shedding.kinds:
        return masked
    how, kinds = shedding.how, shedding.kinds
    cuts = cuts_of(how.utilities, kinds)
    if cuts is not None:
        return mark_below_cuts(masked, how, kinds, cuts)
    return mark_dropped(score_rows(masked, how), kinds)


def shed_counts(variables: Sequence[Variable]) -> Column:
    """The counts that an observation of marked rows takes: for each positive variable the rows kept
    and dropped, in the JSON of the buckets' counts (`udfs/output.py`)."""
    found: list[Column] = []
    for place, each in enumerate(variables):
        if not each.negated:
            # Sums of bits take a third of the time of counts of conditions.
            may_be = f"CAST(shiftright({MASK}, {place}) & 1 AS BIGINT)"
            both = (f"{may_be} * CAST({flag} AS BIGINT)" for flag in (f"NOT {DROPPED}", DROPPED))
            found += [F.lit(each.name), F.array(*(F.expr(f"coalesce(sum({n}), 0L)") for n in both))]
    return F.to_json(F.create_map(F.lit("shed"), F.create_map(*found)))


def sample_with_size(
    source: SourceFrame, rows: DataFrame, shipping: CompiledEventQuery, program: Program, shed: Shed
) -> tuple[RowSample, CandidateCount]:
    """A sample of candidate rows, and how many may be shed."""
    _check_time_unit(shipping, shed)
    sampled, every = draw_rows(source, rows, shipping, program, shed)
    return sampled, _count_candidates(_sheddable(program, every), (every, sampled), program, shed)


def _sheddable(program: Program, drawn: DrawnRows) -> DrawnRows:
    """The rows that may be shed."""
    _, needed = variable_masks(program)
    mask = _mask_of(program, drawn.table)
    return drawn.take((mask != 0) & (mask & needed == 0))


def _count_candidates(
    drawn: DrawnRows, every: tuple[DrawnRows, RowSample], program: Program, shed: Shed
) -> CandidateCount:
    """How many rows `drawn` stands for. `every`: all rows that were read."""
    found = CandidateCount(round(len(drawn.own) * drawn.weight), is_exact=drawn.weight <= 1)
    if shed.rows_per_second is None:
        return found
    return replace(found, span=_seconds_of(program, [each.table for each in every]))


def _learn(program: Program, sampled: RowSample, shed: Shed) -> SheddingModel:
    """Loads are those of a typical machine: measured ones would divide the quota among the kinds
    differently in each run."""
    return learn_model(program, sampled, shed.policy, TYPICAL_COSTS, shed.keep)


# ---- counts --------------------------------------------------------------------------------------


def _may_be_shed(rows: DataFrame, program: Program) -> DataFrame:
    """The rows that have a score. Not by the score itself: Spark would compute it for the filter
    and once more behind it, in one method that is too long to compile."""
    _, needed = variable_masks(program)
    return rows.filter(f"{MASK} <> 0 AND {MASK} & {needed} = 0")


def _count_scores(rows: DataFrame) -> dict[int, ScoreCounts]:
    """The distribution of scores, by mask."""
    place = F.floor(F.col(SCORE) * LEVEL_PARTS).cast("bigint").alias("place")
    counted = rows.groupBy(F.col(prepare.MASK).cast("bigint").alias("mask"), place).agg(
        F.count("*").alias("rows")
    )
    found = collect_arrow(counted).sort_by([("mask", "ascending"), ("place", "ascending")])
    masks, places, amounts = (found.column(n).to_numpy() for n in ("mask", "place", "rows"))
    return {
        int(mask): ScoreCounts(places[masks == mask], amounts[masks == mask])
        for mask in np.unique(masks)
    }


def count_drawn_scores(
    drawn: DrawnRows, program: Program, choice: Choice, blocks: tuple[Numbers, float]
) -> dict[int, ScoreCounts]:
    """The same of rows drawn at random. `blocks`: the hash of each row's block, and the one below
    which blocks are preferred."""
    mask = _mask_of(program, drawn.table)
    levels = choice.utilities.levels(mask, drawn.table)
    if choice.blocks < 1:
        levels = levels_in_blocks(levels, *blocks)
    places = np.floor((levels + drawn.own) * LEVEL_PARTS).astype(np.int64)
    found: dict[int, ScoreCounts] = {}
    lowest = int(places.min(initial=0))
    for mask_of_kind in number_kinds(mask)[0]:
        # Scores are in a range of few places.
        counts = np.bincount(places[mask == mask_of_kind] - lowest)
        here = np.flatnonzero(counts)
        found[int(mask_of_kind)] = ScoreCounts(here + lowest, counts[here] * drawn.weight)
    return found


def _mask_of(program: Program, table: pa.Table) -> npt.NDArray[np.int64]:
    return np.asarray(column_to_numpy(table.column(program.mask)).astype(np.int64))


def _check_time_unit(shipping: CompiledEventQuery, shed: Shed) -> None:
    order = shipping.compiled.orders[0]
    if shed.rows_per_second is not None and order.type.kind not in {"timestamp", "timestamp_ntz"}:
        raise PlanError(
            "shed= with rows_per_second needs an event time in seconds, and the first order "
            f"column is {name_of(order.type)}",
            hint="order by a timestamp, or give a share: cep.Shed(keep=0.3)",
        )


def _seconds_of(program: Program, tables: Sequence[pa.Table]) -> float:
    """From the first event time to the last, in seconds."""
    place = program.orders[0].column
    times = [column_to_numpy(table.column(place)) for table in tables if table.num_rows]
    if not times:
        return 0.0
    return float(max(each.max() for each in times) - min(each.min() for each in times)) / 1e6


# ---- shedding of a stream ------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamSheddingPlan:
    """The shedding of a stream: `before` the shuffle in Spark, if a history decides what stays,
    else `in_front` of the engine in the workers."""

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
    """`masked`: the rows of the stream and of its history, with their candidate masks."""
    rows, past = masked
    known = None
    if past is not None:
        if shed.keep is not None:
            before = plan_shedding(source, past, shipping, program, shed)
            return StreamSheddingPlan(shed, before, None)
        candidates = prepare.filter_candidates(past, shipping.compiled)
        sampled, _ = draw_rows(source, candidates, shipping, program, shed)
        learnt = _learn(program, sampled, shed)
        known = statistics_of(program, sampled, learnt, measure_costs())
    partitions = shuffle_partitions(source.df.sparkSession)
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
