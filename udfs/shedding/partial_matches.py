"""What partial matches are worth: hSPICE, pSPICE, and partial matches that go at random.

    blocks of a sample -> the engine, in the order of the plan -> every partial match and every row
    that was offered to one -> what came of them -> utilities by state and time -> a rule that
    leaves a share of the pairs

"hspice"            a row is not offered to partial matches of a state and distance in time at which
                    few of such rows become part of a match (Slo, Bhowmik, Rothermel, DEBS 2020)
"pspice"            a partial match goes no further where few of its state, and with so much of the
                    window left, become matches, for the work that they cause (IEEE Big Data 2019)
"random-partials"   partial matches go at random (the baseline of DARLING's authors)

The share counts pairs of a partial match and a row, which is what matching takes its time for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.events.dropping import PAIR_BINS, WINDOW_PARTS, pair_bins, partial_bins
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.program import Adaptation, DroppingRule, Limits, PartialState
from spark_cep.udfs.shedding.blocks import block_codes
from spark_cep.udfs.shedding.matches import (
    ALL_MATCHES,
    BLOCK_WINDOWS,
    CLUSTER_WINDOWS,
    LEAST_CLUSTERS,
    LEAST_MATCHES,
    Recall,
    batches_of_blocks,
    recall_of,
)
from spark_cep.udfs.shedding.passing import PRIOR_DRAWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.events.partials import Partials
    from spark_cep.udfs.events.table import Events, Flags, Positions
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.shedding.utility import SheddingPolicy

# Pairs of the sample that are looked at: half a second.
MOST_PAIRS: Final = 2_000_000
# Few, so that some partial matches are followed to their end before there are too many pairs.
BLOCK_PAIRS: Final = 1 << 12
# The rows of the first blocks.
FIRST_ROWS: Final = 200
# Bisection steps for the share at random: to a millionth.
_HALVINGS: Final = 20

Numbers = npt.NDArray[np.float64]


def drops_partials(policy: SheddingPolicy) -> bool:
    """Whether a policy drops partial matches, or rows from them, and keeps all rows."""
    return policy in ("hspice", "pspice", "random-partials")


# ---- what a sample shows -------------------------------------------------------------------------


class _RecordingIsFull(Exception):
    """Enough pairs were seen."""


class _Recorder:
    """Numbers all partial matches of a sample, and drops none."""

    def __init__(self, most: int) -> None:
        self.events: Events | None = None
        # Of the rows of the sample that the events are.
        self.clusters = np.zeros(0, dtype=np.int64)
        self.states: dict[PartialState, int] = {}
        self.pairs = self.partials = 0
        self.is_full = False
        self.found: list[tuple[Positions, ...]] = []
        self.offers: list[tuple[Positions, ...]] = []
        self.matches: list[tuple[Positions, ...]] = []
        self.most = most

    def offered(
        self, at: PartialState, partials: Partials, pick: Positions, elements: Positions
    ) -> Flags | None:
        assert self.events is not None
        assert partials.number is not None
        bins = pair_bins(self.events, partials.earliest[pick], elements)
        self.offers.append((partials.number[pick], self._state(at, len(pick)), bins))
        self.pairs += len(pick)
        if self.pairs > self.most:
            raise _RecordingIsFull
        return None

    def extended(self, at: PartialState, partials: Partials, *, is_whole: bool) -> Partials:
        assert self.events is not None
        count = len(partials)
        before = np.full(count, -1) if partials.number is None else partials.number
        passed = partial_bins(self.events, partials)
        offers = _offer_bins(self.events, at, partials)
        whole = np.full(count, int(is_whole))
        self.found.append((before, self._state(at, count), offers, passed, whole))
        number = np.arange(self.partials, self.partials + count)
        self.partials += count
        return replace(partials, number=number)

    def finished(self, partials: Partials) -> None:
        assert self.events is not None
        assert partials.number is not None
        clusters = self.clusters[self.events.rows(partials.earliest)]
        self.matches.append((partials.number, clusters))

    def mark(self) -> tuple[int, ...]:
        lists = self.found, self.offers, self.matches
        return self.partials, *(len(each) for each in lists)

    def forget(self, mark: tuple[int, ...]) -> None:
        """Forgets what was recorded since a mark."""
        self.partials, *lengths = mark
        for each, length in zip((self.found, self.offers, self.matches), lengths, strict=True):
            del each[length:]

    def _state(self, at: PartialState, count: int) -> Positions:
        return np.full(count, self.states.setdefault(at, len(self.states)))


def _offer_bins(events: Events, at: PartialState, partials: Partials) -> Positions:
    """The bin in which the last row was offered; 0 for partial matches of one row."""
    bound = partials.elements[at.slot]
    last = bound[:, -1] if bound.ndim == 2 else bound
    first = [
        rows[:, 0] if rows.ndim == 2 else rows
        for slot, rows in partials.elements.items()
        if slot != at.slot or (rows.ndim == 2 and rows.shape[1] > 1)
    ]
    if not first:
        return np.zeros(len(last), dtype=np.int64)
    return pair_bins(events, np.minimum.reduce(first), last)


@dataclass(frozen=True)
class PartialSample:
    """All partial matches of a sample, each with the one `before` it (-1: none), which has a lower
    number, and its place among `states`. `offer_bins`: in which its last row was offered;
    `passed`: the part of the window between its rows; `is_whole`: all slots are filled. `pairs`: of
    the partial match, the state and the bin of each row that was offered to one. `matches`: those
    that are one, with their `clusters`. `is_cut`: there were more pairs than could be looked at."""

    states: tuple[PartialState, ...]
    before: Positions
    state: Positions
    offer_bins: Positions
    passed: Positions
    is_whole: Flags
    pairs: tuple[Positions, Positions, Positions]
    matches: Positions
    clusters: Positions
    is_cut: bool

    def along(self, own: Positions) -> Positions:
        """The largest of a number of each partial match along the way to it."""
        found = own.copy()
        for here in self._levels:
            found[here] = np.maximum(found[here], found[self.before[here]])
        return found

    def summed(self, own: Positions) -> Positions:
        """The sum of a number of each partial match along the way to it."""
        found = own.copy()
        for here in self._levels:
            found[here] += found[self.before[here]]
        return found

    def gathered(self, own: Numbers) -> Numbers:
        """The sum of a number over each partial match and all that come of it."""
        found = own.copy()
        for here in reversed(self._levels):
            found += _sums(self.before[here], found[here], len(found))
        return found

    @cached_property
    def _levels(self) -> list[Positions]:
        """The partial matches that have others before them, by how many."""
        is_known = self.before < 0
        levels, rest = [], np.flatnonzero(~is_known)
        while len(rest):
            follows = is_known[self.before[rest]]
            levels.append(rest[follows])
            is_known[levels[-1]] = True
            rest = rest[~follows]
        return levels


def _sums(places: Positions, weights: Numbers | None, size: int) -> Numbers:
    """The sum of the weights at each place; without weights how often it is there."""
    return np.bincount(places, weights, size).astype(np.float64)


def record_partials(program: Program, table: pa.Table, most: int = MOST_PAIRS) -> PartialSample:
    """The partial matches of as many blocks of rows as can be afforded. `program`: with the plan
    that is to run. If the first blocks have too many pairs, shorter ones are looked at, and then
    what was seen until there were too many."""
    recorder = _Recorder(most)
    for windows in (BLOCK_WINDOWS, CLUSTER_WINDOWS):
        recorder = _Recorder(most)
        _record_blocks(recorder, program, table, windows)
        if not recorder.is_full:
            break
    return _sample_of(recorder)


def _record_blocks(recorder: _Recorder, program: Program, table: pa.Table, windows: int) -> None:
    plain = replace(
        program, adaptation=Adaptation(), home=None, dropping=None,
        limits=Limits(partial_matches=None, matches=None), block_pairs=BLOCK_PAIRS,
    )  # fmt: skip
    clusters = block_codes(program, table, CLUSTER_WINDOWS)
    for number, here in enumerate(batches_of_blocks(program, table, windows, FIRST_ROWS)):
        before, mark = recorder.pairs, recorder.mark()
        recorder.clusters = clusters[here]
        rows = table.take(pa.array(here))
        step = advance_events(plain, EventState(), rows, None, observer=recorder)
        recorder.events = step.events
        try:
            for _ in step.matches:
                pass
        except _RecordingIsFull:
            # What comes of partial matches that were not followed is not known.
            recorder.is_full = number == 0
            if number:
                recorder.forget(mark)
            return
        # The next batch has twice as many.
        if recorder.pairs + 2 * (recorder.pairs - before) > recorder.most:
            return


def _sample_of(recorder: _Recorder) -> PartialSample:
    before, state, offer_bins, passed, whole = _concatenate(recorder.found, 5)
    matches, clusters = _concatenate(recorder.matches, 2)
    of, at, bins = _concatenate(recorder.offers, 3)
    return PartialSample(
        tuple(recorder.states), before, state, offer_bins, passed, whole.astype(np.bool_),
        (of, at, bins), matches, clusters, recorder.is_full,
    )  # fmt: skip


def _concatenate(parts: Sequence[tuple[Positions, ...]], columns: int) -> list[Positions]:
    none = np.zeros(0, dtype=np.int64)
    return [np.concatenate([none, *(part[place] for part in parts)]) for place in range(columns)]


# ---- what is dropped -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PartialModel:
    """What a share of the pairs leaves. A *cell* is a state and a bin of time; cells are ranked by
    their utility, the best first. `pairs` and `matches`: how many are left if the cells up to a
    rank stay, or after a number of random decisions; of `matches` also the cluster. `unknown`: why
    nothing is told of the recall."""

    policy: SheddingPolicy
    cells: tuple[tuple[PartialState, int], ...]
    bins: int
    pairs: Numbers
    matches: tuple[Positions, Positions, Numbers]
    unknown: str = ""

    def rule(self, share: float, seed: int) -> DroppingRule:
        """What to drop for a share of the pairs to stay."""
        if self.policy == "random-partials":
            return DroppingRule("partials", {}, self._random_share(share), seed)
        stays = self._staying(share)
        kept: dict[PartialState, list[float]] = {}
        for (state, place), part in zip(self.cells, stays.tolist(), strict=True):
            kept.setdefault(state, [1.0] * self.bins)[place] = part
        drops: Literal["pairs", "partials"] = "pairs" if self.policy == "hspice" else "partials"
        shares = {state: tuple(parts) for state, parts in kept.items() if min(parts) < 1}
        return DroppingRule(drops, shares, 1.0, seed)

    def recall(self, share: float) -> Recall:
        """The share of the matches that is expected to stay."""
        if share >= 1:
            return ALL_MATCHES
        if self.unknown:
            return Recall(None, unknown=self.unknown)
        place, cluster, count = self.matches
        if self.policy == "random-partials":
            stays = self._random_share(share) ** place
        else:
            # Matches behind no cell are never dropped.
            stays = np.append(self._staying(share), 1.0)[place]
        size = int(cluster.max(initial=0)) + 1
        return recall_of(_sums(cluster, count, size), _sums(cluster, count * stays, size))

    def _staying(self, share: float) -> Numbers:
        """The part of each cell that stays: all of the best ones, and of one a part."""
        found = np.zeros(len(self.cells))
        total, left = float(self.pairs.sum()), share * float(self.pairs.sum())
        below = np.cumsum(self.pairs)
        whole = below <= left + 1e-9 * total
        found[whole] = 1.0
        at = int(np.count_nonzero(whole))
        if at < len(found):
            found[at] = (left - (below[at - 1] if at else 0.0)) / self.pairs[at]
        return found

    def _random_share(self, share: float) -> float:
        """The share of the partial matches that stays at each step."""
        decisions = np.arange(len(self.pairs))
        total = float(self.pairs.sum())
        if share >= 1 or not total:
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            fits = float(self.pairs @ middle**decisions) <= share * total
            low, high = (middle, high) if fits else (low, middle)
        return low


@dataclass(frozen=True)
class PartialStatistics:
    """What the workers of a stream need: `work`, the seconds of matching per row."""

    model: PartialModel
    work: float


def learn_partials(
    program: Program, table: pa.Table, policy: SheddingPolicy, most: int = MOST_PAIRS
) -> PartialModel:
    """What the rows of a sample show of a policy. `program`: with the plan that is to run."""
    sample = record_partials(program, table, most)
    if policy == "random-partials":
        steps = sample.summed((~sample.is_whole).astype(np.int64))
        pairs = _sums(steps[sample.pairs[0]], None, 0)
        return PartialModel(policy, (), 0, pairs, *_matches_of(sample, steps))
    by_pair = policy == "hspice"
    bins = PAIR_BINS if by_pair else WINDOW_PARTS
    values, code = _pair_values(sample) if by_pair else _partial_values(sample)
    ranked = np.argsort(-values, kind="stable")
    ranked = ranked[np.isfinite(values[ranked])]
    rank = np.full(len(values) + 1, -1)
    rank[ranked] = np.arange(len(ranked))
    along = sample.along(rank[code])
    of, at, place = sample.pairs
    worst = along[of]
    if by_pair:
        worst = np.maximum(worst, rank[at * bins + place])
    # Pairs behind no cell, of which nothing can be dropped, come with the first one.
    pairs = _sums(np.maximum(worst, 0), None, len(ranked))
    cells = tuple((sample.states[cell // bins], int(cell % bins)) for cell in ranked)
    return PartialModel(policy, cells, bins, pairs, *_matches_of(sample, along))


def _pair_values(sample: PartialSample) -> tuple[Numbers, Positions]:
    """hSPICE: for each cell the share of the rows offered that became part of a match; -inf where
    none was. And the cell of each partial match, beyond all cells for those of one row."""
    size = len(sample.states) * PAIR_BINS
    _, at, place = sample.pairs
    has_match = _completes(sample)
    code = np.where(sample.before >= 0, sample.state * PAIR_BINS + sample.offer_bins, size)
    offered = _sums(at * PAIR_BINS + place, None, size)
    used = _sums(code, has_match, size + 1)[:size]
    return _smoothed(used, offered, PAIR_BINS), code


def _partial_values(sample: PartialSample) -> tuple[Numbers, Positions]:
    """pSPICE: for each cell the share of the partial matches that become a match, divided by the
    pairs that they cause; -inf where there is none. And the cell of each partial match, beyond all
    cells for whole ones."""
    size = len(sample.states) * WINDOW_PARTS
    code = np.where(sample.is_whole, size, sample.state * WINDOW_PARTS + sample.passed)
    count = _sums(code, None, size + 1)[:size]
    completes = _sums(code, _completes(sample), size + 1)[:size]
    own = _sums(sample.pairs[0], None, len(sample.before))
    work = _sums(code, sample.gathered(own), size + 1)[:size]
    probability = _smoothed(completes, count, WINDOW_PARTS)
    # A partial match that causes no pair is made and dropped all the same.
    return probability / (_smoothed(work, count, WINDOW_PARTS, 0.0) + 1.0), code


def _completes(sample: PartialSample) -> Numbers:
    """1 for each partial match of which a match comes."""
    own = _sums(sample.matches, None, len(sample.before))
    return (sample.gathered(own) > 0).astype(np.float64)


def _smoothed(hits: Numbers, count: Numbers, bins: int, empty: float = -np.inf) -> Numbers:
    """The mean of each cell. Cells of few are close to the mean of their state."""
    by_state = hits.reshape(-1, bins).sum(axis=1), count.reshape(-1, bins).sum(axis=1)
    mean = np.repeat(by_state[0] / np.maximum(by_state[1], 1.0), bins)
    found = (hits + PRIOR_DRAWS * mean) / (count + PRIOR_DRAWS)
    return np.where(count > 0, found, empty)


def _matches_of(
    sample: PartialSample, places: Positions
) -> tuple[tuple[Positions, Positions, Numbers], str]:
    """The matches counted by their place and cluster, and why they do not tell the recall."""
    pairs = np.stack([places[sample.matches], sample.clusters])
    (place, cluster), count = np.unique(pairs, axis=1, return_counts=True)
    unknown = ""
    if sample.is_cut:
        unknown = "the sample has more partial matches than can be looked at"
    elif len(sample.matches) < LEAST_MATCHES or len(np.unique(cluster)) < LEAST_CLUSTERS:
        unknown = f"only {len(sample.matches):,} matches in the sample"
    return (place, cluster, count.astype(np.float64)), unknown
