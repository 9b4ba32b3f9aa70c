"""How many rows of each kind stay, and which ones.

Rows are of one *kind* if they may be the same variables (one candidate mask). Either all kinds
share one threshold, or `share_quota` divides the rows that may stay among them (DARLING's local
constraints). `select_rows` and `threshold_of` keep the rows of highest score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.shedding.utility import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_cep.udfs.shedding.utility import SheddingPolicy


# ---- blocks --------------------------------------------------------------------------------------
#
# Rows in blocks that stay have levels from 0 on. Those of the other blocks are below, the blocks
# with the lowest hash first: if the blocks that stay have fewer rows than there is a quota for, the
# next ones fill it.


def levels_in_blocks(
    levels: npt.NDArray[np.int64], hashes: npt.NDArray[np.float64], blocks: float
) -> npt.NDArray[np.int64]:
    """The levels of rows if a share of the blocks is preferred. `hashes`: of each row's block."""
    outside = -1 - (hashes * LEVELS).astype(np.int64)
    return np.where(hashes < blocks, levels, outside)


# ---- quotas --------------------------------------------------------------------------------------


# Scores are counted in parts of a level: even if all rows are in one level, the threshold is right
# to a 64th of them, and more exactly as far as the tie-breakers are evenly distributed.
LEVEL_PARTS: Final = 64
# A threshold below all scores, and one above: the highest score may round to LEVELS.
KEEP_ALL: Final = float(-LEVELS - 1)
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
    LEVEL_PARTS of a level, ascending. Counts of drawn rows are not whole numbers."""

    places: npt.NDArray[np.int64]
    counts: npt.NDArray[Any]

    @property
    def rows(self) -> int:
        return round(float(self.counts.sum()))

    def above(self, threshold: float) -> float:
        """The rows with at least this score, as far as places tell."""
        parts = np.clip(self.places + 1 - threshold * LEVEL_PARTS, 0.0, 1.0)
        return float(parts @ self.counts)


def kinds_of(scores: Mapping[int, ScoreCounts], quotas: Mapping[int, float]) -> tuple[RowKind, ...]:
    """Each kind with its threshold. `quotas`: how many rows it may keep."""
    found = []
    for mask, one in sorted(scores.items()):
        quota = min(quotas.get(mask, 0.0), one.rows)
        found.append(RowKind(mask, one.rows, round(quota), threshold_of(one, quota)))
    return tuple(found)


def kinds_together(scores: Mapping[int, ScoreCounts], quota: float) -> tuple[RowKind, ...]:
    """Each kind with the threshold that leaves `quota` rows of all kinds together."""
    masks = sorted(scores)
    if not masks:
        return ()
    places = np.concatenate([scores[mask].places for mask in masks])
    counts = np.concatenate([scores[mask].counts for mask in masks])
    each, at = np.unique(places, return_inverse=True)
    together = ScoreCounts(each, np.bincount(at, counts))
    threshold = threshold_of(together, quota)
    return tuple(
        RowKind(mask, scores[mask].rows, round(scores[mask].above(threshold)), threshold)
        for mask in masks
    )


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
    """The threshold of each row, by its mask; KEEP_ALL for a kind that was not counted."""
    masks = np.array([kind.mask for kind in kinds], dtype=np.int64)
    if not len(masks):
        return np.full(len(mask), KEEP_ALL)
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
) -> dict[int, float] | None:
    """The weights of the kinds; None if one threshold is for all of them, as with "espice".
    "darling": Z(T) * R(T), where a kind that may be several variables has the load of all.
    "random": the same share of every kind. "frequency": as many rows of each kind, so that the most
    frequent kinds lose most."""
    if policy == "espice":
        return None
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
    lowest = int(levels.min())
    levels = levels - lowest
    counts = np.bincount(levels)
    above = np.cumsum(counts[::-1])[::-1]
    edge = int(np.flatnonzero(above >= quota)[-1])
    stays: Flags = levels > edge
    at_edge = np.flatnonzero(levels == edge)
    free = quota - int(above[edge] - counts[edge])
    stays[at_edge[np.argpartition(own[at_edge], len(at_edge) - free)[len(at_edge) - free :]]] = True
    return stays


def select_rows_by_kind(
    rows: LeveledRows,
    quota: float,
    weights: Callable[[Mapping[int, int]], Mapping[int, float] | None],
) -> Flags:
    """Flags of the rows that stay: `quota` of them, divided among the kinds by `weights` of how
    many rows each has, or of all kinds together if these are None."""
    mask, levels, own = rows
    kinds, place, counts = number_kinds(mask)
    of_kind = {int(kind): int(count) for kind, count in zip(kinds, counts, strict=True)}
    of_weight = weights(of_kind)
    if of_weight is None:
        return select_rows(levels, own, round(quota))
    stays = np.zeros(len(mask), dtype=np.bool_)
    quotas = _round_quotas(share_quota(quota, of_kind, of_weight))
    for number, kind in enumerate(kinds):
        here = np.flatnonzero(place == number)
        stays[here] = select_rows(levels[here], own[here], quotas[int(kind)])
    return stays


# Masks below this are numbered by a table, in a tenth of the time that sorting takes.
_SMALL_MASK: Final = 1 << 12


def number_kinds(
    mask: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The kinds that rows have, ascending, the place of each row's among them, and how many rows
    each has.

    >>> [each.tolist() for each in number_kinds(np.array([4, 1, 4, 4]))]
    [[1, 4], [1, 0, 1, 1], [1, 3]]
    """
    if not len(mask) or not 0 <= int(mask.min()) <= int(mask.max()) < _SMALL_MASK:
        kinds, place, counts = np.unique(mask, return_inverse=True, return_counts=True)
        return kinds, place, counts
    every = np.bincount(mask)
    kinds = np.flatnonzero(every)
    place = (np.cumsum(every > 0) - 1)[mask]
    return kinds, place, every[kinds]


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
