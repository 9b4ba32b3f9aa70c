"""What a row is worth: the chance that it passes all conditions of what it may be (Eq. 11).

A row that may be several variables is worth as much as in the best of them. The *score* puts the
worth into one of `LEVELS` levels, the paper's utility arrays, and adds a number of the row's own
between 0 and 1, so that rows of one level are dropped at random, and the same rows every time.

Always holds: the driver's column (`spark_cep/shedding/column.py`) computes the same score.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final
from typing import Literal as Choice

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from spark_cep.udfs.shedding.passing import Table

Policy = Choice["utility", "random", "frequency"]

# The paper's xi: utility arrays of one buffer. Worths of a long pattern are products of many
# shares, and most lie close to 0. So levels are even in the fourth root of the worth: a millionth
# of the best one is still told from a tenth of that.
LEVELS: Final = 1000

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Utilities:
    """`tables` of each variable; a variable without any is worth 1 in every row. `sheddable`: the
    positive variables, as a bit mask; `needed`: those that a NOT looks for."""

    tables: Mapping[int, tuple[Table, ...]]
    sheddable: int
    needed: int

    @cached_property
    def top(self) -> float:
        """The most that any row can be worth."""
        tops = [self.best(v) for v in range(self.sheddable.bit_length()) if self.sheddable >> v & 1]
        return max(tops, default=1.0) or 1.0

    def best(self, variable: int) -> float:
        """The most that a row of the variable can be worth."""
        found = 1.0
        for table in self.tables.get(variable, ()):
            found *= float(table.shares.max())
        return found

    def of_variable(self, variable: int, rows: pa.Table) -> Numbers:
        """What each row is worth as this variable."""
        worth = np.ones(rows.num_rows)
        for table in self.tables.get(variable, ()):
            worth *= table.passes(rows)
        return worth

    def of_rows(self, mask: npt.NDArray[np.int64], rows: pa.Table) -> Numbers:
        """What each row is worth in the best of the variables that its mask allows."""
        worth = np.zeros(rows.num_rows)
        for variable in range(self.sheddable.bit_length()):
            if self.sheddable >> variable & 1:
                here = np.flatnonzero(mask >> variable & 1)
                if len(here) == rows.num_rows:
                    np.maximum(worth, self.of_variable(variable, rows), out=worth)
                elif len(here):
                    one = self.of_variable(variable, rows.take(here))
                    worth[here] = np.maximum(worth[here], one)
        return worth

    def levels(self, mask: npt.NDArray[np.int64], rows: pa.Table) -> npt.NDArray[np.int64]:
        """The level of each row, 0 to LEVELS - 1; 0 where nothing tells rows apart."""
        return self.levels_of(self.of_rows(mask, rows))

    def levels_of(self, worth: Numbers) -> npt.NDArray[np.int64]:
        """The levels of rows that are worth so much."""
        if not self.tables:
            return np.zeros(len(worth), dtype=np.int64)
        relative = np.minimum(worth / self.top, 1.0)
        return np.minimum((np.sqrt(np.sqrt(relative)) * LEVELS).astype(np.int64), LEVELS - 1)

    def may_be_shed(self, mask: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Rows that may be something, and nothing that a NOT could need."""
        return np.asarray((mask != 0) & (mask & self.needed == 0))


def utilities_of(tables: Sequence[Table], sheddable: int, needed: int) -> Utilities:
    by_variable: dict[int, tuple[Table, ...]] = {}
    for table in tables:
        by_variable[table.variable] = (*by_variable.get(table.variable, ()), table)
    return Utilities(by_variable, sheddable, needed)
