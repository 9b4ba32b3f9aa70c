"""How long a bucket's triggers take, and so how many rows one may have: the paper's N_in.

    seconds = fixed + rows that stay * ROW_SECONDS + rows that came * work * part(share)

The mean `work` of a row is measured. If only a share of the rows stays, matching does a part of
the work: pairs are the share squared, and partial matches the share that stays of the matches,
which is more where the rows that stay are those with the best chances. Work grows with how dense
rows are in event time, for a row meets more partners then: by the pattern's number of other slots
at the most, which is what is reckoned with until such density has been seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# What a trigger of a bucket takes without rows, at the least: state, header, answer.
FIXED_SECONDS: Final = 3e-3
# Sorting and gathering a row.
ROW_SECONDS: Final = 1.5e-6
# Fewer rows say what a trigger takes without any, more say what a row takes.
ENOUGH_ROWS: Final = 1000
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

    def saw(self, came: int, kept: int, density: float, seconds: float) -> None:
        """A trigger to which so many rows came, of which these were kept, took so long."""
        if not came:
            return
        part = self.part(kept / came)
        beside = kept * ROW_SECONDS
        if came < ENOUGH_ROWS:
            left = seconds - beside - came * self._work(density) * part
            self.fixed += DOWN * (max(left, FIXED_SECONDS) - self.fixed)
            return
        if part <= 0:
            return
        measured = max(seconds - self.fixed - beside, 0.0) / (came * part)
        expected = self._work(density)
        weight = DOWN if self.seen and measured < expected else 1.0
        self.work = expected + weight * (measured - expected)
        self.density = density
        self.seen += 1

    def seconds(self, rows: int, share: float, density: float) -> float:
        """What a trigger with so many rows is expected to take if a share of them stays."""
        work = rows * self._work(density) * self.part(share)
        return self.fixed + rows * share * ROW_SECONDS + work

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
