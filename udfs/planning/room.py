"""How much room an element has among k others in one window, and what happens in it.

With k rows of a sequence in a window, the k - 1 gaps between them and what is left of the window
are alike: together one window, divided at random. An element that the order ties to g of these
k parts lies in a Beta(g, k - g) share of the window, g / k on average. The number of lists and the
chance that nothing blocks are averages over that share, not values at its average: most lists
come from the few combinations that are far apart, and most combinations that are not blocked are
close together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, lgamma, log
from typing import Final

# Above it numbers of lists grow in proportion only: exp would leave the range of floats.
LARGEST_EXPONENT: Final = 200.0
_NEGLIGIBLE: Final = 1e-12


@dataclass(frozen=True)
class Room:
    """`gaps` of the `parts` into which the other rows divide a window."""

    gaps: float
    parts: int

    @property
    def mean(self) -> float:
        return self.gaps / self.parts


def lists(rate: float, room: Room, low: int, high: int | None) -> float:
    """Expected number of lists of low..high elements, at `rate` elements a window.

    >>> lists(3.0, Room(1, 1), 0, 2)  # 1 + 3 + 9 / 2
    8.5
    >>> lists(3.0, Room(1, 2), 1, 2)  # between two rows: 3 / 2 + 9 / 6
    3.0
    """
    if rate > LARGEST_EXPONENT and (high is None or high > LARGEST_EXPONENT):
        return lists(LARGEST_EXPONENT, room, low, high) * rate / LARGEST_EXPONENT
    total = 1.0 if low <= 0 else 0.0
    term, length = 1.0, 0
    while high is None or length < high:
        length += 1
        term *= rate / length * (room.gaps + length - 1) / (room.parts + length - 1)
        if length >= low:
            total += term
            if term <= total * _NEGLIGIBLE and length > rate:
                break
    return min(total, exp(LARGEST_EXPONENT))


def unblocked(rate: float, room: Room) -> float:
    """The chance that none of `rate` elements a window lies in the room.

    >>> round(unblocked(20.0, Room(1, 2)), 3)  # far more than e^-10
    0.05
    """
    if room.gaps >= room.parts:
        return exp(-min(rate * room.mean, LARGEST_EXPONENT))
    rest = room.parts - room.gaps
    if rate > LARGEST_EXPONENT:
        return exp(lgamma(room.parts) - lgamma(rest) - room.gaps * log(rate))
    return exp(-rate) * lists(rate, Room(rest, room.parts), 0, None)
