"""The matches of a sample of rows, and the share of them that shedding leaves.

The engine itself matches some blocks of the sample: rows of one key in one stretch of time, which
lose hardly a match at their borders. So lists, OR, optional parts and every condition count as they
are. Where a few blocks have more matches than can be counted, random partial matches stand for
them. The share of the matches all of whose rows stay is then counted, not modeled; blocks are
independent of each other, which gives an interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.errors import CepError, LimitError
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.events.sampling import (
    can_sample,
    draw_partials,
    make_sampling_walk,
    previous_cells,
)
from spark_cep.udfs.expressions import UserCall
from spark_cep.udfs.program import Adaptation, Limits, Plan
from spark_cep.udfs.shedding.blocks import block_codes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.walk import BranchWalk
    from spark_cep.udfs.program import Program

Flags = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

# The pairs that matching blocks of a sample may test, about 0.1 seconds, and how many matches are
# enough. No clock decides: the same rows always show the same.
MOST_PAIRS: Final = 10_000_000
ENOUGH_MATCHES: Final = 200_000
MOST_MATCHES: Final = 1_000_000
MOST_PARTIALS: Final = 20_000_000
# The rows of the first blocks; each later batch has twice as many.
FIRST_ROWS: Final = 2_000
# Stretches of a block, in windows: of the sample's blocks, and of those that are told apart for
# the interval, which are matched instead where the others have too many pairs.
BLOCK_WINDOWS: Final = 16
CLUSTER_WINDOWS: Final = 2
# With fewer matches, or in fewer blocks, nothing is said about the share that stays.
LEAST_MATCHES: Final = 30
LEAST_CLUSTERS: Final = 5
MATCH_DRAWS: Final = 30_000
# The quantile of a normal distribution for an interval of 90 %.
QUANTILE: Final = 1.645


@dataclass(frozen=True)
class Recall:
    """The expected share of the matches that stays, with an interval of 90 %; without a value, why
    it is not known."""

    value: float | None
    low: float = 0.0
    high: float = 1.0
    unknown: str = ""

    def times(self, share: float) -> Recall:
        """If only this share of the matches can stay."""
        if self.value is None:
            return self
        return Recall(self.value * share, self.low * share, self.high * share)

    def widen(self, spread: float) -> Recall:
        """With one more source of chance, of this standard deviation."""
        if self.value is None:
            return self
        low = sqrt((self.value - self.low) ** 2 + (QUANTILE * spread * self.value) ** 2)
        high = sqrt((self.high - self.value) ** 2 + (QUANTILE * spread * self.value) ** 2)
        return Recall(self.value, max(self.value - low, 0.0), min(self.value + high, 1.0))


ALL_MATCHES: Final = Recall(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class _Matches:
    """Some matches with equally many rows: the rows of the table for each, the variable of each
    column, and their weights."""

    rows: Positions
    weights: Numbers
    variables: tuple[int, ...]

    def stay(self, stays: Flags) -> Flags:
        return np.asarray(stays[self.rows].all(axis=1))


class MatchSample:
    """Matches of the rows of a table. `clusters`: of each row. `unknown`: why they may not all be
    matches, so that nothing is told by them. `searched`: the rows that matches were looked for
    among."""

    def __init__(
        self,
        found: Sequence[_Matches],
        clusters: Positions,
        unknown: str = "",
        *,
        searched: Flags,
    ) -> None:
        self._found = found
        self.searched = searched
        self._unknown = unknown
        self._clusters = clusters
        self.count = sum(int(np.count_nonzero(each.weights)) for each in found)
        codes = [self._clusters[each.rows[:, 0]] for each in found]
        size = int(max((code.max(initial=-1) for code in codes), default=-1)) + 1
        self._codes = codes
        self._every = self._sums([each.weights for each in found], size)

    @property
    def is_enough(self) -> bool:
        clusters = int(np.count_nonzero(self._every))
        return self.count >= LEAST_MATCHES and clusters >= LEAST_CLUSTERS

    def contains(self, variable: int) -> Flags:
        """Which rows are this variable in some match."""
        found = np.zeros(len(self._clusters), dtype=np.bool_)
        for each in self._found:
            for place, its in enumerate(each.variables):
                if its == variable:
                    found[each.rows[each.weights > 0, place]] = True
        return found

    def share(self, stays: Flags) -> float | None:
        """The share of the matches all of whose rows stay; None without matches."""
        every = float(self._every.sum())
        kept = sum(float(each.weights[each.stay(stays)].sum()) for each in self._found)
        return kept / every if every else None

    def recall(self, stays: Flags) -> Recall:
        """The share of the matches that stays, with its interval."""
        if self._unknown:
            return Recall(None, unknown=self._unknown)
        if not self.count:
            return Recall(None, unknown="no match in the sample")
        if not self.is_enough:
            return Recall(None, unknown=f"only {self.count:,} matches in the sample")
        kept = self._sums([each.weights * each.stay(stays) for each in self._found])
        return recall_of(self._every, kept)

    def spread(self, share: float, times: float, windows: int) -> float:
        """The relative standard deviation of the matches in blocks, so many windows long, if this
        share of them is chosen by a hash. `times`: how many times the rows of the sample there
        are."""
        every = self._every[self._every > 0]
        if not len(every) or not 0 < share < 1:
            return 0.0
        uneven = float(np.square(every).sum()) / float(every.sum()) ** 2
        clusters = windows / CLUSTER_WINDOWS
        return sqrt((1 - share) / share * uneven * clusters / times)

    def _sums(self, weights: Sequence[Numbers], size: int | None = None) -> Numbers:
        found = np.zeros(len(self._every) if size is None else size)
        for codes, each in zip(self._codes, weights, strict=True):
            found += np.bincount(codes, each, len(found))
        return found


def recall_of(every: Numbers, kept: Numbers) -> Recall:
    """The share that was kept, by the matches of each cluster and those kept. At least two clusters
    have some."""
    total = float(every.sum())
    value = float(kept.sum()) / total
    count = int(np.count_nonzero(every))
    spread = sqrt(float(np.square(kept - value * every).sum()) * count / (count - 1)) / total
    # None or all of a few clusters do not prove 0 or 1.
    effective = total**2 / float(np.square(every).sum())
    spread = max(spread, 1 / (effective + 2) * sqrt(max(value * (1 - value), 1 / effective)))
    half = QUANTILE * spread
    return Recall(value, max(value - half, 0.0), min(value + half, 1.0))


def sample_matches(matching: AdvanceContext) -> MatchSample:
    """Matches of the rows of a context, which was made of its table."""
    program, table = matching.program, matching.events.table
    clusters = block_codes(program, table, CLUSTER_WINDOWS)
    unknown = ""
    if program.remotes or has_user_calls(program):
        unknown = "remote data and functions of the user are not tested on a sample"
    found = None
    searched: Flags = np.zeros(table.num_rows, dtype=np.bool_)
    for windows in () if unknown else (BLOCK_WINDOWS, CLUSTER_WINDOWS):
        found = found or _match_blocks(program, table, windows, searched)
    if found is None:
        searched = np.ones(table.num_rows, dtype=np.bool_)
        found = [
            drawn
            for number in range(len(program.branches))
            if (drawn := _draw_matches(make_sampling_walk(matching, number))) is not None
        ]
    return MatchSample(found, clusters, unknown, searched=searched)


def has_user_calls(program: Program) -> bool:
    """Whether conditions call functions of the user, of which nobody knows how long they take."""
    every = (node for c in program.conditions for node in c.expression.walk())
    return any(isinstance(node, UserCall) for node in every)


# ---- matching blocks -----------------------------------------------------------------------------


def _match_blocks(
    program: Program, table: pa.Table, windows: int, searched: Flags
) -> list[_Matches] | None:
    """The matches of as many blocks, so many windows long, as can be afforded; None if the first
    ones have too many. Sets the flags of the rows that were `searched`."""
    found: list[_Matches] = []
    count = pairs = 0
    for here in batches_of_blocks(program, table, windows):
        try:
            added, tested = _matches_of(program, table, here)
        except CepError:
            return found or None
        searched[here] = True
        found += added
        count, pairs = count + sum(len(each.rows) for each in added), pairs + tested
        # The next batch takes twice as many.
        if count >= ENOUGH_MATCHES or pairs + 2 * tested > MOST_PAIRS:
            break
    return found


def batches_of_blocks(
    program: Program, table: pa.Table, windows: int, size: int = FIRST_ROWS
) -> Iterator[Positions]:
    """The rows of the table in batches of whole blocks, in an order of chance: the first batch has
    at least `size` rows, each other one twice as many."""
    codes = block_codes(program, table, windows)
    if not len(codes):
        return
    by_chance = np.random.default_rng(0).permutation(int(codes.max()) + 1)[codes]
    order = np.argsort(by_chance, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(by_chance[order])) + 1, len(order))
    begin = 0
    while begin < len(order):
        place = min(int(np.searchsorted(ends, begin + size)), len(ends) - 1)
        end = int(ends[place])
        yield np.sort(order[begin:end])
        begin, size = end, 2 * size


def _matches_of(program: Program, table: pa.Table, here: Positions) -> tuple[list[_Matches], int]:
    """The matches of some rows, and the pairs that were tested."""
    plain = replace(
        program,
        plan=Plan("lazy-chain"),
        adaptation=Adaptation(),
        home=None,
        limits=Limits(partial_matches=MOST_PARTIALS, matches=MOST_MATCHES, pairs=MOST_PAIRS),
    )
    step = advance_events(plain, EventState(), table.take(pa.array(here)), None)
    found = []
    for matches in step.matches:
        columns = {v: here[step.events.rows(each)] for v, each in matches.rows.items()}
        if columns and len(matches):
            parts = {v: c if c.ndim > 1 else c[:, np.newaxis] for v, c in columns.items()}
            rows = np.concatenate([*parts.values()], axis=1)
            variables = tuple(v for v, part in parts.items() for _ in range(part.shape[1]))
            found.append(_Matches(rows, np.ones(len(rows)), variables))
        if step.metrics.pairs > MOST_PAIRS:
            raise LimitError("a sample has more pairs than can be tested")
    return found, step.metrics.pairs


# ---- drawn matches -------------------------------------------------------------------------------


def _draw_matches(walk: BranchWalk) -> _Matches | None:
    """Random partial matches of all slots that pass all conditions. Lists have one element, and
    repeated groups none."""
    slots = [slot for slot in sorted(walk.slots.elements) if not walk.slot(slot).is_group]
    drawn = draw_partials(walk, slots, MATCH_DRAWS) if slots else None
    if drawn is None:
        return None
    partials, weights = drawn
    reader, holds = walk.reader(partials), np.ones(len(partials), dtype=np.bool_)
    for condition in walk.matching.program.conditions:
        if can_sample(walk, condition) and not any(previous_cells(condition)):
            holds &= reader.holds(condition)
    rows = [
        walk.matching.events.rows(each[:, 0])[holds]
        for slot in slots
        for each in walk.slots.all_rows(slot, partials)
    ]
    variables = tuple(v for slot in slots for v in walk.slot(slot).variables)
    return _Matches(np.stack(rows, axis=1), weights[holds], variables) if holds.any() else None
