"""Shedding in front of a stream's engine: which of a trigger's rows the engine receives.

    rows of a bucket -> how many there is time for -> all of them, or those of highest utility

One `Shedder` serves all buckets of a query in a worker process. While there is time it learns the
utility of rows, from rows before shedding, and again when their values have drifted. A trigger that
is too full before anything was learnt is learnt from first.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.context import deciding_row, waits_for_horizon
from spark_cep.udfs.events.table import column_to_numpy, count_candidates, drop_null_times
from spark_cep.udfs.events.waiting import can_keep_matches
from spark_cep.udfs.shedding.blocks import (
    block_codes,
    block_hashes,
    choose_stretch,
    cut_blocks,
    has_most_keys,
)
from spark_cep.udfs.shedding.learning import (
    RowSample,
    Way,
    choose_way,
    learn_model,
    statistics_of,
    stream_effort,
    takes_blocks,
    variable_masks,
)
from spark_cep.udfs.shedding.ledger import Charge, Ledger
from spark_cep.udfs.shedding.matches import ALL_MATCHES, has_user_calls
from spark_cep.udfs.shedding.pace import (
    SPEEDUP_WEIGHT,
    RowDensity,
    TimeBudget,
    TriggerTimeModel,
)
from spark_cep.udfs.shedding.partial_matches import drops_partials
from spark_cep.udfs.shedding.quota import (
    levels_in_blocks,
    select_rows_by_kind,
    tie_breakers,
    weights_of,
)
from spark_cep.udfs.shedding.utility import DriftDetector, utilities_of

if TYPE_CHECKING:
    from spark_cep.udfs.program import DroppingRule, Program
    from spark_cep.udfs.shedding.learning import Choice
    from spark_cep.udfs.shedding.pace import TriggerArrival
    from spark_cep.udfs.shedding.utility import SheddingStatistics, StreamSheddingSpec


# From how many rows to learn: what takes time are draws, so that ten times the rows take twice as
# long and say much more of the rows to come. Fewer only where a trigger is already too full.
MOST_ROWS: Final = 20_000
LEAST_ROWS: Final = 2_000
LEAST_ROWS_UNDER_LOAD: Final = 500
# With this many rows in a bucket, learning comes before the first matching.
MANY_ROWS: Final = 5_000
# Statistics from few rows are replaced when this many times as many are there.
RELEARN_FACTOR: Final = 4
# Learning from 2,000 rows takes about so long, and from more of them as much longer as this power
# of their number. Measured with sequences of 3 to 8: 2,000 rows 0.06 to 0.2 s, 20,000 rows 0.09 to
# 0.32 s. What the last time has shown counts, and a quarter more.
LEARNING_SECONDS: Final = 0.1
LEARNING_ROWS: Final = 2_000
LEARNING_POWER: Final = 0.25
LEARNING_MARGIN: Final = 1.25
LEAST_LEARNING_SECONDS: Final = 0.05
# Of the time of a trigger that is too full, the part for learning.
LOADED_LEARNING_SHARE: Final = 0.5
# As long as nothing has to be dropped, learning takes at most this part of the time since the first
# rows came; more only if matching takes so large a part of its time that an overload is near.
IDLE_LEARNING_SHARE: Final = 0.02
NEAR_OVERLOAD: Final = 0.5
# Under load, the least time from one learning to the next, as a multiple of the time it takes.
PAUSE_FACTOR: Final = 10.0

# With fewer blocks in a trigger, a share of them is no choice.
LEAST_BLOCKS: Final = 8

# The horizon of a trigger before any watermark.
NO_HORIZON: Final = -(1 << 63)

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Admission:
    """The rows that stay. `came`: how many arrived; `density`: rows per unit of event time. `shed`:
    by variable the rows kept and dropped. `recall`: the expected share of the matches that remain,
    if it is known. `rule`: where partial matches are dropped, and no rows, what the engine drops,
    and `work`, the share of the work that stays."""

    rows: pa.Table
    came: int
    density: float
    shed: dict[str, list[int]]
    recall: float | None = 1.0
    rule: DroppingRule | None = None
    work: float = 1.0

    @property
    def kept(self) -> int:
        """The rows that stay, or as many as make the work that stays."""
        return self.rows.num_rows if self.rule is None else round(self.work * self.came)


@dataclass(frozen=True)
class BucketTurn:
    """A bucket's turn in a trigger, and its bound: a `budget` of seconds, a `quota` of rows or a
    `share` of the rows that may be shed. `trigger_rows`: in all buckets."""

    bucket: int
    budget: float | None = None
    quota: float | None = None
    share: float | None = None
    # Where the work of its rows falls into a later trigger, the seconds that it may take there.
    later: float | None = None
    # What it counts among the rows of the trigger: its own, or those that are joined now.
    rows: int = 0
    trigger_rows: int = 0
    horizon: int = NO_HORIZON


@dataclass(frozen=True)
class JoinedRows:
    """What a trigger did in the end. `joined`: rows whose matches were searched; `owed`: rows in
    the state whose matches are still to be. `defers`: the next rows will be joined later, too."""

    joined: int
    owed: int
    defers: bool


@dataclass
class Shedder:
    """The shedding of one query in a worker process. `known`: what was learnt so far."""

    spec: StreamSheddingSpec
    program: Program
    clock: Callable[[], float] = time.time
    known: SheddingStatistics | None = None
    learnings: int = 0
    # From LEARNING_ROWS rows.
    learning_seconds: float = LEARNING_SECONDS
    # From the deadline to the end of a bucket: the last block, the answer, the state.
    tail_seconds: float = 0.0
    _drift: DriftDetector | None = None
    _budget: TimeBudget | None = None
    _time_models: dict[int, TriggerTimeModel] = field(default_factory=dict)
    _densities: dict[int, RowDensity] = field(default_factory=dict)
    _ledgers: dict[int, Ledger] = field(default_factory=dict)
    _recent: list[pa.Table] = field(default_factory=list)
    _learnt_rows: int = 0
    _learnt_at: float = -inf
    # When the first rows came, and the seconds of learning when nothing had to be dropped.
    _began: float | None = None
    _idle_learning: float = 0.0
    _before: tuple[str | None, float] | None = None
    _interval: float = 1.0
    # Whether the rows of a trigger are of several blocks, of which some can be kept as a whole.
    _has_blocks: bool = True
    # The length of a block in windows.
    _stretch: int | None = None

    def __post_init__(self) -> None:
        if self.spec.known is not None:
            self._know(self.spec.known, MOST_ROWS)
        if self.spec.latency is not None:
            self._budget = TimeBudget(self.spec.latency, self.spec.safety, self.spec.parallel)

    # -- a trigger of a bucket ------------------------------------------------------------------

    def turn(
        self,
        bucket: int,
        trigger: str | None,
        arrival: TriggerArrival | None,
        rows: int,
        horizon: int = NO_HORIZON,
    ) -> BucketTurn:
        """The bound of a bucket in this trigger. Without an arrival there are no rows."""
        if arrival is None:
            rest = None if self._budget is None else self._budget.rest(trigger, self.clock())
            return BucketTurn(bucket, budget=rest, horizon=horizon)
        if self._budget is not None:
            ledger, own, later = self._ledger(bucket), rows, None
            due, of = ledger.due(horizon)
            if of > 0:
                own = round(arrival.rows * due / of)
            seconds = self._budget.seconds(trigger, arrival, own, self.clock())
            if ledger.defers:
                whole = self._budget.later_seconds(arrival, rows)
                later = max(whole - ledger.seconds_beside(horizon), 0.0)
            return BucketTurn(
                bucket,
                budget=seconds,
                later=later,
                rows=own,
                trigger_rows=arrival.rows,
                horizon=horizon,
            )
        if self.spec.rows_per_second is not None:
            allowed = self.spec.rows_per_second * self._seconds_since(trigger, arrival)
            return BucketTurn(bucket, quota=allowed * rows / max(arrival.rows, 1))
        return BucketTurn(bucket, share=self.spec.keep)

    @property
    def trigger_began(self) -> float | None:
        """When the trigger began, as far as its buckets tell; None without a latency."""
        return None if self._budget is None else self._budget.began

    def admit(self, turn: BucketTurn, rows: pa.Table) -> Admission:
        """The new rows of a bucket that the engine receives."""
        self._remember(rows)
        if self._is_cold(turn, rows):
            turn = self._learn_in(turn)
        mask = column_to_numpy(rows.column(self.program.mask)).astype(np.int64)
        may_go = np.asarray((mask != 0) & (mask & self._needed == 0))
        density = 0.0 if self._budget is None else self._density(turn.bucket, rows)
        quota = self._quota(turn, (rows.num_rows, density), may_go)
        if quota is None or quota >= np.count_nonzero(may_go):
            return Admission(rows, rows.num_rows, density, self._counts(mask, mask))
        most = self._rows_under_load(turn)
        if self._wants_to_learn(rows, most, under_load=True):
            turn = self._learn_in(turn)
            again = self._quota(turn, (rows.num_rows, density), may_go)
            quota = quota if again is None else again
        here = np.flatnonzero(may_go)
        stays = np.ones(len(mask), dtype=np.bool_)
        stays[here] = self._staying(mask[here], rows.take(pa.array(here)), quota)
        recall = self.recall(float(np.count_nonzero(stays[here])) / len(here))
        kept = rows.filter(pa.array(stays))
        counts = self._counts(mask, mask[stays])
        return Admission(kept, rows.num_rows, density, counts, recall)

    def record(
        self,
        turn: BucketTurn,
        admitted: Admission,
        seconds: float,
        done: JoinedRows | None = None,
    ) -> None:
        """Records how long the engine took, and for which rows; None: the admitted ones."""
        if self._budget is None:
            return
        self._budget.ended(turn.rows, self.clock())
        kept, model = admitted.kept, self._time_model(turn.bucket)
        if done is None or not self._may_defer:
            model.observe(admitted.came, kept, admitted.density, seconds)
            return
        ledger = self._ledger(turn.bucket)
        ledger.defers = done.defers
        joined = ledger.settle(self._charge(turn, admitted, model.planned), done.joined, done.owed)
        if joined is not None:
            model.observe(
                round(joined.came), round(joined.kept), joined.density, seconds, joined.seconds
            )

    def owed_rows(self, bucket: int) -> float:
        """The rows of a bucket whose work falls into later triggers."""
        return self._ledger(bucket).rows

    def observe_tail(self, seconds: float) -> None:
        """Records how long a bucket took after its deadline. More is believed at once."""
        weight = 1.0 if seconds > self.tail_seconds else SPEEDUP_WEIGHT
        self.tail_seconds += weight * (max(seconds, 0.0) - self.tail_seconds)

    def _charge(self, turn: BucketTurn, admitted: Admission, planned: float) -> Charge:
        first, last = _time_span(admitted.rows.column(self.program.orders[0].column))
        return Charge(
            admitted.came,
            admitted.kept,
            turn.trigger_rows,
            admitted.density,
            planned if admitted.came else 0.0,
            first,
            last,
            turn.horizon,
        )

    def _ledger(self, bucket: int) -> Ledger:
        if bucket not in self._ledgers:
            defers = self._may_defer and not can_keep_matches(self.program)
            window, by = self.program.window, deciding_row(self.program)
            delay = float(window.size) if window is not None and by == "earliest" else 0.0
            self._ledgers[bucket] = Ledger(defers, delay)
        return self._ledgers[bucket]

    @cached_property
    def _may_defer(self) -> bool:
        return waits_for_horizon(self.program)

    def learn_if_idle(self, turn: BucketTurn, seconds: float) -> None:
        """Learns after a bucket that took `seconds`, if enough of its budget is left."""
        if not self._recent:
            return
        most = self._rows_when_idle(turn, seconds)
        if self._wants_to_learn(self._recent[-1], most, under_load=False):
            began = self.clock()
            self._learn(most)
            self._idle_learning += self.clock() - began

    # -- how many -------------------------------------------------------------------------------

    def _quota(self, turn: BucketTurn, came: tuple[int, float], may_go: Flags) -> float | None:
        """How many of the rows that may be shed stay; None for all. `came`: rows and density."""
        rows, density = came
        if turn.share is not None:
            return float(turn.share * np.count_nonzero(may_go))
        if turn.budget is None or not rows:
            return turn.quota
        seconds = turn.budget if turn.later is None else turn.later
        share = self._time_model(turn.bucket).share(rows, density, seconds)
        if share >= 1:
            return None
        return max(share * rows - (rows - int(np.count_nonzero(may_go))), 0.0)

    def _staying(self, mask: npt.NDArray[np.int64], rows: pa.Table, quota: float) -> Flags:
        """Flags of the rows that stay, of those that may be shed."""
        times = column_to_numpy(rows.column(self.program.orders[0].column))
        own = tie_breakers(times, self.spec.seed)
        if takes_blocks(self.spec.policy):
            hashes = self._block_hashes(rows)
            self._has_blocks = len(np.unique(hashes)) >= LEAST_BLOCKS
            chosen = self._choose(quota / max(len(mask), 1))
            levels = chosen.utilities.levels(mask, rows)
            if chosen.blocks < 1:
                levels = levels_in_blocks(levels, hashes, cut_blocks(hashes, chosen.blocks))
            return select_rows_by_kind((mask, levels, own), quota, chosen.weights)
        levels = self._choose(quota / max(len(mask), 1)).utilities.levels(mask, rows)
        loads = {} if self.known is None else self.known.loads
        # As long as the loads are not known, all kinds lose the same share.
        policy = "random" if self.spec.policy == "darling" and not loads else self.spec.policy
        weights = partial(weights_of, policy, loads=loads)
        return select_rows_by_kind((mask, levels, own), quota, weights)

    def _block_hashes(self, rows: pa.Table) -> npt.NDArray[np.float64]:
        """The hash of each row's block, as long as the first trigger that shed had enough of."""
        if self._stretch is None:
            self._stretch = choose_stretch(
                lambda windows: len(np.unique(block_codes(self.program, rows, windows)))
            )
        return block_hashes(self.program, rows, self.spec.seed, self._stretch)

    def _choose(self, target: float) -> Choice:
        """What stays for a target share. Until something was learnt, whole blocks."""
        ways = self._first_ways if self.known is None else self.known.ways
        return choose_way(self.spec.policy, ways, target, by_blocks=self._has_blocks)

    @cached_property
    def _needed(self) -> int:
        return variable_masks(self.program)[1]

    @cached_property
    def _first_ways(self) -> tuple[Way, ...]:
        even = utilities_of((), *variable_masks(self.program))
        return (Way(1.0, even, ALL_MATCHES, 1.0, 1.0),)

    def recall(self, share: float) -> float | None:
        """The expected recall if a share of the rows stays; None if it is not known."""
        if share >= 1:
            return 1.0
        return None if self.known is None else self._choose(share).recall.value

    def work_part(self, share: float) -> float:
        """The part of the work that is expected to remain then. What the user's functions take is
        not known, and they see what other conditions leave: matches, for the most part."""
        if share <= 0:
            return 0.0
        found = self._choose(share)
        kept = found.recall.value
        return found.work if self._knows_costs or kept is None else max(found.work, kept)

    @cached_property
    def _knows_costs(self) -> bool:
        return not self.program.remotes and not has_user_calls(self.program)

    def least_part(self, share: float) -> float:
        """The least that is expected to remain: as if rows were dropped at random."""
        slots = min(len(branch.slots) for branch in self.program.branches)
        return float(min(share**slots, self.work_part(share)))

    def _time_model(self, bucket: int) -> TriggerTimeModel:
        """The time model of a bucket, which starts as a copy of one that has measured."""
        found = self._time_models.get(bucket)
        if found is None:
            growth = max(max(len(branch.slots) for branch in self.program.branches) - 1, 1)
            found = TriggerTimeModel(growth, self.work_part, least=self.least_part)
            other = next((each for each in self._time_models.values() if each.seen), None)
            if other is not None:
                found.work, found.density, found.fixed = other.work, other.density, other.fixed
            self._time_models[bucket] = found
        if not found.seen and not found.density and self.known is not None:
            found.work = max(found.work, self.known.work)
        return found

    def _density(self, bucket: int, rows: pa.Table) -> float:
        """Rows per unit of event time."""
        if bucket not in self._densities:
            window = self.program.window
            self._densities[bucket] = RowDensity(float(window.size) if window is not None else 1.0)
        times = column_to_numpy(rows.column(self.program.orders[0].column).drop_null())
        return self._densities[bucket].density(times)

    def _seconds_since(self, trigger: str | None, arrival: TriggerArrival) -> float:
        """The seconds since the previous trigger; 1 for the first one."""
        if self._before is None or self._before[0] != trigger:
            if self._before is not None:
                self._interval = max(arrival.began - self._before[1], 0.0)
            self._before = (trigger, arrival.began)
        return self._interval

    # -- learning -------------------------------------------------------------------------------

    def _remember(self, rows: pa.Table) -> None:
        """Keeps the latest rows of all buckets, before shedding, to learn from."""
        if self._began is None:
            self._began = self.clock()
        if rows.num_rows:
            self._recent.append(truncate(rows))
            while sum(each.num_rows for each in self._recent[1:]) >= MOST_ROWS:
                del self._recent[0]

    def _is_cold(self, turn: BucketTurn, rows: pa.Table) -> bool:
        """Whether many rows arrive before anything is known about the time that they take."""
        is_timed = self.known is None and turn.budget is not None
        return bool(is_timed and rows.num_rows >= MANY_ROWS)

    def _wants_to_learn(self, rows: pa.Table, most: int, *, under_load: bool) -> bool:
        """Whether to learn now: the first time, from many more rows than before, or after a drift.
        Under load again only now and then. `most`: the rows that there is time for."""
        waiting = min(sum(each.num_rows for each in self._recent), most)
        if waiting < (LEAST_ROWS_UNDER_LOAD if under_load else LEAST_ROWS):
            return False
        if self._drift is None:
            return True
        pause = PAUSE_FACTOR * self.learning_seconds if under_load else 0.0
        if self.clock() < self._learnt_at + pause:
            return False
        if waiting >= RELEARN_FACTOR * self._learnt_rows:
            return True
        if waiting < min(self._learnt_rows, LEARNING_ROWS):
            return False
        return self._drift.has_drifted(rows)

    def _rows_under_load(self, turn: BucketTurn) -> int:
        """From how many rows there is time to learn in a trigger that is too full. What was never
        learnt is learnt from some rows in any case."""
        if turn.budget is None:
            return MOST_ROWS
        rows = self._rows_in(turn.budget * LOADED_LEARNING_SHARE)
        return max(rows, LEAST_ROWS_UNDER_LOAD) if self.known is None else rows

    def _rows_when_idle(self, turn: BucketTurn, spent: float) -> int:
        """From how many rows to learn after a bucket that took `spent` seconds and has dropped
        nothing."""
        budget = inf if turn.budget is None else turn.budget
        if spent >= NEAR_OVERLOAD * budget:
            return self._rows_in(budget - spent)
        since = 0.0 if self._began is None else self.clock() - self._began
        credit = IDLE_LEARNING_SHARE * since - self._idle_learning
        return self._rows_in(min(budget - spent, credit))

    def _rows_in(self, seconds: float) -> int:
        """From how many rows this is expected to be enough time to learn."""
        parts = max(seconds, 0.0) / (LEARNING_MARGIN * self.learning_seconds)
        rows = LEARNING_ROWS * float(parts ** (1 / LEARNING_POWER))
        return round(min(rows, MOST_ROWS))

    def _learn_in(self, turn: BucketTurn) -> BucketTurn:
        """Learns before the rows of a turn are matched, for which less time is left then."""
        began = self.clock()
        self._learn(self._rows_under_load(turn))
        if turn.budget is None:
            return turn
        return replace(turn, budget=max(turn.budget - (self.clock() - began), 0.0))

    def _learn(self, most: int) -> None:
        """Learns from the latest rows, not from more than `most`."""
        began = self.clock()
        recent = pa.concat_tables(self._recent)
        recent = truncate(recent.slice(max(recent.num_rows - most, 0)))
        self._learn_from(recent)
        parts = (recent.num_rows / LEARNING_ROWS) ** LEARNING_POWER
        seconds = (self.clock() - began) / max(parts, 0.5)
        self.learning_seconds = max(seconds, LEAST_LEARNING_SECONDS)
        self._learnt_at = self.clock()

    def _learn_from(self, recent: pa.Table) -> None:
        table = drop_null_times(self.program, recent)
        keys = self.spec.keys if has_most_keys(self.program, table) else ()
        rows = RowSample(table, keys=keys, effort=stream_effort(table.num_rows))
        costs = self.program.costs or TYPICAL_COSTS
        found = learn_model(self.program, rows, self.spec.policy, costs, self.spec.keep)
        self.learnings += 1
        self._recent = []
        if found.estimates is not None:
            known = statistics_of(self.program, rows, found, costs)
            self._know(known, rows.table.num_rows)

    def _know(self, known: SheddingStatistics, rows: int) -> None:
        """Takes over statistics that were learnt from so many rows."""
        self.known, self._learnt_rows = known, rows
        self._drift = DriftDetector(known.utilities, known.filled, self.program.mask)

    # -- counts ---------------------------------------------------------------------------------

    def _counts(
        self, before: npt.NDArray[np.int64], after: npt.NDArray[np.int64]
    ) -> dict[str, list[int]]:
        every, kept = count_candidates(self.program, before), count_candidates(self.program, after)
        return {
            each.name: [kept[v], every[v] - kept[v]]
            for v, each in enumerate(self.program.variables)
            if not each.negated
        }


