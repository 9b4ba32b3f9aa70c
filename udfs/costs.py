"""The costs of the engine's elementary operations: APAM's T_PE, T_RC and T_BI, in seconds.

Measured once per process on this machine, on blocks like those of the engine. A pair is laid out,
and the values of its two rows are gathered and compared; a result is a row of the index columns of
a partial match and of its ends; an insertion is an event's share of a sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


# Columns of 64 KB: measured, the results of processes differ by 10 %. With columns of 256 KB, whose
# memory is mapped again for each operation, they differ by a factor of 2.5.
_SIZE: Final = 1 << 13
_CANDIDATES: Final = 1 << 5
_INDEX_COLUMNS: Final = 3
# The fastest run counts: the others were interrupted or had cold caches.
_RUNS: Final = 20


@dataclass(frozen=True)
class OperationCosts:
    """Seconds to evaluate a `pair`, to make a `result` and to `insert` an event into a buffer."""

    pair: float
    result: float
    insert: float


# Measured on a 2-core machine of 2025, for plans that must not depend on the machine.
TYPICAL_COSTS: Final = OperationCosts(pair=6e-9, result=4e-9, insert=36e-9)


@lru_cache(maxsize=1)
def measure_costs() -> OperationCosts:
    """The costs on this machine. Takes about 15 ms the first time."""
    random = np.random.default_rng(0)
    values = random.integers(0, 1000, _SIZE)
    rows = np.sort(random.integers(0, _SIZE, _SIZE))
    shift = random.integers(0, _SIZE, _SIZE // _CANDIDATES)

    def pairs() -> object:
        partial = np.repeat(np.arange(len(shift)), _CANDIDATES)
        element = rows[(np.arange(_SIZE) + shift[partial]) % _SIZE]
        return np.flatnonzero(values[rows[partial]] < values[element])

    def results() -> object:
        columns = [rows[rows] for _ in range(_INDEX_COLUMNS)]
        return columns, np.minimum(rows[rows], rows), np.maximum(rows[rows], rows)

    def inserts() -> object:
        return np.concatenate([values, rows])[np.lexsort((rows, values))]

    return OperationCosts(_fastest(pairs), _fastest(results), _fastest(inserts))


def _fastest(operation: Callable[[], object]) -> float:
    times = []
    for _ in range(_RUNS):
        start = perf_counter()
        operation()
        times.append(perf_counter() - start)
    return min(times) / _SIZE
