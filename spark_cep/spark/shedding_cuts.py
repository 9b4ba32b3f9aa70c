"""Scores turned around: the tie-breakers below which rows are dropped, by their values.

Whether a row stays follows from its kind, its level and its tie-breaker, and the level from the bin
of a column. With the threshold known, most bins stay or go as a whole, and neighbours that do are
one. What is left of the tables of utility are few comparisons, and most rows need no hash.

Always holds: a row below its cut is one whose score is below the threshold, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.shedding.passing import BinnedRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.shedding.passing import Bins, Feature
    from spark_cep.udfs.shedding.quota import RowKind
    from spark_cep.udfs.shedding.utility import Utilities


# Cells of all kinds together. Each is a comparison in one expression, which the JVM compiles only
# while it is small.
MOST_CELLS = 64
# Tie-breakers are multiples of this.
_TIE_STEP = 2.0**-53


@dataclass(frozen=True)
class KindCuts:
    """The cuts of one kind: `cuts[n]` in the cell of values from `splits[n - 1]` to below
    `splits[n]`, `null` without a value. A row is dropped if its tie-breaker is below its cut, so
    never at 0 and always at 1. Without a `feature` there is one cell."""

    mask: int
    feature: Feature | None
    splits: tuple[float, ...]
    cuts: tuple[float, ...]
    null: float

    def sql(self, number: str) -> str:
        """The cut of a row. `number`: its value as a double.

        >>> KindCuts(1, None, (0.5,), (1.0, 0.25), 0.25).sql("x")
        'IF(x < 0.5D, 1.0D, 0.25D)'
        """
        # All comparisons with NULL lead to the last cell, and so do those with NaN.
        tree = _tree_sql(number, self.splits, self.cuts)
        if self.null == self.cuts[-1]:
            return tree
        return f"IF({number} IS NULL, {self.null!r}D, {tree})"


def cuts_of(utilities: Utilities, kinds: Sequence[RowKind]) -> tuple[KindCuts, ...] | None:
    """The cuts of all kinds; None if a kind depends on more than one ordered column, or on too many
    bins."""
    found = []
    for kind in kinds:
        if kind.mask and not kind.mask & utilities.needed:
            one = _cuts_of_kind(utilities, kind)
            if one is None:
                return None
            found.append(one)
    return tuple(found) if sum(len(one.cuts) for one in found) <= MOST_CELLS else None


def cut_of(level: int, threshold: float) -> float:
    """The least tie-breaker with which rows of this level reach the threshold; 1 if there is none.

    >>> cut_of(3, 3.0), cut_of(0, 0.25), cut_of(3, 5.0)
    (0.0, 0.25, 1.0)
    """
    low, high = -1, round(1 / _TIE_STEP)
    while high - low > 1:
        middle = (low + high) // 2
        # Sums are rounded, and never decrease with the tie-breaker.
        if level + middle * _TIE_STEP >= threshold:
            high = middle
        else:
            low = middle
    return high * _TIE_STEP


class _Cells(BinnedRows):
    """Cells in place of rows: one each from -inf and from each split on, and one of NULL."""

    def __init__(self, splits: Sequence[float]) -> None:
        self.num_rows = len(splits) + 2
        self._first = np.array([float("-inf"), *splits])

    def bins(self, feature: Feature) -> Bins:
        numbers = np.searchsorted(np.array(feature.splits), self._first, side="right")
        return np.append(numbers, feature.size - 1).astype(np.int64)


def _cuts_of_kind(utilities: Utilities, kind: RowKind) -> KindCuts | None:
    roles = [role for role in utilities.roles if kind.mask >> role.variable & 1]
    features = [feature for role in roles for table in role.tables for feature in table.features]
    if len({(f.column, f.period) for f in features}) > 1 or not all(f.is_ordered for f in features):
        return None
    splits = sorted({split for feature in features for split in feature.splits})
    cells = _Cells(splits)
    levels = utilities.levels(np.full(cells.num_rows, kind.mask, dtype=np.int64), cells)
    known = {int(level): cut_of(int(level), kind.threshold) for level in np.unique(levels)}
    *cuts, null = [known[int(level)] for level in levels]
    borders = [n for n, split in enumerate(splits) if cuts[n] != cuts[n + 1]]
    return KindCuts(
        kind.mask,
        features[0] if features else None,
        tuple(splits[n] for n in borders),
        (cuts[0], *(cuts[n + 1] for n in borders)),
        null,
    )


def _tree_sql(number: str, splits: Sequence[float], cuts: Sequence[float]) -> str:
    if not splits:
        return f"{cuts[0]!r}D"
    at = len(splits) // 2
    left = _tree_sql(number, splits[:at], cuts[: at + 1])
    right = _tree_sql(number, splits[at + 1 :], cuts[at + 1 :])
    return f"IF({number} < {splits[at]!r}D, {left}, {right})"
