"""How many rows of each kind stay, which ones, and what that is expected to lose.

Rows are of one *kind* if they may be the same variables (one candidate mask). `share_quota` divides
the rows that may stay among the kinds (DARLING's local constraints), `select_rows` and
`threshold_of` keep the rows of highest score, and `RecallEstimator` estimates what matches remain.
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


# ---- quotas --------------------------------------------------------------------------------------


# Scores are counted in parts of a level: even if all rows are in one level, the threshold is right
# to a 64th of them, and more exactly as far as the tie-breakers are evenly distributed.
LEVEL_PARTS: Final = 64
# A threshold below all scores, and one above: the highest score may round to LEVELS.
KEEP_ALL: Final = 0.0
KEEP_NONE: Final = float(LEVELS + 1)


@dataclass(frozen=True)
class RowKind:
    """The rows of one mask: how many there are, how many stay, and the score that they need."""

    mask: int
    rows: int
    kept: int
    threshold: float


@dataclass(frozen=True)
class ScoreCounts:
    """The distribution of the scores of one kind: `counts` by `places`, which are scores in
    LEVEL_PARTS of a level, ascending."""

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
    """The score that leaves `quota` rows at or above it."""
    if quota >= scores.rows:
        return KEEP_ALL
    if quota <= 0:
        return KEEP_NONE
    above = np.cumsum(scores.counts[::-1])[::-1]
    # The last place with enough rows at or above it; the threshold lies within this part.
    at = int(np.flatnonzero(above >= quota)[-1])
    surplus = (above[at] - quota) / scores.counts[at]
    return float((scores.places[at] + surplus) / LEVEL_PARTS)


def row_thresholds(
    kinds: Sequence[RowKind], mask: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """The threshold of each row, by its mask; 0 for a kind that was not counted."""
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
    """`total` rows divided among the kinds by weight, where no kind gets more than it has. What one
    kind leaves of its part goes to the others, as DARLING drops from a buffer only if all of them
    together are too full.

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
    """The weights of the kinds. "utility": Z(T) * R(T), where a kind that may be several variables
    has the load of all. "random": the same share of every kind. "frequency": as many rows of
    each kind, so that the most frequent kinds lose most."""
    if policy == "random":
        return {mask: float(count) for mask, count in rows.items()}
    if policy == "frequency":
        return dict.fromkeys(rows, 1.0)
    return {mask: count * load_of(mask, loads) for mask, count in rows.items()}


def load_of(mask: int, loads: Mapping[int, float]) -> float:
    """The load of a row with this mask."""
    return sum(seconds for variable, seconds in loads.items() if mask >> variable & 1)


# ---- selection of rows ---------------------------------------------------------------------------
#
# The paper's utility arrays. Rows come in blocks, so an array is a count: one pass puts all rows
# into their levels, and the level at which the quota is reached is found among LEVELS counts,
# however many rows there are. Of the rows of that level, those with the highest tie-breakers stay.


Flags = npt.NDArray[np.bool_]
# The mask, the level and the tie-breaker of each row.
LeveledRows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = 0x9E3779B97F4A7C15


def select_rows(levels: npt.NDArray[np.int64], own: npt.NDArray[np.float64], quota: int) -> Flags:
    """Flags of the `quota` rows of highest level, then of highest tie-breaker."""
    if quota >= len(levels):
        return np.ones(len(levels), dtype=np.bool_)
    if quota <= 0:
        return np.zeros(len(levels), dtype=np.bool_)
    counts = np.bincount(levels, minlength=LEVELS)
    above = np.cumsum(counts[::-1])[::-1]
    edge = int(np.flatnonzero(above >= quota)[-1])
    stays: Flags = levels > edge
    at_edge = np.flatnonzero(levels == edge)
    free = quota - int(above[edge] - counts[edge])
    stays[at_edge[np.argpartition(own[at_edge], len(at_edge) - free)[len(at_edge) - free :]]] = True
    return stays


def select_rows_by_kind(
    policy: SheddingPolicy,
    rows: LeveledRows,
    quota: float,
    loads: Mapping[int, float],
) -> Flags:
    """Flags of the rows that stay: `quota` of them, divided among the kinds."""
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
    """Quotas in whole rows with the same total: the largest fractions are rounded up."""
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


# ---- recall ------------------------------------------------------------------------------------

MATCH_DRAWS: Final = 30_000
# With fewer matches among the draws, their share is too uncertain.
ENOUGH_MATCHES: Final = 50
# A curve has a point for each tenth.
CURVE_POINTS: Final = 11

KeptFlags = npt.NDArray[np.bool_]
MatchWeights = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _BranchDraws:
    """Drawn matches of one branch: the rows of the table for each slot, and the weights of draws,
    0 where a condition does not hold. `variables`: one for each slot. `grouped`: the variables of
    repeated groups, which are not drawn; the share of their utility that stays is used instead."""

    rows: tuple[npt.NDArray[np.int64], ...]
    matches: MatchWeights
    variables: tuple[int, ...]
    grouped: tuple[int, ...]


class RecallEstimator:
    """The share of matches all of whose rows stay, on matches that are drawn once.

    A dropped row only takes matches away, so it is enough to test whether the rows of a match stay.
    Lists count as lists of one. Where hardly any draw is a match, the product over the variables of
    the share of their utility that stays is used instead. `matching` was made of `table`.
    """

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
        """The recall if the flagged rows of the table stay."""
        total = held = 0.0
        for branch in self._branches:
            weight = max(float(branch.matches.mean()), 1e-9)
            total += weight
            held += weight * self._of_branch(branch, stays)
        return held / total if total else 1.0

    def curve(self, stays: Callable[[float], KeptFlags]) -> tuple[float, ...]:
        """The recall by share of the rows, from 0 to 1. It never falls."""
        shares = np.linspace(0, 1, CURVE_POINTS)[1:-1]
        found = [0.0, *(self.recall(stays(float(share))) for share in shares), 1.0]
        return tuple(float(each) for each in np.maximum.accumulate(found))

    def _of_branch(self, branch: _BranchDraws, stays: KeptFlags) -> float:
        grouped = self._utilities_kept(branch.grouped, stays)
        if np.count_nonzero(branch.matches) >= ENOUGH_MATCHES:
            kept = np.logical_and.reduce([stays[rows] for rows in branch.rows])
            return grouped * float((branch.matches * kept).sum() / branch.matches.sum())
        return grouped * self._utilities_kept(branch.variables, stays)

    def _utilities_kept(self, variables: tuple[int, ...], stays: KeptFlags) -> float:
        return float(np.prod([self._utility_kept(v, stays) for v in variables]))

    def _utility_kept(self, variable: int, stays: KeptFlags) -> float:
        events = self._matching.events
        is_candidate = np.zeros(self._table.num_rows, dtype=np.bool_)
        is_candidate[events.rows(np.flatnonzero(events.candidates(variable)))] = True
        utility = self._utilities.of_variable(variable, self._table) * is_candidate
        total = float(utility.sum())
        return float((utility * stays).sum()) / total if total else 1.0


def _draw_branch(walk: BranchWalk) -> _BranchDraws | None:
    every = sorted(walk.slots.elements)
    slots = [slot for slot in every if not walk.slot(slot).is_group]
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
