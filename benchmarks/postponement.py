"""Until which class of partial matches a condition on a value under way is better postponed than
waited for: EIRES Algorithm 4 and Equation 8.

Postponing hides the time that the value takes, and lets partial matches live that the condition
might have ended. Pure functions on numbers: rates per second and seconds in the paper, but any
unit of time does, so that an engine that works in blocks can use what it counts.

Always holds: classes are numbered along the pattern; the classes between j and m, m not included,
are those whose partial matches are counted (Algorithm 4 would count from the first class on; the
text of the paper and Equation 8 do not).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

MILLISECOND = 1e-3


@dataclass(frozen=True)
class GrowthRates:
    """By class: `counts`, the partial matches expected (#P); `rates`, the arrivals of events that
    make a partial match of the class, but for conditions on fetched values. `seconds`: what one
    more partial match costs."""

    counts: tuple[float, ...]
    rates: tuple[float, ...]
    seconds: float

    @cached_property
    def _known(self) -> dict[tuple[int, int], tuple[int, ...]]:
        return {}

    def later(self, level: int, latency: float) -> tuple[int, ...]:
        """`useful_postponements` for a latency, rounded up to milliseconds and kept, as long as the
        figures do."""
        key = (level, -int(-latency // MILLISECOND))
        if key not in self._known:
            self._known[key] = useful_postponements(level, key[1] * MILLISECOND, self)
        return self._known[key]


def development_time(level: int, later: int, rates: Sequence[float]) -> float:
    """E(j, m): the time in which a partial match of class `level` becomes one of class `later`."""
    total = sum(rates[level + 1 : later + 1])
    return 1 / total if total > 0 else inf


def hidden_latency(level: int, later: int, latency: float, growth: GrowthRates) -> float:
    """The part of the latency that postponing from `level` to `later` hides."""
    return min(development_time(level, later, growth.rates), latency)


def extra_cost(level: int, later: int, growth: GrowthRates) -> float:
    """Equation 8: the time that the additional partial matches cost."""
    time = development_time(level, later, growth.rates)
    cost = growth.seconds
    for between in range(level + 1, later):
        grown = growth.counts[between] * growth.rates[between + 1]
        cost *= grown * time if grown else 0.0
    return cost


def useful_postponements(level: int, latency: float, growth: GrowthRates) -> tuple[int, ...]:
    """The later classes up to which postponing pays."""
    return tuple(
        later
        for later in range(level + 1, len(growth.rates))
        if hidden_latency(level, later, latency, growth) > extra_cost(level, later, growth)
    )
