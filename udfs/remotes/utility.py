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
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.remotes.growing import Growing

if TYPE_CHECKING:
    from spark_cep.udfs.values.arrow_values import Array

WINDOW: Final = 64
_Step = dict[int, "list[tuple[Array, Array]]"]


def urgent(latency: float, needs: Array) -> Array:
    """Equation 3: partial matches that need an element now, weighted by its latency."""
    return np.asarray(latency * needs)


def expected(sizes: Array, relevance: Array, steps: float = 1) -> Array:
    """Equation 6: `sizes` by class (#P), `relevance` by class and element (Pr)."""
    return np.asarray(steps * (sizes[:, None] * relevance).sum(axis=0))


def overall(weight: float, now: Array, future: Array) -> Array:
    """Equation 5."""
    return np.asarray(weight * now + (1 - weight) * future)


def worth_fetching(candidates: Array, cached: Array) -> Array:
    """Equation 7, flags: what is worth more than the least that is in the cache. An empty cache
    has room for all."""
    if not len(cached):
        return np.ones(len(candidates), np.bool_)
    return np.asarray(candidates > cached.min())


class Utility:
    """Algorithm 2. `needs`: of this step, by element."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._needs = Growing(np.float64)
        self._by_class: dict[int, _Class] = {}
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
        known = self._by_class.setdefault(level, _Class())
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
        now = urgent(latency, _at(self._needs, elements))
        classes = [known for known in self._by_class.values() if known.total > 0]
        if not classes:
            return overall(weight, now, np.zeros(len(elements)))
        sizes = np.array([known.total / len(self._steps) for known in classes])
        relevance = np.stack([_at(known.counts, elements) / known.total for known in classes])
        return overall(weight, now, urgent(latency, expected(sizes, relevance)))


class _Class:
    """tranKey and tranClass of one class, over the window."""

    def __init__(self) -> None:
        self.counts = Growing(np.float64)
        self.total = 0.0

    def add(self, elements: Array, counts: Array, sign: int) -> None:
        self.counts.grow(int(elements.max()) + 1)
        np.add.at(self.counts.all, elements, sign * counts)
        self.total += sign * float(counts.sum())


def _at(column: Growing, elements: Array) -> Array:
    """The column at elements, 0 beyond its end."""
    inside = elements < column.size
    return np.where(inside, column.all[np.where(inside, elements, 0)], 0.0)
