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
    import pyarrow as pa

    from spark_cep.udfs.shedding.passing import Table
    from spark_cep.udfs.shedding.utility import Utilities

# So many rows are looked at, and with fewer than a tenth of them nothing is said.
ROWS: Final = 1000
# The share of the rows that would have to lie in other bins, beyond what chance alone makes.
FAR: Final = 0.2


class Drift:
    """Compares with the rows that `utilities` were learnt from."""

    def __init__(self, utilities: Utilities, rows: pa.Table, mask: int) -> None:
        self._mask = mask
        self._tables = [table for found in utilities.tables.values() for table in found]
        self._then = [self._filled(table, rows) for table in self._tables]

    def has_drifted(self, rows: pa.Table) -> bool:
        """Whether any table's bins are filled differently by these rows."""
        some = rows if rows.num_rows <= ROWS else _spread(rows)
        return any(
            _distance(then, self._filled(table, some)) > FAR
            for table, then in zip(self._tables, self._then, strict=True)
        )

    def _filled(self, table: Table, rows: pa.Table) -> npt.NDArray[np.float64]:
        """How many rows of the table's variable are in each bin."""
        mask = numbers(rows.column(self._mask)).astype(np.int64)
        here = rows.filter((mask >> table.variable & 1).astype(np.bool_))
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
