"""What events say of themselves before they are matched: how many, how close, how scattered.

All of it is exact and counted in one pass over the candidate mask, so a plan can be made for the
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


def scatter(matching: Matching) -> float:
    """The work of the first join if every stretch chose its two rarest variables for itself,
    compared with the two that are rarest overall. One is added to each count: a stretch without
    any is nothing to choose by."""
    variables, events, meter = matching.program.variables, matching.events, matching.meter
    positive = [v for v, variable in enumerate(variables) if not variable.negated]
    if len(positive) < 2 or not meter.stretches:
        return 1.0
    counts = np.stack(
        [
            np.bincount(meter.stretch[events.candidates(v)], minlength=meter.stretches)
            for v in positive
        ]
    )
    first, second = np.argsort(counts.sum(axis=1), kind="stable")[:2]
    fixed = float(((counts[first] + 1) * (counts[second] + 1)).sum())
    own = np.partition(counts, 1, axis=0)[:2] + 1
    return float((own[0] * own[1]).sum()) / fixed