def _time_span(column: pa.ChunkedArray) -> tuple[float, float]:
    """The first and the last event time; nothing comes before or after where there is none."""
    times = column_to_numpy(column.drop_null())
    if times.dtype.kind == "f":
        times = times[np.isfinite(times)]
    # Python's numbers: horizons reach to the ends of int64.
    return (times.min().item(), times.max().item()) if len(times) else (-inf, -inf)


def truncate(rows: pa.Table) -> pa.Table:
    """At most MOST_ROWS consecutive rows."""
    return rows if rows.num_rows <= MOST_ROWS else rows.slice(0, MOST_ROWS)


# ---- one for each query of this worker ---------------------------------------------------------

_MOST_QUERIES: Final = 8
_shedders: OrderedDict[str, Shedder] = OrderedDict()


def get_shedder(token: str, spec: StreamSheddingSpec, program: Program) -> Shedder:
    """The shedder of this worker for one run of a query."""
    found = _shedders.pop(token, None) or _make_shedder(spec, program)
    _shedders[token] = found
    while len(_shedders) > _MOST_QUERIES:
        _shedders.popitem(last=False)
    return found


def _make_shedder(spec: StreamSheddingSpec, program: Program) -> Shedder:
    if not drops_partials(spec.policy):
        return Shedder(spec, program)
    from spark_cep.udfs.shedding.partial_shedder import PartialShedder  # noqa: PLC0415

    return PartialShedder(spec, program)


def forget_shedders() -> None:
    """Forgets all shedders, as in a new worker."""
    _shedders.clear()
