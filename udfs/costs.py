"""What the engine's elementary operations take: APAM's T_PE, T_RC and T_BI, in seconds.

Measured on this machine, once a process, on blocks of the engine's kind, with what the engine does
to them: a pair is laid out, its two rows' values are gathered and compared; a result is a row of
the index columns of a partial match and of its ends; an insertion is an event's share of a sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


# Columns of 64 KB. Measured: from process to process the results differ by 10 %; with columns of
# 256 KB, whose memory is mapped anew for each operation, by a factor of 2.5.
_SIZE: Final = 1 << 13
_CANDIDATES: Final = 1 << 5
_INDEX_COLUMNS: Final = 3
# The fastest of so many runs: the others were interrupted, or met cold caches.
_RUNS: Final = 20


@dataclass(frozen=True)
class OperationCosts:
    """Seconds for each: evaluating a `pair`, making a `result`, one `insert` into a buffer."""

    pair: float
    result: float
    insert: float


# What `measure_costs` gives on a 2-core machine of 2025: for where plans must not depend on the
# machine.
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
