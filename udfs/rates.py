"""What events say of themselves before they are matched: how many, how close, and where.

All of it is exact and counted from the candidate masks, so a plan can be made for the
very events that are to be matched next, not only for those that were matched before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.program import Estimates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.udfs.matching import Matching


def estimates_now(matching: Matching, selectivities: Mapping[int, float]) -> Estimates:
    """The rates of these events beside selectivities known from elsewhere."""
    density = matching.events.density(matching.meter.stretch)
    windows = max(density.stretches, 1.0)
    rates = {v: count / windows for v, count in density.candidates.items()}
    return Estimates(rates, selectivities, windows)


def places(matching: Matching, count: int) -> tuple[Mapping[int, float], ...]:
    """The rates of so many windows: those around evenly spread events, so that crowded windows,
    where the work is, come more often."""
    events, stretch = matching.events, matching.meter.stretch
    spread = np.unique(np.linspace(0, events.size - 1, count).astype(np.int64)) if count else ()
    found = []
    for position in spread:
        low, high = np.searchsorted(stretch, [stretch[position], stretch[position] + 1])
        found.append({v: float(n) for v, n in events.count(int(low), int(high)).items()})
    return tuple(found)
