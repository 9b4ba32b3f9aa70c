"""The paper's utility arrays: rows by level, of which the lowest go first.

Rows come by the block, so an array is a count: one pass puts all rows into their levels, and the
level at which the quota is reached is found among LEVELS counts, however many rows there are. Of
the rows of that level, those with the highest numbers of their own stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.shedding.quota import shared, weights_of
from spark_cep.udfs.shedding.utility import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.udfs.shedding.utility import Policy

Flags = npt.NDArray[np.bool_]
# Of each row its mask, its level and its own number.
Rows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = 0x9E3779B97F4A7C15


def staying(levels: npt.NDArray[np.int64], own: npt.NDArray[np.float64], quota: int) -> Flags:
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


def staying_by_kind(
    policy: Policy,
    rows: Rows,
    quota: float,
    loads: Mapping[int, float],
) -> Flags:
    """Which of these rows stay, of which so many may, each kind its part."""
    mask, levels, own = rows
    stays = np.zeros(len(mask), dtype=np.bool_)
    kinds, place, counts = np.unique(mask, return_inverse=True, return_counts=True)
    of_kind = {int(kind): int(count) for kind, count in zip(kinds, counts, strict=True)}
    quotas = _whole(shared(quota, of_kind, weights_of(policy, of_kind, loads)))
    for number, kind in enumerate(kinds):
        here = np.flatnonzero(place == number)
        stays[here] = staying(levels[here], own[here], quotas[int(kind)])
    return stays


def _whole(quotas: Mapping[int, float]) -> dict[int, int]:
    """Whole rows, as many in all: the largest fractions are rounded up."""
    found = {kind: int(quota) for kind, quota in quotas.items()}
    left = round(sum(quotas.values())) - sum(found.values())
    for kind in sorted(quotas, key=lambda kind: (found[kind] - quotas[kind], kind))[:left]:
        found[kind] += 1
    return found


def own_numbers(times: npt.NDArray[Any], seed: int) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each row, from its event time."""
    whole = times if times.dtype.kind == "i" else times.astype(np.float64).view(np.int64)
    mixed = whole.astype(np.uint64) + np.uint64((seed + 1) * _STEP % 2**64)
    for shift, factor in zip((30, 27), _MIX, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
