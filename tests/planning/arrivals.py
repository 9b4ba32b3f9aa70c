"""A simulation to hold the cost model against: random arrivals, joined as the engine joins them.

Rows of a slot arrive evenly at random over many windows of length 1. A condition between two
slots holds for a pair of rows when the sum of their random values, without its whole part, is
below its selectivity: pairs are independent of each other. Everything is counted by walking, with
no formula of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from spark_cep.udfs.planning.cost_model import BranchModel
    from spark_cep.udfs.program import Estimates, Shape

Rows = npt.NDArray[np.int64]
# Matches as columns: for each slot the row, for a list one column an element.
Matches = Mapping[tuple[int, int], Rows]


@dataclass(frozen=True)
class Counts:
    """Per window."""

    pairs: float
    partials: float


class Arrivals:
    def __init__(
        self, branch: BranchModel, estimates: Estimates, windows: int = 1500, seed: int = 7
    ) -> None:
        random = np.random.default_rng(seed)
        self._model = branch
        self._estimates = estimates
        self._windows = windows
        counts = {v: random.poisson(rate * windows) for v, rate in estimates.rates.items()}
        self._times = {v: np.sort(random.uniform(0, windows, n)) for v, n in counts.items()}
        self._values = {v: random.uniform(0, 1, n) for v, n in counts.items()}
        self.joins: dict[tuple[int, ...], Counts] = {}

    def run(self, shape: Shape) -> Matches:
        """The matches of a shape; `joins` has the counts of each of its joins."""
        if isinstance(shape, int):
            return {(shape, 0): np.arange(len(self._times[shape]))}
        left = self.run(shape[0])
        slots = tuple(sorted({slot for slot, _ in left} | set(_leaves(shape[1]))))
        right = self.run(shape[1])
        if isinstance(shape[1], int) and self._model.lists >> shape[1] & 1:
            pairs, found = self._grown(left, shape[1])
        else:
            pairs, found = self._joined(left, right)
        size = len(next(iter(found.values())))
        self.joins[slots] = Counts(pairs / self._windows, size / self._windows)
        return found

    def unblocked(self, matches: Matches, blocking: int, after: int, before: int) -> float:
        """The share of matches with no row of a negated variable between two slots."""
        ends = [self._time(matches, slot) for slot in (after, before)]
        first, last = (np.searchsorted(self._times[blocking], end) for end in ends)
        return float((first == last).mean())

    # -- one join --------------------------------------------------------------------------------

    def _joined(self, left: Matches, right: Matches) -> tuple[int, Matches]:
        unit = sorted({slot for slot, _ in right})
        anchor = self._anchor({slot for slot, _ in left}, unit)
        place, pick = self._in_scope(left, anchor, right[anchor, 0])
        found = {k: rows[pick] for k, rows in left.items()}
        found |= {k: rows[place] for k, rows in right.items()}
        pairs = len(pick)
        kept = self._in_order(found)
        for each in self._model.condition_models:
            i, j = (s for s in range(self._model.size) if each.slots >> s & 1)
            if (i in unit) != (j in unit) and {(i, 0), (j, 0)} <= found.keys():
                holds = self._holds(each.index, found[i, 0], found[j, 0], (i, j))
                if each.index_equalities:
                    pairs = int(np.count_nonzero(holds))  # the only condition of such a test
                kept &= holds
        return pairs, {k: rows[kept] for k, rows in found.items()}

    def _grown(self, left: Matches, slot: int) -> tuple[int, Matches]:
        """A list of up to `high` elements; all of one length at a time, joined in the end."""
        high = self._model.branch.slots[slot].high
        assert high is not None
        pairs, made, current = 0, [], dict(left)
        for length in range(high):
            everything = np.arange(len(self._times[slot]))
            place, pick = self._in_scope(current, slot, everything)
            pairs += len(pick)
            current = {k: rows[pick] for k, rows in current.items()}
            current[slot, length] = everything[place]
            made.append(current)
        keys = [(slot, 0), *left]
        return pairs, {k: np.concatenate([each[k] for each in made]) for k in keys}

    def _anchor(self, bound: set[int], unit: Sequence[int]) -> int:
        def held(slot: int) -> tuple[int, int]:
            order = self._model.branch.precedes
            before = any((other, slot) in order for other in bound)
            return before + any((slot, other) in order for other in bound), -slot

        return max(unit, key=held)

    def _in_scope(self, left: Matches, slot: int, rows: Rows) -> tuple[Rows, Rows]:
        """All (row of the slot, match) where order and window allow the row."""
        order = self._model.branch.precedes
        times = [self._times[s][r] for (s, _), r in left.items()]
        low, high = np.maximum.reduce(times) - 1, np.minimum.reduce(times) + 1
        for (other, _), bound in left.items():
            if (other, slot) in order or other == slot:
                low = np.maximum(low, self._times[other][bound])
            if (slot, other) in order:
                high = np.minimum(high, self._times[other][bound])
        by_time = np.argsort(self._times[slot][rows], kind="stable")
        sorted_times = self._times[slot][rows][by_time]
        first = np.searchsorted(sorted_times, low, side="right")
        counts = np.maximum(np.searchsorted(sorted_times, high) - first, 0)
        pick = np.repeat(np.arange(len(counts)), counts)
        ends = np.cumsum(counts)
        place = np.arange(len(pick)) - (ends - counts - first)[pick]
        return by_time[place], pick

    def _in_order(self, matches: Matches) -> npt.NDArray[np.bool_]:
        times = {slot: self._times[slot][rows] for (slot, _), rows in matches.items()}
        every = list(times.values())
        kept: npt.NDArray[np.bool_] = np.maximum.reduce(every) - np.minimum.reduce(every) <= 1
        for earlier, later in self._model.branch.precedes:
            if earlier in times and later in times:
                kept &= times[earlier] < times[later]
        return kept

    def _holds(
        self, index: int, left: Rows, right: Rows, slots: tuple[int, int]
    ) -> npt.NDArray[np.bool_]:
        drawn = self._values[slots[0]][left] + self._values[slots[1]][right]
        holds: npt.NDArray[np.bool_] = drawn % 1 < self._estimates.selectivities[index]
        return holds

    def _time(self, matches: Matches, slot: int) -> npt.NDArray[np.float64]:
        times: npt.NDArray[np.float64] = self._times[slot][matches[slot, 0]]
        return times


def _leaves(shape: Shape) -> list[int]:
    return [shape] if isinstance(shape, int) else [*_leaves(shape[0]), *_leaves(shape[1])]
