"""What fetched elements are worth: EIRES section 4, Equations 3 to 7 and Algorithm 2.

Elements are places in columns; a class of partial matches is a `level`. Time goes in steps, a
block of the engine each. The future is estimated by the last `window` steps.

Always holds: sums over the window are kept by adding what a step brings and taking away what
leaves it, so a step costs what it touched. The utility of a whole is that of all its parts,
because the caller names the whole for each of them (the part-of relation of the paper).

Equation 6 has a factor (k' - k), the length of the future, which Algorithm 2 leaves out; here it
is left out too, so that the weight says how one current need compares with one expected a step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.remotes.keys import GrowableArray

if TYPE_CHECKING:
    from spark_cep.udfs.remote_spec import Caching
    from spark_cep.udfs.values.arrow_values import Array


UTILITY_WINDOW: Final = 64
_Step = dict[int, "list[tuple[Array, Array]]"]


def urgent_utility(latency: float, needs: Array) -> Array:
    """Equation 3: partial matches that need an element now, weighted by its latency."""
    return np.asarray(latency * needs)


def future_utility(sizes: Array, relevance: Array, steps: float = 1) -> Array:
    """Equation 6: `sizes` by class (#P), `relevance` by class and element (Pr)."""
    return np.asarray(steps * (sizes[:, None] * relevance).sum(axis=0))


def overall_utility(weight: float, now: Array, future: Array) -> Array:
    """Equation 5."""
    return np.asarray(weight * now + (1 - weight) * future)


def is_worth_fetching(candidates: Array, cached: Array) -> Array:
    """Equation 7, flags: what is worth more than the least that is in the cache. An empty cache
    has room for all."""
    if not len(cached):
        return np.ones(len(candidates), np.bool_)
    return np.asarray(candidates > cached.min())


class FetchUtility:
    """Algorithm 2. `needs`: of this step, by element."""

    def __init__(self, window: int = UTILITY_WINDOW) -> None:
        self._window = window
        self._needs = GrowableArray(np.float64)
        self._by_class: dict[int, _PartialMatchClass] = {}
        self._steps: deque[_Step] = deque([{}])
        self.is_known = False

    def needed(self, elements: Array, counts: Array, level: int) -> None:
        """So many partial matches of a class need each of these elements; adds up in a step."""
        if not len(elements):
            return
        self.is_known = True
        size = int(elements.max()) + 1
        self._needs.grow(size)
        np.add.at(self._needs.all, elements, counts)
        known = self._by_class.setdefault(level, _PartialMatchClass())
        known.add(elements, counts, 1)
        self._steps[-1].setdefault(level, []).append((elements, counts))

    def step(self) -> None:
        """The next step begins: nothing is needed yet in it."""
        for pairs in self._steps[-1].values():
            for elements, _ in pairs:
                self._needs.all[elements] = 0
        self._steps.append({})
        if len(self._steps) > self._window:
            for level, pairs in self._steps.popleft().items():
                for elements, counts in pairs:
                    self._by_class[level].add(elements, counts, -1)

    def sizes(self) -> dict[int, float]:
        """#P: how many partial matches of each class a step has on average."""
        return {level: known.total / len(self._steps) for level, known in self._by_class.items()}

    def of(self, elements: Array, weight: float, latency: float) -> Array:
        """The overall utility of elements. Both its terms are weighted by the latency, as
        Equation 4 sums up what Equation 3 weighs."""
        now = urgent_utility(latency, _values_at(self._needs, elements))
        classes = [known for known in self._by_class.values() if known.total > 0]
        if not classes:
            return overall_utility(weight, now, np.zeros(len(elements)))
        sizes = np.array([known.total / len(self._steps) for known in classes])
        relevance = np.stack(
            [_values_at(known.counts, elements) / known.total for known in classes]
        )
        return overall_utility(
            weight, now, urgent_utility(latency, future_utility(sizes, relevance))
        )


class _PartialMatchClass:
    """tranKey and tranClass of one class, over the window."""

    def __init__(self) -> None:
        self.counts = GrowableArray(np.float64)
        self.total = 0.0

    def add(self, elements: Array, counts: Array, sign: int) -> None:
        self.counts.grow(int(elements.max()) + 1)
        np.add.at(self.counts.all, elements, sign * counts)
        self.total += sign * float(counts.sum())


def _values_at(column: GrowableArray, elements: Array) -> Array:
    """The column at elements, 0 beyond its end."""
    inside = elements < column.size
    return np.where(inside, column.all[np.where(inside, elements, 0)], 0.0)


# --------------------------------------------------------------------------------------------------
# Which elements a cache keeps when it is over its capacity (EIRES section 6).
#
# "lru": what was used last. "cost": elements that are needed for certain and were not used yet
# (tier 1) before all others (tier 2), within a tier by utility over size, which approximates the
# knapsack; what would not fit is passed over.
#
# Always holds: what is kept fits into the capacity, so an element larger than that never stays.
# Pure functions on columns of the elements that are here; that values in use are never evicted is
# the affair of who calls it, between blocks.
# --------------------------------------------------------------------------------------------------


# So often the knapsack looks past an element that does not fit. Each look is one cumulative sum;
# what is left after them would fill gaps smaller than most elements.
_PASSES: Final = 16


@dataclass(frozen=True)
class CachedElements:
    """The elements that are here, a place each. `certain`: those of tier 1. `utility` is not read
    for "lru"."""

    sizes: Array
    last_used: Array
    certain: Array
    utility: Array


def choose_kept(held: CachedElements, caching: Caching) -> Array:
    """Flags: what stays."""
    if held.sizes.sum() <= caching.capacity:
        return np.ones(len(held.sizes), np.bool_)
    if caching.policy == "lru":
        return _keep_most_recent(held, caching.capacity)
    return _keep_most_useful(held, caching.capacity)


def _keep_most_recent(held: CachedElements, capacity: int) -> Array:
    """What stays when the longest unused go until the rest fits."""
    order = np.argsort(-held.last_used, kind="stable")
    order = order[held.sizes[order] <= capacity]
    stays = np.zeros(len(held.sizes), np.bool_)
    stays[order[np.cumsum(held.sizes[order]) <= capacity]] = True
    return stays


def _keep_most_useful(held: CachedElements, capacity: int) -> Array:
    density = held.utility / held.sizes
    # The last key is the first to sort by; what was used later breaks ties.
    order = np.lexsort((-held.last_used, -density, ~held.certain))
    return fill_knapsack(order, held.sizes, capacity)


def fill_knapsack(order: Array, sizes: Array, capacity: int) -> Array:
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
