"""What events say of themselves before they are matched: how many, how close, how scattered.

All of it is exact and counted in one pass over the candidate mask, so a plan can be made for the
very events that are to be matched next, not only for those that were matched before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.program import Estimates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spark_cep.udfs.matching import Matching
    from spark_cep.udfs.program import Branch


def estimates_now(matching: Matching, selectivities: Mapping[int, float]) -> Estimates:
    """The rates of these events beside selectivities known from elsewhere."""
    density = matching.events.density(matching.meter.stretch)
    windows = max(density.stretches, 1.0)
    rates = {v: count / windows for v, count in density.candidates.items()}
    return Estimates(rates, selectivities, windows)


def scatter(
    matching: Matching, branch: Branch, pairs: Iterable[frozenset[int]]
) -> dict[frozenset[int], float]:
    """For each pair of the branch's variables: the pairs of events that windows would have which
    begin with their own two rarest, compared with those of this pair. One is added to each
    count: a window without any is nothing to choose by."""
    events, meter = matching.events, matching.meter
    variables = sorted(branch.filled())
    if len(variables) < 2 or not meter.stretches:
        return {}
    counts = {
        v: 1 + np.bincount(meter.stretch[events.candidates(v)], minlength=meter.stretches)
        for v in variables
    }
    rarest = np.partition(np.stack(list(counts.values())), 1, axis=0)[:2]
    own = float(rarest[0] @ rarest[1])
    found = {}
    for pair in pairs:
        if pair <= counts.keys():
            first, second = sorted(pair)
            found[pair] = own / float(counts[first] @ counts[second])
    return found
