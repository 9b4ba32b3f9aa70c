"""How long a bucket's triggers take, and so how many rows one may have: the paper's N_in.

    seconds = fixed + rows that stay * ROW_SECONDS + rows that came * work * part(share)
              + AGAIN * the matching of the trigger before

The mean `work` of a row is measured. If only a share of the rows stays, matching does a part of
the work: less than that share, for the rows of a match have to meet. Work grows with how dense
rows are in event time, for a row meets more partners then: by the pattern's number of other slots
at the most, which is what is reckoned with until such density has been seen. The rows of the
trigger before are in the state, and the engine goes over them once more: the watermark has not
passed them yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# What a trigger of a bucket takes without rows, at the least: state, header, answer.
FIXED_SECONDS: Final = 3e-3
# Sorting and gathering a row.
ROW_SECONDS: Final = 1.5e-6
# So many rows, of one trigger or of several, say what a row takes; so few what a trigger takes
# without any.
ENOUGH_ROWS: Final = 1000
FEW_ROWS: Final = 100
# Going over the rows of the trigger before, as a part of what they took when they came. Measured
# with the stock patterns of `benchmarks/darling.py`: 0.1 to 1, by the plan.
AGAIN: Final = 0.5
# Rows that take less leave nothing to save.
LITTLE_SECONDS: Final = 5e-3
# Being slower than thought is believed at once, being faster bit by bit.
DOWN: Final = 0.3
# Densities within this factor are the same.
ALIKE: Final = 1.5
_HALVINGS: Final = 20


@dataclass
class Pace:
    """`work`: seconds a row that came, where `density` of them came in a unit of event time; before
    any was seen, what the cost model expects. `growth`: the power of the density with which that
    grows beyond. `part`: of the work, by the share of the rows that stays."""

    growth: int
    part: Callable[[float], float]
    work: float = 0.0
    density: float = 0.0
    fixed: float = FIXED_SECONDS
    seen: int = 0
    _before: float = 0.0
    _rows_before: float = 0.0
    _waiting: tuple[int, float, float] = (0, 0.0, 0.0)

    def saw(self, came: int, kept: int, density: float, seconds: float) -> None:
        """A trigger to which so many rows came, of which these were kept, took so long."""
        if not came:
            return
        part = self.part(kept / came)
        beside = kept * ROW_SECONDS
        matching = max(seconds - self.fixed - beside, 0.0)
        again, before = AGAIN * self._before, self._rows_before
        self._before, self._rows_before = matching, came * part
        if came < FEW_ROWS:
            left = seconds - beside - again - came * self._work(density) * part
            self.fixed += DOWN * (max(left, FIXED_SECONDS) - self.fixed)
            return
        if came * part < before / 2:
            # It went to rows that had come before: how much of it is not known well enough.
            return
        rows, whole, taken = self._waiting
        own = max(matching - again, 0.0)
        self._waiting = rows + came, whole + came * part, taken + own
        if self._waiting[0] >= ENOUGH_ROWS and self._waiting[1] > 0:
            self._measured(density)

    def _measured(self, density: float) -> None:
        """Enough rows have come to say what one takes. `density`: of the last ones."""
        _, whole, taken = self._waiting
        self._waiting = (0, 0.0, 0.0)
        measured = taken / whole
        expected = self._work(density)
        weight = DOWN if self.seen and measured < expected else 1.0
        self.work = expected + weight * (measured - expected)
        self.density = density
        self.seen += 1

    def seconds(self, rows: int, share: float, density: float) -> float:
        """What a trigger with so many rows is expected to take if a share of them stays."""
        work = rows * self._work(density) * self.part(share)
        return self.fixed + AGAIN * self._before + rows * share * ROW_SECONDS + work

    def share(self, rows: int, density: float, budget: float) -> float:
        """The share of the rows that can be had for the budget."""
        everything = self.seconds(rows, 1.0, density)
        if everything <= max(budget, self.fixed + LITTLE_SECONDS):
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            fits = self.seconds(rows, middle, density) <= budget
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _work(self, density: float) -> float:
        """A sparser trigger than the last is not reckoned to be faster."""
        times = density / self.density if self.density else 1.0
        return float(self.work * times**self.growth) if times > ALIKE else self.work
