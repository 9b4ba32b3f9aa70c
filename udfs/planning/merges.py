"""What an arriving event meets, and the cheapest order to merge groups when it is the final one.

A group is a slot whose events wait, or a shape whose partial matches are kept. A merge begins
with the group of the final event, where there is one such slot, and joins the others one after
the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.model import shape_slots

if TYPE_CHECKING:
    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.planning.figures import Figures
    from spark_cep.udfs.program import Shape

# How many sets of merged groups are followed at a time: all of them up to nine groups. Beyond it
# fewer, as the work of all partitions is cubic: 40 slots took 15 s with 70 sets, 1.3 s so.
_WIDTH: Final = 70
_FOLLOWED: Final = 9


class Merges:
    """`finals`: the slots that can be final, and how often each is."""

    def __init__(self, figures: Figures, costs: Costs, finals: Mapping[int, float]) -> None:
        self.finals = finals
        self._figures = figures
        self._costs = costs
        self._known: dict[tuple[int, int], float] = {}

    def eager(self, before: int, slot: int) -> float:
        """Eq. 6: an event of the slot is joined with the partial matches of those before it."""
        rate = self._figures.rate(slot)
        return self._time(before, 1 << slot) / rate if rate > 0 else 0.0

    def _in_play(self, final: int, both: int) -> float:
        """What share of a window's work on the slots `both` is done when a final event has come:
        of its slot nothing else is in play; of the others all in the window before it."""
        order = self._figures.model.order
        if not both >> final & 1:
            # Per window of time k slots begin k times as many combinations as lie in one window.
            return 1 / both.bit_count()
        rate = self._figures.rate(final)
        latest = order.count(both & ~(1 << final)) / order.count(both)
        return latest / rate if rate > 0 else 0.0

    def _time(self, left: int, right: int) -> float:
        """Per window of time. A pair is looked at even where there is nothing to test."""
        joined = self._figures.join(left, right)
        tested = max(1, self._tested(left, right))
        return joined.pairs * tested * self._costs.pair + joined.partials * self._costs.result

    def _tested(self, left: int, right: int) -> int:
        model = self._figures.model
        return sum(
            bool(a.slots & left and a.slots & right) and not model.is_looked_up(a, left, right)
            for a in model.within(left | right)
        )

    def cheapest(self, groups: Sequence[Shape]) -> tuple[float, Shape]:
        """The time of a merge, on average over the finals, and the shape that it runs."""
        slots = {shape_slots(group): group for group in groups}
        states = {mask: (0.0, group) for mask, group in slots.items()}
        if len(self.finals) == 1:
            (final,) = self.finals
            states = {mask: state for mask, state in states.items() if mask >> final & 1}
        width = max(1, int(_WIDTH * min(1.0, _FOLLOWED / len(groups)) ** 3))
        for _ in range(len(groups) - 1):
            grown: dict[int, tuple[float, Shape]] = {}
            for mask, (time, shape) in states.items():
                for other, group in slots.items():
                    if not mask & other:
                        total = time + self.join(mask, other)
                        both = mask | other
                        if both not in grown or total < grown[both][0]:
                            grown[both] = total, (shape, group)
            states = dict(nsmallest(width, grown.items(), key=lambda item: item[1][0]))
        (found,) = states.values()
        return found

    def join(self, left: int, right: int) -> float:
        """Eq. 9: a join when a final event has come, whichever that is."""
        known = self._known.get((left, right))
        if known is None:
            both = left | right
            in_play = sum(share * self._in_play(f, both) for f, share in self.finals.items())
            known = self._known[left, right] = self._time(left, right) * in_play
        return known
