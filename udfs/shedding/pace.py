"""How long a bucket's triggers take, and so how many rows one may have: the paper's N_in.

    seconds = fixed + rows that stay * ROW_SECONDS + rows that came * work * part(share)
              + again * what matching took in the trigger before

The mean `work` of a row is measured. If only a share of the rows stays, matching does a part of
the work: less than that share, for the rows of a match have to meet. Work grows with how dense
rows are in event time, for a row meets more partners then: by the pattern's number of other slots
at the most, which is what is reckoned with until such density has been seen. The rows of the
trigger before are in the state, for the watermark has not passed them yet, and some plans go over
them once more: what that takes is seen when few rows come after many.

Rows with the best chances keep more matches than work. `part` is what matching takes if it takes as
much as the matches are worth, `least` what it takes of rows dropped at random; where between them
the truth lies is seen when rows are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Final

# What a trigger of a bucket takes without rows, at the least: state, header, answer.
FIXED_SECONDS: Final = 3e-3
# Sorting and gathering a row.
ROW_SECONDS: Final = 1.5e-6
# So many rows, of one trigger or of several, say what a row takes; so few what a trigger takes
# without any.
ENOUGH_ROWS: Final = 1000
FEW_ROWS: Final = 100
# Where less than this part of the rows of the trigger before come, what those take again is seen.
# With the stock patterns of `benchmarks/darling.py` next to nothing for a chain that begins with
# the last event, 0.4 to 1 of what they took when they came for one that begins with the first.
LESS: Final = 0.5
# Rows that take less leave nothing to save.
LITTLE_SECONDS: Final = 5e-3
# Being slower than thought is believed at once, being faster bit by bit.
DOWN: Final = 0.3
# How fast it is forgotten that many rows spoke once, with each time that fewer have spoken.
REMEMBERED: Final = 0.95
# Densities within this factor are the same.
ALIKE: Final = 1.5
# Where the most and the least differ by less, nothing is seen of which it is.
APART: Final = 1.2
# Seeing that it takes less than thought; that it takes more is believed at once.
EASIER: Final = 0.7
# By how much triggers were longer than planned is kept in hand, as long as it is not forgotten:
# what a row takes goes up and down by a fifth from trigger to trigger. Shorter plans tell nothing.
MOST_MARGIN: Final = 0.5
LASTING: Final = 0.9
PLAN_SECONDS: Final = 0.05
_HALVINGS: Final = 20


@dataclass
class Pace:
    """`work`: seconds a row that came, where `density` of them came in a unit of event time; before
    any was seen, what the cost model expects. `growth`: the power of the density with which that
    grows beyond. `part`: of the work at the most, by the share of the rows that stays; `least`: of
    the work at the least. `ease`: where between them it lies, 0 is at the most."""

    growth: int
    part: Callable[[float], float]
    work: float = 0.0
    least: Callable[[float], float] | None = None
    ease: float = 0.0
    density: float = 0.0
    fixed: float = FIXED_SECONDS
    seen: int = 0
    again: float = 0.0
    margin: float = 0.0
    _planned: float = 0.0
    _before: float = 0.0
    _came_before: int = 0
    _evidence: float = 0.0
    _waiting: tuple[int, float, float] = (0, 0.0, 0.0)

    def saw(self, came: int, kept: int, density: float, seconds: float) -> None:
        """A trigger to which so many rows came, of which these were kept, took so long."""
        if not came:
            return
        if self._planned >= PLAN_SECONDS:
            over = min(seconds / self._planned - 1, MOST_MARGIN)
            self.margin = max(over, LASTING * self.margin)
        share = kept / came
        part = self.part_of(share)
        beside = kept * ROW_SECONDS
        matching = max(seconds - self.fixed - beside, 0.0)
        before, came_before = self._before, self._came_before
        self._before, self._came_before = matching, came
        if came < LESS * came_before:
            self._saw_again(matching - came * part * self._work(density), before)
        elif came < FEW_ROWS:
            left = seconds - beside - self.again * before - came * self._work(density) * part
            self.fixed += DOWN * (max(left, FIXED_SECONDS) - self.fixed)
        else:
            own = max(matching - self.again * before, 0.0)
            if self.seen and came >= ENOUGH_ROWS:
                self._saw_ease(share, own / max(came * self._work(density), 1e-12))
                part = self.part_of(share)
            rows, whole, taken = self._waiting
            self._waiting = rows + came, whole + came * part, taken + own
            if self._waiting[0] >= ENOUGH_ROWS and self._waiting[1] > 0:
                self._measured(density)

    def _saw_again(self, seconds: float, before: float) -> None:
        """Few rows came after many. How long theirs took is not told apart well enough."""
        if before >= LITTLE_SECONDS:
            seen = min(max(seconds / before, 0.0), 1.0)
            self.again += (1.0 if seen > self.again else DOWN) * (seen - self.again)

    def part_of(self, share: float) -> float:
        """What is expected to be left of the work."""
        most = self.part(share)
        if self.least is None or not self.ease or most <= 0:
            return most
        return float(most * (self.least(share) / most) ** self.ease)

    def _saw_ease(self, share: float, part: float) -> None:
        """Of the work so much was left, if a row takes what it took."""
        most = self.part(share)
        least = most if self.least is None else self.least(share)
        if least <= 0 or most < APART * least:
            return
        seen = log(max(part, least) / most) / log(least / most)
        self.ease += (EASIER if seen > self.ease else 1.0) * (max(seen, 0.0) - self.ease)

    def _measured(self, density: float) -> None:
        """Enough rows have come to say what one takes. `density`: of the last ones. Fewer rows than
        before say less, for a trigger may take long for reasons of its own, a new plan say."""
        rows, whole, taken = self._waiting
        self._waiting = (0, 0.0, 0.0)
        measured, expected = taken / whole, self._work(density)
        weight = rows / (rows + self._evidence)
        if 2 * rows >= self._evidence:
            more = (rows - self._evidence) / (rows + self._evidence)
            weight = max(more, DOWN) if self.seen and measured < expected else 1.0
        self.work = expected + weight * (measured - expected)
        self._evidence = max(rows, REMEMBERED * self._evidence)
        self.density = density
        self.seen += 1

    def seconds(self, rows: int, share: float, density: float) -> float:
        """What a trigger with so many rows is expected to take if a share of them stays."""
        work = rows * self._work(density) * self.part_of(share)
        return self.fixed + self.again * self._before + rows * share * ROW_SECONDS + work

    def share(self, rows: int, density: float, budget: float) -> float:
        """The share of the rows that can be had for the budget."""
        found = self._share(rows, density, budget / (1 + self.margin))
        self._planned = self.seconds(rows, found, density)
        return found

    def _share(self, rows: int, density: float, budget: float) -> float:
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
