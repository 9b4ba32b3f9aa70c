"""Which elements a cache keeps when it is over its capacity (EIRES section 6).

"lru": what was used last. "cost": elements that are needed for certain and were not used yet
(tier 1) before all others (tier 2), within a tier by utility over size, which approximates the
knapsack; what would not fit is passed over.

Always holds: what is kept fits into the capacity, so an element larger than that never stays.
Pure functions on columns of the elements that are here; that values in use are never evicted is
the affair of who calls it, between blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from spark_cep.udfs.remotes.spec import Caching
    from spark_cep.udfs.values.arrow_values import Array

# So often the knapsack looks past an element that does not fit. Each look is one cumulative sum;
# what is left after them would fill gaps smaller than most elements.
_PASSES: Final = 16


@dataclass(frozen=True)
class Held:
    """The elements that are here, a place each. `certain`: those of tier 1. `utility` is not read
    for "lru"."""

    sizes: Array
    last_used: Array
    certain: Array
    utility: Array


def kept(held: Held, caching: Caching) -> Array:
    """Flags: what stays."""
    if held.sizes.sum() <= caching.capacity:
        return np.ones(len(held.sizes), np.bool_)
    if caching.policy == "lru":
        return _most_recent(held, caching.capacity)
    return _most_useful(held, caching.capacity)


def _most_recent(held: Held, capacity: int) -> Array:
    """What stays when the longest unused go until the rest fits."""
    order = np.argsort(-held.last_used, kind="stable")
    order = order[held.sizes[order] <= capacity]
    stays = np.zeros(len(held.sizes), np.bool_)
    stays[order[np.cumsum(held.sizes[order]) <= capacity]] = True
    return stays


def _most_useful(held: Held, capacity: int) -> Array:
    density = held.utility / held.sizes
    # The last key is the first to sort by; what was used later breaks ties.
    order = np.lexsort((-held.last_used, -density, ~held.certain))
    return fill(order, held.sizes, capacity)


def fill(order: Array, sizes: Array, capacity: int) -> Array:
    """Flags: what is packed in this order, passing over what does not fit."""
    stays = np.zeros(len(sizes), np.bool_)
    for _ in range(_PASSES):
        order = order[sizes[order] <= capacity]
        fits = np.cumsum(sizes[order]) <= capacity
        packed = int(np.count_nonzero(fits))
        if not packed:
            break
        stays[order[:packed]] = True
        capacity -= int(sizes[order[:packed]].sum())
        order = order[packed + 1 :]
    return stays
