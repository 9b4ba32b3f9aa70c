"""What two looks at a batch saw, and what follows from it: how many rows may stay, which ones, what
that is expected to take and to lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.udfs.engine import State, advance
from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.events import numbers
from spark_cep.udfs.planning.costs import measured
from spark_cep.udfs.program import Limits, Plan
from spark_cep.udfs.sampling import estimates_of
from spark_cep.udfs.shedding.learning import work_of
from spark_cep.udfs.shedding.quota import Kind, Scores, kinds_of, shared, thresholds, weights_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_cep.shedding.shed import Shed
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.shedding.learning import Learnt, Sampled

# What a row costs beside matching: reading, the shuffle, Arrow, sorting. Of the stock workload's
# floor, on one core.
ROW_SECONDS = 0.8e-6
# Halvings of the share, when a time is given: to a thousandth.
_HALVINGS = 10
# Counting the matches of a sample ends at so many of them, or after so long.
_MOST_MATCHES = 5_000_000
_MOST_SECONDS = 10.0


@dataclass(frozen=True)
class Looked:
    """What the two looks saw."""

    program: Program
    shed: Shed
    learnt: Learnt
    sampled: Sampled
    counts: Mapping[int, Scores]

    @property
    def sample(self) -> pa.Table:
        return self.sampled.table

    @property
    def rows(self) -> int:
        """The rows that may be shed."""
        return sum(one.rows for one in self.counts.values())

    def kinds(self, share: float) -> tuple[Kind, ...]:
        """Each kind of row with its threshold, if so many of all of them stay."""
        rows = {mask: one.rows for mask, one in self.counts.items()}
        weights = weights_of(self.shed.policy, rows, self.learnt.loads)
        return kinds_of(self.counts, shared(share * self.rows, rows, weights))

    def stays(self, kinds: Sequence[Kind]) -> npt.NDArray[np.bool_]:
        """Which rows of the sample stay, but for those that are worth just the threshold: of them
        a like number."""
        utilities = self.learnt.utilities
        mask = numbers(self.sample.column(self.program.mask)).astype(np.int64)
        own = np.random.default_rng(self.shed.seed % (1 << 64)).random(len(mask))
        score = utilities.levels(mask, self.sample) + own
        return ~(utilities.may_be_shed(mask) & (score < thresholds(kinds, mask)))

    def recall(self, kinds: Sequence[Kind]) -> float:
        stays = self.stays(kinds)
        return self.learnt.drawn.recall(stays)

    def seconds(self, share: float, cores: int) -> float:
        """What the query is expected to take if so many stay: the rows' way and the matching."""
        stays = self.stays(self.kinds(share))
        kept = self.sample.filter(pa.array(stays))
        found = estimates_of(self.program, kept) if kept.num_rows else None
        estimates = self.sampled.estimates(found)
        times = self.rows / max(self._may_go() * self.sampled.thinned, 1.0)
        if estimates is not None:
            estimates = replace(estimates, windows=estimates.windows * times)
        work = work_of(self.program, estimates, measured())
        return (work + share * self.rows * ROW_SECONDS) / cores

    def _may_go(self) -> int:
        """Rows of the sample that may be shed."""
        mask = numbers(self.sample.column(self.program.mask)).astype(np.int64)
        return int(np.count_nonzero(self.learnt.utilities.may_be_shed(mask)))


def share_of(looked: Looked, span: float | None, cores: int) -> tuple[float, str]:
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


def measured_recall(looked: Looked, kinds: Sequence[Kind]) -> tuple[int, int] | None:
    """Of the sample's matches, all of them and those that shedding leaves; None if there are too
    many to count. What is dropped takes matches away and adds none, so one run of the engine over
    all rows has both."""
    if looked.program.remotes:
        return None
    limits = Limits(partial_matches=_MOST_MATCHES, matches=_MOST_MATCHES)
    program = replace(looked.program, plan=Plan("lazy-chain"), limits=limits)
    stays = looked.stays(kinds)
    step = advance(program, State(), looked.sample, None)
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
