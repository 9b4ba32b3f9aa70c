"""What shedding is expected to lose: the share of matches all of whose rows stay.

Random matches are drawn (`drawing.py`), conditions tested, and those that hold are looked at: how
many have kept rows only. A dropped row can only take matches away, so no other way to count them is
needed. Lists count as lists of one. Where next to no draw is a match, the product over the
variables stands in: the share of their worth that stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.events.sampling import (
    can_sample,
    draw_partials,
    make_sampling_walk,
    previous_cells,
)
from spark_cep.udfs.shedding.utility import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.walk import BranchWalk
    from spark_cep.udfs.shedding.utility import SheddingPolicy, Utilities


# --------------------------------------------------------------------------------------------------
# How many rows of each kind stay: the paper's local constraints, and where that cuts the scores.
#
# Rows are of one *kind* if they may be the same variables: one candidate mask. The rows that may
# stay are dealt to the kinds by weight, for policy "utility" Z(T) * R(T); what one kind leaves of
# its part goes to the others, as the paper drops from a buffer only when all of them together are
# too full. Each kind then keeps its rows of highest score: those above its *threshold*.
# --------------------------------------------------------------------------------------------------


# Scores are counted to so much of a level: where all rows are in one level, the threshold is right
# to a 64th of them, and within that it is as even as the rows' own numbers are.
LEVEL_PARTS: Final = 64
# A threshold that no score is below, and one that all are: the highest score may round to LEVELS.
KEEP_ALL: Final = 0.0
KEEP_NONE: Final = float(LEVELS + 1)


@dataclass(frozen=True)
class RowKind:
    """Rows of one mask: how many there are, how many stay, and the score from which on."""

    mask: int
    rows: int
    kept: int
    threshold: float


@dataclass(frozen=True)
class ScoreCounts:
    """How many rows of each kind have which score: `counts` by `places`, scores in PARTS of a
    level, ascending."""

    places: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @property
    def rows(self) -> int:
        return int(self.counts.sum())


def kinds_of(scores: Mapping[int, ScoreCounts], quotas: Mapping[int, float]) -> tuple[RowKind, ...]:
    """Each kind with its threshold. `quotas`: how many rows it may keep."""
    found = []
    for mask, one in sorted(scores.items()):
        quota = min(quotas.get(mask, 0.0), one.rows)
        found.append(RowKind(mask, one.rows, round(quota), threshold_of(one, quota)))
    return tuple(found)


def threshold_of(scores: ScoreCounts, quota: float) -> float:
    """The score from which on `quota` rows remain."""
    if quota >= scores.rows:
        return KEEP_ALL
    if quota <= 0:
        return KEEP_NONE
    above = np.cumsum(scores.counts[::-1])[::-1]
    # The last place from which on there are enough rows; the threshold lies within its part.
    at = int(np.flatnonzero(above >= quota)[-1])
    surplus = (above[at] - quota) / scores.counts[at]
    return float((scores.places[at] + surplus) / LEVEL_PARTS)


def row_thresholds(
    kinds: Sequence[RowKind], mask: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """The threshold of each row, by its mask; that of a kind that was not counted is 0."""
    masks = np.array([kind.mask for kind in kinds], dtype=np.int64)
    if not len(masks):
        return np.zeros(len(mask))
    cuts = np.array([kind.threshold for kind in kinds])
    order = np.argsort(masks)
    at = np.minimum(np.searchsorted(masks[order], mask), len(masks) - 1)
    return np.where(masks[order][at] == mask, cuts[order][at], KEEP_ALL)


def share_quota(
    total: float, rows: Mapping[int, int], weights: Mapping[int, float]
) -> dict[int, float]:
    """`total` rows dealt to the kinds by weight, none of which gets more than it has.

    >>> share_quota(60, {1: 10, 2: 50, 3: 100}, {1: 1.0, 2: 1.0, 3: 1.0})
    {1: 10.0, 2: 25.0, 3: 25.0}
    """
    found = dict.fromkeys(rows, 0.0)
    open_ = {kind for kind, count in rows.items() if count > 0}
    left = min(total, float(sum(rows.values())))
    while open_ and left > 0:
        weight = sum(weights[kind] for kind in open_)
        parts = {
            kind: left * (weights[kind] / weight if weight > 0 else 1 / len(open_))
            for kind in open_
        }
        full = {kind for kind in open_ if parts[kind] >= rows[kind]}
        if not full:
            found.update(parts)
            break
        for kind in full:
            found[kind] = float(rows[kind])
            left -= rows[kind]
        open_ -= full
    return found


def weights_of(
    policy: SheddingPolicy, rows: Mapping[int, int], loads: Mapping[int, float]
) -> dict[int, float]:
    """What the quota is dealt by. "utility": Z(T) * R(T), a kind that may be several variables
    makes the work of all. "random": the same share of every kind. "frequency": as many rows of
    each, so that the most frequent kinds lose most."""
    if policy == "random":
        return {mask: float(count) for mask, count in rows.items()}
    if policy == "frequency":
        return dict.fromkeys(rows, 1.0)
    return {mask: count * load_of(mask, loads) for mask, count in rows.items()}


def load_of(mask: int, loads: Mapping[int, float]) -> float:
    """What a row with this mask makes of work."""
    return sum(seconds for variable, seconds in loads.items() if mask >> variable & 1)


# --------------------------------------------------------------------------------------------------
# The paper's utility arrays: rows by level, of which the lowest go first.
#
# Rows come by the block, so an array is a count: one pass puts all rows into their levels, and the
# level at which the quota is reached is found among LEVELS counts, however many rows there are. Of
# the rows of that level, those with the highest numbers of their own stay.
# --------------------------------------------------------------------------------------------------


Flags = npt.NDArray[np.bool_]
# Of each row its mask, its level and its own number.
LeveledRows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = 0x9E3779B97F4A7C15


def select_rows(levels: npt.NDArray[np.int64], own: npt.NDArray[np.float64], quota: int) -> Flags:
    """The `quota` rows of highest level, then of highest number."""
    if quota >= len(levels):
        return np.ones(len(levels), dtype=np.bool_)
    if quota <= 0:
        return np.zeros(len(levels), dtype=np.bool_)
    counts = np.bincount(levels, minlength=LEVELS)
    above = np.cumsum(counts[::-1])[::-1]
    edge = int(np.flatnonzero(above >= quota)[-1])
    stays: Flags = levels > edge
    at_edge = np.flatnonzero(levels == edge)
    room = quota - int(above[edge] - counts[edge])
    stays[at_edge[np.argpartition(own[at_edge], len(at_edge) - room)[len(at_edge) - room :]]] = True
    return stays


def select_rows_by_kind(
    policy: SheddingPolicy,
    rows: LeveledRows,
    quota: float,
    loads: Mapping[int, float],
) -> Flags:
    """Which of these rows stay, of which so many may, each kind its part."""
    mask, levels, own = rows
    stays = np.zeros(len(mask), dtype=np.bool_)
    kinds, place, counts = np.unique(mask, return_inverse=True, return_counts=True)
    of_kind = {int(kind): int(count) for kind, count in zip(kinds, counts, strict=True)}
    quotas = _round_quotas(share_quota(quota, of_kind, weights_of(policy, of_kind, loads)))
    for number, kind in enumerate(kinds):
        here = np.flatnonzero(place == number)
        stays[here] = select_rows(levels[here], own[here], quotas[int(kind)])
    return stays


def _round_quotas(quotas: Mapping[int, float]) -> dict[int, int]:
    """Whole rows, as many in all: the largest fractions are rounded up."""
    found = {kind: int(quota) for kind, quota in quotas.items()}
    left = round(sum(quotas.values())) - sum(found.values())
    for kind in sorted(quotas, key=lambda kind: (found[kind] - quotas[kind], kind))[:left]:
        found[kind] += 1
    return found


def tie_breakers(times: npt.NDArray[Any], seed: int) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each row, from its event time."""
    whole = times if times.dtype.kind == "i" else times.astype(np.float64).view(np.int64)
    mixed = whole.astype(np.uint64) + np.uint64((seed + 1) * _STEP % 2**64)
    for shift, factor in zip((30, 27), _MIX, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


MATCH_DRAWS: Final = 30_000
# With fewer matches among the draws, their share says little.
ENOUGH_MATCHES: Final = 50
# A curve has a point for each tenth.
CURVE_POINTS: Final = 11

KeptFlags = npt.NDArray[np.bool_]
MatchWeights = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _BranchDraws:
    """Drawn matches of one branch: for each of its slots the rows of the table, and what each match
    stands for, 0 where a condition does not hold. `variables`: one for each slot. `grouped`: those
    of repeated groups, of which nothing is drawn: the worth of theirs that stays stands in."""

    rows: tuple[npt.NDArray[np.int64], ...]
    matches: MatchWeights
    variables: tuple[int, ...]
    grouped: tuple[int, ...]


class RecallEstimator:
    """Matches drawn once, to be asked what is left of them. `matching` was made of `table`."""

    def __init__(self, matching: AdvanceContext, table: pa.Table, utilities: Utilities) -> None:
        self._matching = matching
        self._table = table
        self._utilities = utilities

    @cached_property
    def _branches(self) -> list[_BranchDraws]:
        numbers = range(len(self._matching.program.branches))
        found = (_draw_branch(make_sampling_walk(self._matching, number)) for number in numbers)
        return [each for each in found if each is not None]

    def recall(self, stays: KeptFlags) -> float:
        """`stays`: which rows of the table are kept."""
        total = held = 0.0
        for branch in self._branches:
            weight = max(float(branch.matches.mean()), 1e-9)
            total += weight
            held += weight * self._of_branch(branch, stays)
        return held / total if total else 1.0

    def curve(self, stays: Callable[[float], KeptFlags]) -> tuple[float, ...]:
        """The recall of each share of the rows, 0 to 1. It never falls."""
        shares = np.linspace(0, 1, CURVE_POINTS)[1:-1]
        found = [0.0, *(self.recall(stays(float(share))) for share in shares), 1.0]
        return tuple(float(each) for each in np.maximum.accumulate(found))

    def _of_branch(self, branch: _BranchDraws, stays: KeptFlags) -> float:
        grouped = self._worths_kept(branch.grouped, stays)
        if np.count_nonzero(branch.matches) >= ENOUGH_MATCHES:
            kept = np.logical_and.reduce([stays[rows] for rows in branch.rows])
            return grouped * float((branch.matches * kept).sum() / branch.matches.sum())
        return grouped * self._worths_kept(branch.variables, stays)

    def _worths_kept(self, variables: tuple[int, ...], stays: KeptFlags) -> float:
        return float(np.prod([self._worth_kept(v, stays) for v in variables]))

    def _worth_kept(self, variable: int, stays: KeptFlags) -> float:
        events = self._matching.events
        is_candidate = np.zeros(self._table.num_rows, dtype=np.bool_)
        is_candidate[events.rows(np.flatnonzero(events.candidates(variable)))] = True
        worth = self._utilities.of_variable(variable, self._table) * is_candidate
        total = float(worth.sum())
        return float((worth * stays).sum()) / total if total else 1.0


def _draw_branch(walk: BranchWalk) -> _BranchDraws | None:
    every = sorted(walk.slots.elements)
    slots = [slot for slot in every if walk.slot(slot).body is None]
    grouped = tuple(v for slot in every if slot not in slots for v in walk.slot(slot).variables)
    if not slots:
        return _BranchDraws((), np.zeros(1), (), grouped)
    found = draw_partials(walk, slots, MATCH_DRAWS)
    if found is None:
        return None
    partials, weights = found
    reader, holds = walk.reader(partials), np.ones(len(partials), dtype=np.bool_)
    for condition in walk.matching.program.conditions:
        if can_sample(walk, condition) and not any(previous_cells(condition)):
            holds &= reader.holds(condition)
    rows = tuple(
        walk.matching.events.rows(each[:, 0])
        for slot in slots
        for each in walk.slots.all_rows(slot, partials)
    )
    variables = tuple(v for slot in slots for v in walk.slot(slot).variables)
    return _BranchDraws(rows, weights * holds, variables, grouped)
