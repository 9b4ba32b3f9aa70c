"""Statistics kept in a worker while it matches: sums over a sliding window of advances.

Rates are exact: candidates per window of a key, as counted. Selectivities come from the pairs
that were tested anyway, so they cost nothing; a condition that was hardly tested keeps what was
last known of it. An advance adds its counts and takes those of the oldest one away: the work is
proportional to the number of variables and conditions, whatever the window, and so is the memory
for each advance remembered.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.program import Estimates

if TYPE_CHECKING:
    from collections.abc import Iterable

# With n tests a selectivity of one half is known to 1 / (2 sqrt(n)): here to 5 %.
ENOUGH_TESTS: Final = 100


@dataclass(frozen=True)
class _Advance:
    counts: Mapping[int, int]
    stretches: int
    conditions: Mapping[int, tuple[int, int]]


@dataclass
class Observed:
    """The latest `advances`. `initial` is what was known before the first."""

    initial: Estimates
    advances: int = 8
    _latest: deque[_Advance] = field(default_factory=deque)
    _counts: Counter[int] = field(default_factory=Counter)
    _tested: Counter[int] = field(default_factory=Counter)
    _kept: Counter[int] = field(default_factory=Counter)
    _stretches: int = 0
    _selectivities: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._selectivities.update(self.initial.selectivities)

    def add(
        self,
        counts: Mapping[int, int],
        stretches: int,
        conditions: Mapping[int, tuple[int, int]],
    ) -> None:
        """What an advance saw: candidates of each variable, windows of keys, and for each
        condition how many combinations were tested and how many of them it kept."""
        advance = _Advance(dict(counts), stretches, dict(conditions))
        self._latest.append(advance)
        self._change(advance, 1)
        if len(self._latest) > self.advances:
            self._change(self._latest.popleft(), -1)
        self._know(conditions)

    def _change(self, advance: _Advance, sign: int) -> None:
        self._stretches += sign * advance.stretches
        for variable, count in advance.counts.items():
            self._counts[variable] += sign * count
        for index, (tested, kept) in advance.conditions.items():
            self._tested[index] += sign * tested
            self._kept[index] += sign * kept

    def _know(self, conditions: Iterable[int]) -> None:
        for index in conditions:
            tested = self._tested[index]
            if tested >= ENOUGH_TESTS:
                # Nothing kept of n is less than one of n, but it is not never.
                self._selectivities[index] = max(self._kept[index], 0.5) / tested

    def estimates(self) -> Estimates:
        """What is known now. Without any window seen yet, what was known before."""
        rates = dict(self.initial.rates)
        if self._stretches:
            rates |= dict.fromkeys(rates, 0.0)
            rates |= {v: count / self._stretches for v, count in self._counts.items()}
        return Estimates(
            rates, dict(self._selectivities), self.initial.windows, self.initial.places
        )
