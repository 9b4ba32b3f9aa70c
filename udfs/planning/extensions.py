"""In how many ways elements of a partial order can be lined up: e(S), its linear extensions.

That is where order enters the cost model: of the k! ways in which k independent rows can follow
each other, e(S) are allowed. Sets are bit masks, bit i for element i, and every count is kept, so
a set is counted once whoever asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import comb


def members(elements: int) -> Iterator[int]:
    """The numbers of the bits that are set, ascending.

    >>> list(members(0b1011))
    [0, 1, 3]
    """
    while elements:
        lowest = elements & -elements
        yield lowest.bit_length() - 1
        elements ^= lowest


class Extensions:
    """`before[i]`: the elements that must come before i, transitively.

    >>> Extensions([0b000, 0b001, 0b011]).count(0b111)  # a sequence
    1
    >>> Extensions([0, 0, 0b011]).count(0b111)  # two in any order, then the third
    2
    """

    def __init__(self, before: Sequence[int]) -> None:
        after = [0] * len(before)
        for element, earlier in enumerate(before):
            for other in members(earlier):
                after[other] |= 1 << element
        self._before = tuple(before)
        self._after = tuple(after)
        self._related = tuple(b | a for b, a in zip(before, after, strict=True))
        self._counts = {0: 1}

    def count(self, elements: int) -> int:
        known = self._counts.get(elements)
        if known is None:
            known = self._counts[elements] = self._counted(elements)
        return known

    def sides(self, element: int, others: int) -> tuple[bool, bool]:
        """Whether any of the others comes before the element, and whether any comes after it."""
        return bool(self._before[element] & others), bool(self._after[element] & others)

    def _counted(self, elements: int) -> int:
        # Parts that have no order with each other are shuffled freely. Without this, unordered
        # elements would mean every subset of them.
        part = self._connected(elements)
        if part != elements:
            rest = elements & ~part
            shuffles = comb(elements.bit_count(), part.bit_count())
            return shuffles * self.count(part) * self.count(rest)
        if part.bit_count() == 1:
            return 1
        # Last elements that follow the same ones are alike: one is tried in place of all.
        last = [i for i in members(elements) if not self._after[i] & elements]
        alike = Counter(self._before[i] & elements for i in last)
        one = {self._before[i] & elements: i for i in last}
        return sum(alike[b] * self.count(elements & ~(1 << i)) for b, i in one.items())

    def _connected(self, elements: int) -> int:
        """The lowest element and all that are tied to it by order, step by step."""
        part, fresh = 0, elements & -elements
        while fresh:
            part |= fresh
            reached = 0
            for element in members(fresh):
                reached |= self._related[element]
            fresh = reached & elements & ~part
        return part
