"""What fetched elements are worth (EIRES, section 4: Equations 3 to 7 and Algorithm 2), and which
of them a cache keeps (section 6).

Elements are places in columns; a class of partial matches is a `level`. Time advances in steps,
one block of the engine each, and the last `window` steps estimate the future.
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
    """Equation 3: how many partial matches need an element now, times the latency."""
    return np.asarray(latency * needs)


def future_utility(sizes: Array, relevance: Array, steps: float = 1) -> Array:
    """Equation 6: `sizes` by class (#P), `relevance` by class and element (Pr).

    `steps` is the factor (k' - k), the length of the future. Algorithm 2 leaves it out, and so
    does `FetchUtility`: the weight then compares a current need with one expected per step.
    """
    return np.asarray(steps * (sizes[:, None] * relevance).sum(axis=0))


def overall_utility(weight: float, now: Array, future: Array) -> Array:
    """Equation 5: the weighted sum of urgent and future utility."""
    return np.asarray(weight * now + (1 - weight) * future)


def is_worth_fetching(candidates: Array, cached: Array) -> Array:
    """Equation 7: flags of the candidates with more utility than the least in the cache. An empty
    cache takes all."""
    if not len(cached):
        return np.ones(len(candidates), np.bool_)
    return np.asarray(candidates > cached.min())


class FetchUtility:
    """Algorithm 2: the needs of this step, and those of the window by class.

    The sums over the window add what a step brings and subtract what leaves it, so a step costs
    what it touched. The utility of a whole is that of all its parts (the part-of relation),
    because the caller names the whole for each of them.
    """

    def __init__(self, window: int = UTILITY_WINDOW) -> None:
        self._window = window
        self._needs = GrowableArray(np.float64)
        self._by_class: dict[int, _PartialMatchClass] = {}
        self._steps: deque[_Step] = deque([{}])
        self.is_known = False

    def needed(self, elements: Array, counts: Array, level: int) -> None:
        """Counts the partial matches of a class that need each of these elements in this step."""
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
        """Begins the next step, in which nothing is needed yet."""
        for pairs in self._steps[-1].values():
            for elements, _ in pairs:
                self._needs.all[elements] = 0
        self._steps.append({})
        if len(self._steps) > self._window:
            for level, pairs in self._steps.popleft().items():
                for elements, counts in pairs:
                    self._by_class[level].add(elements, counts, -1)

    def keep(self, elements: Array, renumbered: Array) -> None:
        """Keeps what is known of these elements, by their new numbers."""
        for column in (self._needs, *(each.counts for each in self._by_class.values())):
            column.grow(len(renumbered))
            column.keep(elements)
        for step in self._steps:
            for level, pairs in step.items():
                step[level] = [self._renumber(level, each, renumbered) for each in pairs]

    def _renumber(
        self, level: int, pair: tuple[Array, Array], renumbered: Array
    ) -> tuple[Array, Array]:
        elements, counts = renumbered[pair[0]], pair[1]
        kept = elements >= 0
        self._by_class[level].total -= float(counts[~kept].sum())
        return elements[kept], counts[kept]

    def sizes(self) -> dict[int, float]:
        """#P: the mean number of partial matches of each class in a step."""
        return {level: known.total / len(self._steps) for level, known in self._by_class.items()}

    def of(self, elements: Array, weight: float, latency: float) -> Array:
        """The overall utility of elements. The latency weighs both terms, because Equation 4 sums
        the utilities of Equation 3."""
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
    """`tranKey` (by element) and `tranClass` (`total`) of one class, over the window."""

    def __init__(self) -> None:
        self.counts = GrowableArray(np.float64)
        self.total = 0.0

    def add(self, elements: Array, counts: Array, sign: int) -> None:
        self.counts.grow(int(elements.max(initial=-1)) + 1)
        np.add.at(self.counts.all, elements, sign * counts)
        self.total += sign * float(counts.sum())


def _values_at(column: GrowableArray, elements: Array) -> Array:
    """The entries of a column at elements; 0 beyond its end."""
    inside = elements < column.size
    return np.where(inside, column.all[np.where(inside, elements, 0)], 0.0)


# ---- eviction ------------------------------------------------------------------------------------


# How often the knapsack skips an element that does not fit. Each pass is one cumulative sum; the
# gaps that are left after them are smaller than most elements.
_PASSES: Final = 16


@dataclass(frozen=True)
class CachedElements:
    """The present elements, one entry each. `certain`: they are needed and were not used yet.
    "lru" does not read `utility`."""

    sizes: Array
    last_used: Array
    certain: Array
    utility: Array


def choose_kept(present: CachedElements, caching: Caching) -> Array:
    """Flags of the elements that stay when the cache is over its capacity. What stays always fits
    into the capacity, so an element larger than that never stays. The caller keeps values that are
    in use out of this.

    "lru" keeps the most recently used elements. "cost" prefers elements that are certainly needed
    (tier 1) to all others (tier 2), and within a tier utility per byte, which approximates the
    knapsack."""
    if present.sizes.sum() <= caching.capacity:
        return np.ones(len(present.sizes), np.bool_)
    if caching.policy == "lru":
        return _keep_most_recent(present, caching.capacity)
    return _keep_most_useful(present, caching.capacity)


def _keep_most_recent(present: CachedElements, capacity: int) -> Array:
    """Evicts the least recently used elements until the rest fits."""
    order = np.argsort(-present.last_used, kind="stable")
    order = order[present.sizes[order] <= capacity]
    stays = np.zeros(len(present.sizes), np.bool_)
    stays[order[np.cumsum(present.sizes[order]) <= capacity]] = True
    return stays


def _keep_most_useful(present: CachedElements, capacity: int) -> Array:
    density = present.utility / present.sizes
    # The last key is the primary one; among ties, more recent use wins.
    order = np.lexsort((-present.last_used, -density, ~present.certain))
    return fill_knapsack(order, present.sizes, capacity)


def fill_knapsack(order: Array, sizes: Array, capacity: int) -> Array:
    """Flags of the elements that are packed in this order, skipping those that do not fit."""
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
