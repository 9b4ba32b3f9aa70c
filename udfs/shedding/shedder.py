"""In front of a stream's engine: which of a trigger's rows it gets.

    rows of a bucket -> how many there is time for -> all of them, or those that are worth most

One `Shedder` serves all buckets of a query in a worker process. While there is room it learns what
rows are worth, from rows as they came, and again when their values have drifted; a trigger that is
too full before anything was learnt is learnt from first. Otherwise a row is only counted.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.table import column_to_numpy, count_candidates, drop_null_times
from spark_cep.udfs.shedding.learning import RowSample, learn_model, statistics_of, variable_masks
from spark_cep.udfs.shedding.pace import RowDensity, TimeBudget, TriggerTimeModel
from spark_cep.udfs.shedding.quota import select_rows_by_kind, tie_breakers
from spark_cep.udfs.shedding.utility import DriftDetector, utilities_of

if TYPE_CHECKING:
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.shedding.pace import TriggerArrival
    from spark_cep.udfs.shedding.utility import SheddingStatistics, StreamSheddingSpec, Utilities


# Rows that are learnt from: with the most there are draws for every bin, which takes 50 to 100 ms.
MOST_ROWS: Final = 20_000
LEAST_ROWS: Final = 500
# A trigger of a bucket with so many rows is not begun without knowing anything.
MANY_ROWS: Final = 5_000
# What was learnt from few rows is learnt again from so many times as many.
RELEARN_FACTOR: Final = 4
# Learning takes about so long; where four times that is left of a bucket's time, there is room.
LEARNING_SECONDS: Final = 0.1
LEARNING_MARGIN: Final = 4.0
# Values that drift all the time, as positions in a game do, are learnt again after so long at the
# soonest: that is 1 % of the time.
PAUSE_SECONDS: Final = 100 * LEARNING_SECONDS
# A trigger that is learnt from under load: after so many without, at the least.
TRIGGERS_BETWEEN_LEARNING: Final = 10

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Admission:
    """The rows that stay. `came`: how many there were, `density`: of them, in a unit of event time.
    `shed`: by variable rows kept and dropped. `recall`: what is expected to be left of the
    matches."""

    rows: pa.Table
    came: int
    density: float
    shed: dict[str, list[int]]
    recall: float = 1.0


@dataclass(frozen=True)
class BucketTurn:
    """A bucket's turn in a trigger, and what bounds it: a `budget` of seconds, a `quota` of rows
    or a `share` of those that may be shed."""

    bucket: int
    budget: float | None = None
    quota: float | None = None
    share: float | None = None


@dataclass
class Shedder:
    spec: StreamSheddingSpec
    program: Program
    clock: Callable[[], float] = time.time
    known: SheddingStatistics | None = None
    learnings: int = 0
    _drift: DriftDetector | None = None
    _budget: TimeBudget | None = None
    _paces: dict[int, TriggerTimeModel] = field(default_factory=dict)
    _crowds: dict[int, RowDensity] = field(default_factory=dict)
    _recent: list[pa.Table] = field(default_factory=list)
    _since: int = 0
    _learnt_rows: int = 0
    _drifted_at: float = -inf
    _before: tuple[str | None, float] | None = None
    _interval: float = 1.0

    def __post_init__(self) -> None:
        if self.spec.known is not None:
            self._know(self.spec.known, MOST_ROWS)
        if self.spec.latency is not None:
            self._budget = TimeBudget(self.spec.latency, self.spec.safety, self.spec.parallel)

    # -- a trigger of a bucket ------------------------------------------------------------------

    def turn(
        self, bucket: int, trigger: str | None, arrival: TriggerArrival | None, rows: int
    ) -> BucketTurn:
        """What the bucket may have. Without an arrival nothing came."""
        if arrival is None:
            return BucketTurn(bucket)
        if self._budget is not None:
            seconds = self._budget.seconds(trigger, arrival, rows, self.clock())
            return BucketTurn(bucket, budget=seconds)
        if self.spec.rows_per_second is not None:
            allowed = self.spec.rows_per_second * self._seconds_since(trigger, arrival)
            return BucketTurn(bucket, quota=allowed * rows / max(arrival.rows, 1))
        return BucketTurn(bucket, share=self.spec.keep)

    def admit(self, turn: BucketTurn, rows: pa.Table) -> Admission:
        """Of the bucket's new rows those that the engine gets."""
        self._remember(rows)
        if self._is_cold(turn, rows):
            self._learn()
        mask = column_to_numpy(rows.column(self.program.mask)).astype(np.int64)
        may_go = self._utilities.may_be_shed(mask)
        density = 0.0 if self._budget is None else self._density(turn.bucket, rows)
        quota = self._quota(turn, (rows.num_rows, density), may_go)
        if quota is None or quota >= np.count_nonzero(may_go):
            self._since = 0
            return Admission(rows, rows.num_rows, density, self._counts(mask, mask))
        self._since += 1
        if self._wants_to_learn(rows, under_load=True):
            self._learn()
        here = np.flatnonzero(may_go)
        stays = np.ones(len(mask), dtype=np.bool_)
        stays[here] = self._staying(mask[here], rows.take(pa.array(here)), quota)
        recall = self.part(float(np.count_nonzero(stays[here])) / len(here))
        kept = rows.filter(pa.array(stays))
        counts = self._counts(mask, mask[stays])
        return Admission(kept, rows.num_rows, density, counts, recall)

    def took(self, turn: BucketTurn, admitted: Admission, seconds: float) -> None:
        """The engine had these rows of the bucket, and needed so long."""
        if self._budget is not None:
            self._budget.ended(admitted.came, self.clock())
            kept = admitted.rows.num_rows
            self._pace(turn.bucket).saw(admitted.came, kept, admitted.density, seconds)

    def learn_if_there_is_room(self, turn: BucketTurn, seconds: float) -> None:
        """After a bucket that took so long."""
        if not self._recent:
            return
        has_room = turn.budget is None or turn.budget - seconds > LEARNING_MARGIN * LEARNING_SECONDS
        if has_room and self._wants_to_learn(self._recent[-1], under_load=False):
            self._learn()

    # -- how many --------------------------------------------------------------------------------

    def _quota(self, turn: BucketTurn, came: tuple[int, float], may_go: Flags) -> float | None:
        """How many rows that may be shed stay; None: all. `came`: rows, and their density."""
        rows, density = came
        if turn.share is not None:
            return float(turn.share * np.count_nonzero(may_go))
        if turn.budget is None or not rows:
            return turn.quota
        share = self._pace(turn.bucket).share(rows, density, turn.budget)
        if share >= 1:
            return None
        return max(share * rows - (rows - int(np.count_nonzero(may_go))), 0.0)

    def _staying(self, mask: npt.NDArray[np.int64], rows: pa.Table, quota: float) -> Flags:
        """Which of the rows that may be shed stay."""
        known = self.known
        times = column_to_numpy(rows.column(self.program.orders[0].column))
        of_rows = (mask, self._utilities.levels(mask, rows), tie_breakers(times, self.spec.seed))
        loads = {} if known is None else known.loads
        # Where nothing is known of the work that kinds make, all of them lose the same share.
        policy = "random" if self.spec.policy == "utility" and not loads else self.spec.policy
        return select_rows_by_kind(policy, of_rows, quota, loads)

    @property
    def _utilities(self) -> Utilities:
        """Before anything is known, all rows are worth the same."""
        return (
            utilities_of((), *variable_masks(self.program))
            if self.known is None
            else self.known.utilities
        )

    def part(self, share: float) -> float:
        """What is expected to be left of the matches if a share of the rows stays."""
        if self.known is None:
            return float(share ** min(len(branch.slots) for branch in self.program.branches))
        return float(np.interp(share, np.linspace(0, 1, len(self.known.curve)), self.known.curve))

    def work_part(self, share: float) -> float:
        """The part of matching that is left then, at the most: partial matches are fewer where the
        matches are, but not by as much."""
        if self.known is None:
            return share * share
        return float(self.part(share) ** self.known.depth)

    def least_part(self, share: float) -> float:
        """And at the least: that of rows dropped at random."""
        depth = 1.0 if self.known is None else self.known.depth
        slots = min(len(branch.slots) for branch in self.program.branches)
        return float(min(share ** (slots * depth), self.work_part(share)))

    def _pace(self, bucket: int) -> TriggerTimeModel:
        """The bucket's own, which begins as that of one that is known."""
        found = self._paces.get(bucket)
        if found is None:
            growth = max(max(len(branch.slots) for branch in self.program.branches) - 1, 1)
            found = TriggerTimeModel(growth, self.work_part, least=self.least_part)
            other = next((each for each in self._paces.values() if each.seen), None)
            if other is not None:
                found.work, found.density, found.fixed = other.work, other.density, other.fixed
            self._paces[bucket] = found
        if not found.seen and not found.density and self.known is not None:
            found.work = max(found.work, self.known.work)
        return found

    def _density(self, bucket: int, rows: pa.Table) -> float:
        """Rows in a unit of event time."""
        if bucket not in self._crowds:
            window = self.program.window
            self._crowds[bucket] = RowDensity(float(window.size) if window is not None else 1.0)
        times = column_to_numpy(rows.column(self.program.orders[0].column).drop_null())
        return self._crowds[bucket].density(times)

    def _seconds_since(self, trigger: str | None, arrival: TriggerArrival) -> float:
        """From the trigger before to this one; of the first one it is not known, and one second
        is taken."""
        if self._before is None or self._before[0] != trigger:
            if self._before is not None:
                self._interval = max(arrival.began - self._before[1], 0.0)
            self._before = (trigger, arrival.began)
        return self._interval

    # -- what rows are worth ---------------------------------------------------------------------

    def _remember(self, rows: pa.Table) -> None:
        """The latest rows as they came, of all buckets, to learn from."""
        if rows.num_rows:
            self._recent.append(_truncate(rows))
            while sum(each.num_rows for each in self._recent[1:]) >= MOST_ROWS:
                del self._recent[0]

    def _is_cold(self, turn: BucketTurn, rows: pa.Table) -> bool:
        """Whether many rows come before anything is known of what matching them takes."""
        is_timed = self.known is None and turn.budget is not None
        return bool(is_timed and rows.num_rows >= MANY_ROWS)

    def _wants_to_learn(self, rows: pa.Table, *, under_load: bool) -> bool:
        """Whether there is something to learn. Under load that is the first time, when knowing is
        worth the time, and where values have drifted, not more often than now and then."""
        waiting = sum(each.num_rows for each in self._recent)
        if waiting < LEAST_ROWS:
            return False
        if self._drift is None:
            return True
        if waiting >= RELEARN_FACTOR * self._learnt_rows:
            return not under_load
        now = self.clock()
        if (
            self._since % TRIGGERS_BETWEEN_LEARNING
            if under_load
            else now - self._drifted_at < PAUSE_SECONDS
        ):
            return False
        drifted = self._drift.has_drifted(rows)
        if drifted:
            self._drifted_at = now
        return drifted

    def _learn(self) -> None:
        recent = _truncate(pa.concat_tables(self._recent))
        rows = RowSample(drop_null_times(self.program, recent))
        costs = self.program.costs or TYPICAL_COSTS
        found = learn_model(self.program, rows, self.spec.policy, costs, self.spec.keys)
        self.learnings += 1
        self._recent = []
        if found.estimates is not None:
            known = statistics_of(self.program, rows, found, self.spec.policy, costs)
            self._know(known, rows.table.num_rows)

    def _know(self, known: SheddingStatistics, rows: int) -> None:
        """What so many rows said."""
        self.known, self._learnt_rows = known, rows
        self._drift = DriftDetector(known.utilities, known.filled, self.program.mask)

    # -- what is told ----------------------------------------------------------------------------

    def _counts(
        self, before: npt.NDArray[np.int64], after: npt.NDArray[np.int64]
    ) -> dict[str, list[int]]:
        every, kept = count_candidates(self.program, before), count_candidates(self.program, after)
        return {
            each.name: [kept[v], every[v] - kept[v]]
            for v, each in enumerate(self.program.variables)
            if not each.negated
        }


def _truncate(rows: pa.Table) -> pa.Table:
    """So many rows that follow each other in time."""
    return rows if rows.num_rows <= MOST_ROWS else rows.slice(0, MOST_ROWS)


# ---- one for each query of this worker ---------------------------------------------------------

_MOST_QUERIES: Final = 8
_shedders: OrderedDict[str, Shedder] = OrderedDict()


def get_shedder(token: str, spec: StreamSheddingSpec, program: Program) -> Shedder:
    """The worker's, for a run of a query."""
    found = _shedders.pop(token, None) or Shedder(spec, program)
    _shedders[token] = found
    while len(_shedders) > _MOST_QUERIES:
        _shedders.popitem(last=False)
    return found


def forget_shedders() -> None:
    """All of them, as in a new worker."""
    _shedders.clear()
