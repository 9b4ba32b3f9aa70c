"""Invariants compiled into comparisons of monitored values: one check in constant time.

Both sides of a comparison are sums of products of rates and selectivities. All products of all
invariants are one matrix of powers: times the logarithms of the values it gives the logarithm of
each product, and a matrix of weights then gives, for each invariant, by how much it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.planning.cost_model import UNKNOWN_SELECTIVITY
from spark_cep.udfs.planning.monomials import Rate, Selectivity

if TYPE_CHECKING:
    from spark_cep.udfs.planning.invariants import Comparison
    from spark_cep.udfs.planning.monomials import Monitored
    from spark_cep.udfs.program import Estimates

Array = npt.NDArray[Any]

# Sides that differ by no more than this share are equal: their sums are rounded.
ROUNDING: Final = 1e-9
# Stands for zero, whose logarithm is not finite; products that contain it are as good as zero.
_TINY: Final = 1e-300
_LOG_TINY: Final = log(_TINY)
_NOTHING: Final = 1e-200


class CompiledInvariants:
    """The invariants of a plan, for all its branches, with their distance.

    `hold` never misses a violation but for a tie at rounding. What it reports as violated is
    evaluated exactly by its caller, for the text; there a tie may turn out to hold.
    """

    def __init__(self, invariants: Sequence[Comparison], distance: float) -> None:
        self._distance = distance
        sides = [(each, each.sums()) for each in invariants]
        self._others = [each for each, sums in sides if sums is None]
        known = [(each, sums) for each, sums in sides if sums is not None]
        products = list(dict.fromkeys(p for _, sums in known for side in sums for p in side))
        self._arrange_values({factor for powers in products for factor, _ in powers})
        values = (*self._rates, *self._selectivities, *self._derived)
        column = {factor: place for place, factor in enumerate(values)}
        self._inputs = [[column[each] for each in factor.inputs] for factor in self._derived]
        # The last row is the empty product, one.
        self._powers = np.zeros((len(products) + 1, len(values)))
        for row, powers in enumerate(products):
            for factor, power in powers:
                self._powers[row, column[factor]] = power
        row_of = {powers: row for row, powers in enumerate(products)}
        self._weights = np.zeros((len(known), len(products) + 1))
        for row, (each, (chosen, other)) in enumerate(known):
            tie = 1 + ROUNDING if each.wins_ties else 1 - ROUNDING
            for powers, weight in other.items():
                self._weights[row, row_of[powers]] += (1 + distance) * tie * weight
            for powers, weight in chosen.items():
                self._weights[row, row_of[powers]] -= weight
            # If both sides are zero, this is what decides.
            self._weights[row, -1] = _NOTHING if each.wins_ties else -_NOTHING
        self._divisors = np.flatnonzero((self._powers < 0).any(axis=0)).tolist()

    def _arrange_values(self, factors: set[Monitored]) -> None:
        self._derived = [f for f in factors if not isinstance(f, Rate | Selectivity)]
        measured = {f for f in factors if isinstance(f, Rate | Selectivity)}
        measured.update(each for factor in self._derived for each in factor.inputs)
        self._rates = [f for f in measured if isinstance(f, Rate)]
        self._selectivities = [f for f in measured if isinstance(f, Selectivity)]
        self._known_rates = [(f.variable, f.unknown) for f in self._rates]
        self._known_selectivities = [f.condition for f in self._selectivities]
        self._latest: list[tuple[list[float], float]] = [([], 0.0) for _ in self._derived]

    def hold(self, estimates: Estimates) -> bool:
        """Whether all invariants hold; False where that is not certain."""
        if getattr(estimates, "joint", None):  # conditions that are not independent
            return False
        if len(self._weights) and not self._compare(estimates):
            return False
        return all(each.holds(estimates, self._distance) for each in self._others)

    def _compare(self, estimates: Estimates) -> bool:
        rates, selectivities = estimates.rates, estimates.selectivities
        values = [rates.get(variable, unknown) for variable, unknown in self._known_rates]
        for index in self._known_selectivities:
            values.append(selectivities.get(index, UNKNOWN_SELECTIVITY))
        if self._derived:
            values += self._derive(values, estimates)
        if self._divisors and any(values[place] <= 0 for place in self._divisors):
            return False
        logarithms = [log(value) if value > _TINY else _LOG_TINY for value in values]
        margins = self._weights.dot(np.exp(self._powers.dot(logarithms)))
        return bool(margins.min() >= 0)

    def _derive(self, values: Sequence[float], estimates: Estimates) -> list[float]:
        """The numbers of lists and unblocked shares, computed again where an input has changed."""
        for number, factor in enumerate(self._derived):
            inputs = [values[place] for place in self._inputs[number]]
            if inputs != self._latest[number][0]:
                self._latest[number] = inputs, factor.value(estimates)
        return [value for _, value in self._latest]
