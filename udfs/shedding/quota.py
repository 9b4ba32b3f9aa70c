"""How many rows of each kind stay: the paper's local constraints, and where that cuts the scores.

Rows are of one *kind* if they may be the same variables: one candidate mask. The rows that may stay
are dealt to the kinds by weight, for policy "utility" Z(T) * R(T); what one kind leaves of its
part goes to the others, as the paper drops from a buffer only when all of them together are too
full. Each kind then keeps its rows of highest score: those above its *threshold*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.shedding.utility import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_cep.udfs.shedding.utility import Policy

# Scores are counted to so much of a level: where all rows are in one level, the threshold is right
# to a 64th of them, and within that it is as even as the rows' own numbers are.
PARTS: Final = 64
# A threshold that no score is below, and one that all are: the highest score may round to LEVELS.
ALL: Final = 0.0
NONE: Final = float(LEVELS + 1)


@dataclass(frozen=True)
class Kind:
    """Rows of one mask: how many there are, how many stay, and the score from which on."""

    mask: int
    rows: int
    kept: int
    threshold: float


@dataclass(frozen=True)
class Scores:
    """How many rows of each kind have which score: `counts` by `places`, scores in PARTS of a
    level, ascending."""

    places: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @property
    def rows(self) -> int:
        return int(self.counts.sum())


def kinds_of(scores: Mapping[int, Scores], quotas: Mapping[int, float]) -> tuple[Kind, ...]:
    """Each kind with its threshold. `quotas`: how many rows it may keep."""
    found = []
    for mask, one in sorted(scores.items()):
        quota = min(quotas.get(mask, 0.0), one.rows)
        found.append(Kind(mask, one.rows, round(quota), threshold_of(one, quota)))
    return tuple(found)


def threshold_of(scores: Scores, quota: float) -> float:
    """The score from which on `quota` rows remain."""
    if quota >= scores.rows:
        return ALL
    if quota <= 0:
        return NONE
    above = np.cumsum(scores.counts[::-1])[::-1]
    # The last place from which on there are enough rows; the threshold lies within its part.
    at = int(np.flatnonzero(above >= quota)[-1])
    surplus = (above[at] - quota) / scores.counts[at]
    return float((scores.places[at] + surplus) / PARTS)


def thresholds(kinds: Sequence[Kind], mask: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The threshold of each row, by its mask; that of a kind that was not counted is 0."""
    masks = np.array([kind.mask for kind in kinds], dtype=np.int64)
    if not len(masks):
        return np.zeros(len(mask))
    cuts = np.array([kind.threshold for kind in kinds])
    order = np.argsort(masks)
    at = np.minimum(np.searchsorted(masks[order], mask), len(masks) - 1)
    return np.where(masks[order][at] == mask, cuts[order][at], ALL)


def shared(total: float, rows: Mapping[int, int], weights: Mapping[int, float]) -> dict[int, float]:
    """`total` rows dealt to the kinds by weight, none of which gets more than it has.

    >>> shared(60, {1: 10, 2: 50, 3: 100}, {1: 1.0, 2: 1.0, 3: 1.0})
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
    policy: Policy, rows: Mapping[int, int], loads: Mapping[int, float]
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
