"""The counting behind the cost model: linear extensions, and lists within a share of a window.

Of the k! orders of k independent rows, a pattern allows e(S), the linear extensions of its partial
order. Lists and negations only concern rows that lie between others: the part of the window that
is left to them is a `WindowShare`. Sets are bit masks, bit i for element i.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb, exp, lgamma, log
from typing import Final


def bit_numbers(elements: int) -> Iterator[int]:
    """The numbers of the bits that are set, ascending.

    >>> list(bit_numbers(0b1011))
    [0, 1, 3]
    """
    while elements:
        lowest = elements & -elements
        yield lowest.bit_length() - 1
        elements ^= lowest


# ---- linear extensions -------------------------------------------------------------------------


class LinearExtensions:
    """The linear extensions of every subset of a partial order. Each set is counted once.

    `before[i]` are the elements that must come before i, transitively.

    >>> LinearExtensions([0b000, 0b001, 0b011]).count(0b111)  # a sequence
    1
    >>> LinearExtensions([0, 0, 0b011]).count(0b111)  # two in any order, then the third
    2
    """

    def __init__(self, before: Sequence[int]) -> None:
        after = [0] * len(before)
        for element, earlier in enumerate(before):
            for other in bit_numbers(earlier):
                after[other] |= 1 << element
        self._before = tuple(before)
        self._after = tuple(after)
        self._related = tuple(b | a for b, a in zip(before, after, strict=True))
        self._counts = {0: 1}

    def count(self, elements: int) -> int:
        """e(S) of a set of elements."""
        known = self._counts.get(elements)
        if known is None:
            known = self._counts[elements] = self._compute(elements)
        return known

    def sides(self, element: int, others: int) -> tuple[bool, bool]:
        """Whether any of the others must come before the element, and whether any must come
        after it."""
        return bool(self._before[element] & others), bool(self._after[element] & others)

    def _compute(self, elements: int) -> int:
        # Components that have no order between them are shuffled freely. Without this step,
        # unordered elements would need a count for every subset of them.
        part = self._component(elements)
        if part != elements:
            rest = elements & ~part
            shuffles = comb(elements.bit_count(), part.bit_count())
            return shuffles * self.count(part) * self.count(rest)
        if part.bit_count() == 1:
            return 1
        # Maximal elements with the same predecessors are interchangeable: one is counted for all.
        last = [i for i in bit_numbers(elements) if not self._after[i] & elements]
        alike = Counter(self._before[i] & elements for i in last)
        one = {self._before[i] & elements: i for i in last}
        return sum(alike[b] * self.count(elements & ~(1 << i)) for b, i in one.items())

    def _component(self, elements: int) -> int:
        """The lowest element and all that the order connects it to, directly or not."""
        part, fresh = 0, elements & -elements
        while fresh:
            part |= fresh
            reached = 0
            for element in bit_numbers(fresh):
                reached |= self._related[element]
            fresh = reached & elements & ~part
        return part


# ---- shares of a window ------------------------------------------------------------------------

# Above this, numbers of lists grow in proportion only: exp would leave the range of floats.
LARGEST_EXPONENT: Final = 200.0
_NEGLIGIBLE: Final = 1e-12


@dataclass(frozen=True)
class WindowShare:
    """`gaps` of the `parts` into which the other rows divide a window.

    With k rows of a sequence in a window, the k - 1 gaps between them and the remainder of the
    window are alike: together they are one window, divided at random. An element that the order
    confines to g of these k parts lies in a Beta(g, k - g) share of the window, g / k on average.
    The number of lists and the probability that nothing blocks are averages over that
    distribution, not values at its mean: most lists come from the few combinations that are far
    apart, and most combinations that are not blocked are close together.
    """

    gaps: float
    parts: int

    @property
    def mean(self) -> float:
        return self.gaps / self.parts


def expected_lists(rate: float, share: WindowShare, low: int, high: int | None) -> float:
    """Expected number of lists of `low` to `high` elements, at `rate` elements per window.

    >>> expected_lists(3.0, WindowShare(1, 1), 0, 2)  # 1 + 3 + 9 / 2
    8.5
    >>> expected_lists(3.0, WindowShare(1, 2), 1, 2)  # between two rows: 3 / 2 + 9 / 6
    3.0
    """
    if rate > LARGEST_EXPONENT and (high is None or high > LARGEST_EXPONENT):
        return expected_lists(LARGEST_EXPONENT, share, low, high) * rate / LARGEST_EXPONENT
    total = 1.0 if low <= 0 else 0.0
    term, length = 1.0, 0
    while high is None or length < high:
        length += 1
        term *= rate / length * (share.gaps + length - 1) / (share.parts + length - 1)
        if length >= low:
            total += term
            if term <= total * _NEGLIGIBLE and length > rate:
                break
    return min(total, exp(LARGEST_EXPONENT))


def unblocked_share(rate: float, share: WindowShare) -> float:
    """The probability that none of `rate` elements per window lies in the share.

    >>> round(unblocked_share(20.0, WindowShare(1, 2)), 3)  # far more than e^-10
    0.05
    """
    if share.gaps >= share.parts:
        return exp(-min(rate * share.mean, LARGEST_EXPONENT))
    rest = share.parts - share.gaps
    if rate > LARGEST_EXPONENT:
        return exp(lgamma(share.parts) - lgamma(rest) - share.gaps * log(rate))
    return exp(-rate) * expected_lists(rate, WindowShare(rest, share.parts), 0, None)
