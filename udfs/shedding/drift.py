"""Whether rows still have the values that utilities were learnt from.

The bins of each table were filled in some proportion then. When a few rows of now fill them in
clearly another one, utilities are not to be trusted. It takes a look at a thousand rows, 0.1 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.events import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from spark_cep.udfs.shedding.passing import Table
    from spark_cep.udfs.shedding.utility import Utilities

# So many rows are looked at, and with fewer than a tenth of them nothing is said.
ROWS: Final = 1000
# The share of the rows that would have to lie in other bins, beyond what chance alone makes.
FAR: Final = 0.2

Filled = npt.NDArray[np.float64]


class Drift:
    """Compares with the rows that `utilities` were learnt from, which filled their bins so."""

    def __init__(self, utilities: Utilities, then: Sequence[Filled], mask: int) -> None:
        self._mask = mask
        self._tables = tables_in(utilities)
        self._then = then

    def has_drifted(self, rows: pa.Table) -> bool:
        """Whether any table's bins are filled differently by these rows."""
        some = rows if rows.num_rows <= ROWS else _spread(rows)
        return any(
            _distance(then, _filled(table, some, self._mask)) > FAR
            for table, then in zip(self._tables, self._then, strict=True)
        )


def filled(utilities: Utilities, rows: pa.Table, mask: int) -> tuple[Filled, ...]:
    """How rows fill the bins of each table. `mask`: the column of their masks."""
    return tuple(_filled(table, rows, mask) for table in tables_in(utilities))


def tables_in(utilities: Utilities) -> list[Table]:
    return [table for found in utilities.tables.values() for table in found]


def _filled(table: Table, rows: pa.Table, mask: int) -> Filled:
    """How many rows of the table's variable are in each bin."""
    masks = numbers(rows.column(mask)).astype(np.int64)
    here = rows.filter((masks >> table.variable & 1).astype(np.bool_))
    bins = [feature.bins(here.column(feature.column)) for feature in table.features]
    sizes = tuple(feature.size for feature in table.features)
    at = np.ravel_multi_index(tuple(bins), sizes)
    return np.bincount(at, minlength=int(np.prod(sizes))).astype(np.float64)


def _spread(rows: pa.Table) -> pa.Table:
    return rows.take(np.linspace(0, rows.num_rows - 1, ROWS).astype(np.int64))


def _distance(then: npt.NDArray[np.float64], now: npt.NDArray[np.float64]) -> float:
    """Half the sum of the differences of the shares; 0 where there is too little to compare."""
    if then.sum() < ROWS / 10 or now.sum() < ROWS / 10:
        return 0.0
    shares = then / then.sum()
    found = np.abs(shares - now / now.sum()).sum() / 2
    # The mean distance of two samples of one distribution.
    chance = 0.4 * np.sqrt(shares * (1 / then.sum() + 1 / now.sum())).sum()
    return float(found - chance)
