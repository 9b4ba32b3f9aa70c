"""The deadline of one bucket: matching stops there, with the matches that were found by then.

The engine asks between two blocks of pairs, and between two blocks of the rows that a walk starts
from. Where the deadline has passed, the innermost block raises `DeadlinePassed`, the walk drops the
partial matches that it was about to extend, and ends as if there were no more of them.

Always holds: what a walk gives is complete and tested. Partial matches are only ever dropped, and a
NOT that could not be tested to its end drops the ones that it was tested for. So a cut takes
matches away and invents none. Who relies on a walk being complete has to check once more when it
has ended, as the search for the occurrences of a negated group does (`occurrences.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spark_cep.udfs.events.partials import Partials
    from spark_cep.udfs.events.walk import WalkTask


# A block takes about this long, so that the deadline is passed by little. A block of the usual
# size, 2^17 pairs of numbers, takes 1 to 4 ms; one with a function of the user up to a second.
BLOCK_SECONDS: Final = 0.01
LEAST_BLOCK_PAIRS: Final = 1 << 6
FIRST_BLOCK_PAIRS: Final = 1 << 14
MOST_BLOCK_PAIRS: Final = 1 << 20
# The same for the rows that a walk starts from. Of the first few of them it shows what they cost. A
# block costs about 50 microseconds for each step of the walk, and is the unit of what was left.
START_SECONDS: Final = 0.02
FIRST_STARTS: Final = 1 << 6
GROWTH: Final = 8.0
# Far from the deadline, blocks may take this part of the time that is left.
START_SHARE: Final = 1 / 16
# Rows come by key and time. Where they are expected to take more than this part of the time that is
# left, walks take blocks from so many parts in turn, so that no key and no time always comes last.
NEAR_SHARE: Final = 1 / 4
SECTIONS: Final = 16


class DeadlinePassed(Exception):
    """There is no time left. It never leaves the engine."""


@dataclass
class _Counts:
    """Of a deadline and its parts. `cuts`: walks that were stopped. `depth`: how many walks are
    running inside each other."""

    cuts: int = 0
    begun: int = 0
    left: int = 0
    depth: int = 0


class Deadline:
    """A time at which matching stops, by a clock that can be any function.

    `begun` and `left`: the rows and kept partial matches from which walks started, and those of
    them that were not followed to their end. Only walks that are not part of another one count.
    """

    def __init__(self, at: float, now: Callable[[], float], counts: _Counts | None = None) -> None:
        self._at = at
        self.now = now
        self._counts = _Counts() if counts is None else counts
        self._has_passed = False
        self._block = FIRST_BLOCK_PAIRS
        self._checked = now()

    def part(self, share: float) -> Deadline:
        """An earlier deadline, after this share of the time that is left."""
        return Deadline(self.now() + share * self.seconds_left(), self.now, self._counts)

    def seconds_left(self) -> float:
        return max(self._at - self.now(), 0.0)

    # ---- what was left -------------------------------------------------------------------------

    @property
    def is_cut(self) -> bool:
        return self._counts.cuts > 0

    @property
    def left(self) -> int:
        return self._counts.left

    @property
    def begun(self) -> int:
        return self._counts.begun

    @property
    def left_share(self) -> float:
        """The share of the work that was left: all starts are expected to cause as much."""
        return self.left / self.begun if self.begun else float(self.is_cut)

    def to_dict(self) -> dict[str, int]:
        """The names of `output.DEADLINE_METRICS`."""
        return {"cut": int(self.is_cut), "left": self.left, "starts": self.begun}

    def count_skipped(self, starts: int) -> None:
        """The deadline has passed outside of walks, before so many starts were looked at."""
        self._counts.cuts += 1
        self._counts.begun += starts
        self._counts.left += starts

    # ---- checks --------------------------------------------------------------------------------

    def has_passed(self) -> bool:
        """Once passed, it stays so."""
        self._checked = self.now()
        self._has_passed = self._has_passed or self._checked >= self._at
        return self._has_passed

    def check(self) -> None:
        """Raises DeadlinePassed if it has passed. To be called before a block of pairs."""
        if self.has_passed():
            raise DeadlinePassed

    def count_tested(self, pairs: int) -> None:
        """A block of so many pairs has been tested since the last check: the next ones take about
        BLOCK_SECONDS."""
        seconds = max(self.now() - self._checked, 1e-9)
        fitting = int(pairs * BLOCK_SECONDS / seconds)
        if seconds > BLOCK_SECONDS:
            self._block = max(min(self._block, fitting), LEAST_BLOCK_PAIRS)
        elif fitting >= 2 * self._block and self._block < MOST_BLOCK_PAIRS:
            self._block *= 2

    def block_pairs(self, most: int) -> int:
        """How many pairs the next block may have."""
        return min(self._block, most)

    # ---- the starts of a walk ------------------------------------------------------------------

    def walk(
        self,
        starts: Iterator[WalkTask],
        run: Callable[[Iterator[WalkTask]], Iterator[Partials]],
        count_parked: Callable[[], int],
    ) -> Iterator[Partials]:
        """What `run` gives for the starts, until the deadline. `count_parked`: the partial matches
        of blocks already begun that wait for remote data."""
        counts = self._counts
        blocks = _StartBlocks(self, counts)
        counts.depth += 1
        try:
            yield from run(blocks.of(starts))
        except DeadlinePassed:
            blocks.left = min(blocks.left + count_parked(), blocks.seen)
            counts.cuts += blocks.left > 0 or not blocks.is_open
        finally:
            counts.depth -= 1
        if not counts.depth:
            counts.begun += blocks.seen
            counts.left += blocks.left


class _StartBlocks:
    """The starts of one walk in blocks. `seen`: how many there are; `left`: how many of them are in
    no block that was walked to its end. `is_open`: they were found."""

    def __init__(self, deadline: Deadline, counts: _Counts) -> None:
        self._deadline = deadline
        self._counts = counts
        self._size = FIRST_STARTS
        self.is_open = False
        self.seen = self.left = 0

    def of(self, starts: Iterator[WalkTask]) -> Iterator[WalkTask]:
        tasks = list(starts)
        self.is_open = True
        self.seen = self.left = sum(len(task.partials) for task in tasks)
        for task in tasks:
            yield from self._blocks(task)

    def _blocks(self, task: WalkTask) -> Iterator[WalkTask]:
        size, now = len(task.partials), self._deadline.now
        sections = deque([(0, size)])
        is_split = False
        while sections:
            begin, end = sections.popleft()
            stop = min(begin + self._size, end)
            self._deadline.check()
            began, cuts = now(), self._counts.cuts
            yield task if stop - begin == size else _cut(task, begin, stop)
            # A walk that goes on from what this one gave may have been cut.
            if self._counts.cuts == cuts:
                self.left -= stop - begin
            seconds, left = max(now() - began, 1e-9), self._deadline.seconds_left()
            fits = max(START_SECONDS, START_SHARE * left) / seconds
            self._size = max(int(self._size * min(max(fits, 1 / GROWTH), GROWTH)), 1)
            expected = seconds * (end - stop) / max(stop - begin, 1)
            if stop < end and expected > NEAR_SHARE * left and not is_split:
                sections.extend(_split(stop, end))
                is_split = True
            elif stop < end:
                sections.append((stop, end))


def _split(begin: int, end: int) -> Iterator[tuple[int, int]]:
    size = end - begin
    bounds = [begin + size * place // SECTIONS for place in range(SECTIONS + 1)]
    return ((low, high) for low, high in pairwise(bounds) if low < high)


def _cut(task: WalkTask, begin: int, stop: int) -> WalkTask:
    return replace(task, partials=task.partials.take(slice(begin, stop)))
