"""The matches of a sample of rows, and the share of them that shedding leaves.

The engine itself matches some blocks of the sample: rows of one key in one stretch of time, which
lose hardly a match at their borders. So lists, OR, optional parts and every condition count as they
are. Where a few blocks have more matches than can be counted, random matches stand for them. They
are drawn slot by slot: of the partial matches that pass a step each goes on as often as its weight
asks (sequential Monte Carlo). The share of the matches all of whose rows stay is then counted, not
modeled; blocks are independent of each other, which gives an interval. The work that remains is
counted likewise, in pairs that are tested.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.errors import CepError, LimitError
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.events.sampling import (
    draw_steps,
    make_sampling_walk,
)
from spark_cep.udfs.expressions import UserCall
from spark_cep.udfs.program import Adaptation, Limits, Plan
from spark_cep.udfs.shedding.blocks import block_codes
from spark_cep.udfs.values.codes import mix_hashes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.metrics import Metrics
    from spark_cep.udfs.events.partials import Partials
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
# Blocks that are expected to have so many times the pairs are not tried.
FAR_TOO_MANY: Final = 3.0
# Stretches of a block, in windows: of the sample's blocks, and of those that are told apart for
# the interval, which are matched instead where the others have too many pairs.
BLOCK_WINDOWS: Final = 16
CLUSTER_WINDOWS: Final = 2
# With fewer matches, or in fewer blocks, nothing is said about the share that stays.
LEAST_MATCHES: Final = 30
LEAST_CLUSTERS: Final = 5
MATCH_DRAWS: Final = 15_000
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

    def toward(self, other: Recall, part: float) -> Recall:
        """What is so far from this one to another."""
        if self.value is None or other.value is None:
            return self if self.value is None else other
        return Recall(
            self.value + part * (other.value - self.value),
            self.low + part * (other.low - self.low),
            self.high + part * (other.high - self.high),
        )

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
    is_drawn: bool = False

    def stay(self, stays: Flags) -> Flags:
        return np.asarray(stays[self.rows].all(axis=1))

    def count(self) -> int:
        """The matches that differ: one that was drawn several times counts once."""
        if not self.is_drawn:
            return len(self.rows)
        ranks = (np.unique(column, return_inverse=True)[1] for column in self.rows.T)
        every = np.zeros(len(self.rows), dtype=np.uint64)
        for rank in ranks:
            every = mix_hashes(every * np.uint64(31) + rank.astype(np.uint64))
        return len(np.unique(every))


class MatchSample:
    """Matches of the rows of a table. `clusters`: of each row. `unknown`: why they may not all be
    matches, so that nothing is told by them. `searched`: the rows that matches were looked for
    among. `work`: the pairs tested if some rows stay."""

    def __init__(
        self,
        found: Sequence[_Matches],
        clusters: Positions,
        unknown: str = "",
        *,
        searched: Flags,
        work: Callable[[Flags], float] | None = None,
    ) -> None:
        self._found = found
        self.searched = searched
        self._unknown = unknown
        self._work = work
        self._clusters = clusters
        self.count = sum(each.count() for each in found)
        codes = [self._clusters[each.rows[:, 0]] for each in found]
        size = int(max((code.max(initial=-1) for code in codes), default=-1)) + 1
        self._codes = codes
        self._every = self._sums([each.weights for each in found], size)

    @property
    def total(self) -> float:
        """How many matches there are, of which some may have been drawn."""
        return float(self._every.sum())

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
        kept = sum(float(each.weights[each.stay(stays)].sum()) for each in self._found)
        return kept / self.total if self.total else None

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

    def work(self, stays: Flags) -> float | None:
        """The pairs that are tested if these rows stay; None if it is not known."""
        return None if self._work is None else self._work(stays)

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


def sample_matches(
    matching: AdvanceContext,
    orders: Sequence[Sequence[int]],
    pairs: int = MOST_PAIRS,
    expected: float = 0.0,
) -> MatchSample:
    """Matches of the rows of a context, which was made of its table. `orders`: in which the slots
    of each branch are joined. `pairs`: that may be tested; `expected`: of all rows."""
    program, table = matching.program, matching.events.table
    clusters = block_codes(program, table, CLUSTER_WINDOWS)
    searched: Flags = np.zeros(table.num_rows, dtype=np.bool_)
    if program.remotes or has_user_calls(program):
        unknown = "remote data and functions of the user are not tested on a sample"
        drawn = _draw_branches(matching, orders)
        return MatchSample(_matches_in(drawn), clusters, unknown, searched=~searched)
    per_row = expected / max(table.num_rows, 1)
    for windows in (BLOCK_WINDOWS, CLUSTER_WINDOWS):
        found = _match_blocks(program, table, windows, searched, BlockWork(pairs, per_row))
        if found:
            remains = partial(_work_in_blocks, program, table, searched)
            return MatchSample(found, clusters, searched=searched, work=remains)
    drawn = _draw_branches(matching, orders)
    work = partial(_work_of_drawn, drawn)
    return MatchSample(_matches_in(drawn), clusters, searched=~searched, work=work)


def has_user_calls(program: Program) -> bool:
    """Whether conditions call functions of the user, of which nobody knows how long they take."""
    every = (node for c in program.conditions for node in c.expression.walk())
    return any(isinstance(node, UserCall) for node in every)


# ---- matching blocks -----------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockWork:
    """The pairs that matching blocks may test, and how many are expected of a row."""

    pairs: int
    per_row: float


def _match_blocks(
    program: Program, table: pa.Table, windows: int, searched: Flags, work: BlockWork
) -> list[_Matches]:
    """The matches of as many blocks, so many windows long, as can be afforded; none if the first
    ones have too many. Sets the flags of the rows that were `searched`."""
    found: list[_Matches] = []
    count = pairs = 0
    first = max(round(FIRST_ROWS * work.pairs / MOST_PAIRS), 1)
    for here in batches_of_blocks(program, table, windows, first):
        if not found and len(here) * work.per_row > FAR_TOO_MANY * work.pairs:
            break
        try:
            added, metrics = _matches_of(program, table, here, work.pairs)
        except CepError:
            break
        searched[here] = True
        found += added
        count, pairs = count + sum(len(each.rows) for each in added), pairs + metrics.pairs
        # The next batch takes twice as many.
        if count >= ENOUGH_MATCHES or pairs + 2 * metrics.pairs > work.pairs:
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


def _matches_of(
    program: Program, table: pa.Table, here: Positions, pairs: int
) -> tuple[list[_Matches], Metrics]:
    """The matches of some rows, and what the engine counted. An error if more pairs are tested."""
    plain = replace(
        program,
        plan=program.plan if program.plan.branches is not None else Plan("lazy-chain"),
        adaptation=Adaptation(),
        home=None,
        limits=Limits(partial_matches=MOST_PARTIALS, matches=MOST_MATCHES, pairs=pairs),
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
    if step.metrics.pairs > pairs:
        raise LimitError("a sample has more pairs than can be tested")
    return found, step.metrics


def _work_in_blocks(program: Program, table: pa.Table, searched: Flags, stays: Flags) -> float:
    """The pairs that the rows of blocks have if some of all rows stay."""
    here = np.flatnonzero(searched & stays)
    try:
        return float(_matches_of(program, table, here, MOST_PAIRS)[1].pairs)
    except CepError:
        return float(MOST_PAIRS)


# ---- drawn matches -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Drawn:
    """Random matches of a branch, and the pairs that are tested on the way to them, each with the
    rows of its partial match."""

    matches: _Matches | None
    pairs: tuple[tuple[Positions, Numbers], ...]


def _draw_matches(walk: BranchWalk, order: Sequence[int]) -> _Drawn:
    """Random partial matches of all slots that pass all conditions. Lists have one element, and
    repeated groups none. `order`: of the slots, as the engine would take them."""
    slots = [slot for slot in order if not walk.slot(slot).is_group]
    pairs, step = [], None
    for place, step in enumerate(draw_steps(walk, slots, MATCH_DRAWS) if slots else ()):
        rows = _rows_of_slots(walk, slots[: place + 1], step.partials)
        if place:
            pairs.append((rows, step.weights))
    if step is None or len(step.partials.elements) < len(slots) or not step.holds.any():
        return _Drawn(None, tuple(pairs))
    variables = tuple(v for slot in slots for v in walk.slot(slot).variables)
    passed, weights = rows[step.holds], step.weights[step.holds]
    return _Drawn(_Matches(passed, weights, variables, is_drawn=True), tuple(pairs))


def _draw_branches(matching: AdvanceContext, orders: Sequence[Sequence[int]]) -> list[_Drawn]:
    walks = (make_sampling_walk(matching, number) for number in range(len(orders)))
    return [_draw_matches(walk, order) for walk, order in zip(walks, orders, strict=True)]


def _matches_in(drawn: Sequence[_Drawn]) -> list[_Matches]:
    return [each.matches for each in drawn if each.matches is not None]


def _work_of_drawn(drawn: Sequence[_Drawn], stays: Flags) -> float:
    """The pairs tested all of whose rows stay."""
    return sum(
        float(weights[stays[rows].all(axis=1)].sum())
        for each in drawn
        for rows, weights in each.pairs
    )


def _rows_of_slots(walk: BranchWalk, slots: Sequence[int], partials: Partials) -> Positions:
    columns = [each[:, 0] for slot in slots for each in walk.slots.all_rows(slot, partials)]
    return np.stack([walk.matching.events.rows(each) for each in columns], axis=1)
