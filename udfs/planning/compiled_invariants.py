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
from spark_cep.udfs.planning.monomials import Least, Rate, Selectivity

if TYPE_CHECKING:
    from spark_cep.udfs.planning.invariants import Comparison
    from spark_cep.udfs.planning.monomials import Monitored, Side, Sum
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
        plain: list[tuple[Sum, Sum, float]] = []
        with_least: list[tuple[Side, Side, float]] = []
        for each, sums in sides:
            if sums is None:
                continue
            bound = (1 + distance) * (1 + ROUNDING if each.wins_ties else 1 - ROUNDING)
            chosen, other = sums
            if isinstance(chosen, Least) or isinstance(other, Least):
                with_least.append((chosen, other, bound))
            else:
                plain.append((chosen, other, bound))
        self._trees = LeastTable(with_least)
        compared = [side for chosen, other, _ in plain for side in (chosen, other)]
        products = list(dict.fromkeys(p for each in (*compared, *self._trees.sums) for p in each))
        self._arrange_values({factor for powers in products for factor, _ in powers})
        values = (*self._rates, *self._selectivities, *self._derived)
        column = {factor: place for place, factor in enumerate(values)}
        self._inputs = [[column[each] for each in factor.inputs] for factor in self._derived]
        # The last row is the empty product, one.
        self._powers = np.zeros((len(products) + 1, len(values)))
        for row, powers in enumerate(products):
            for factor, power in powers:
                self._powers[row, column[factor]] = power
        self._divisors = np.flatnonzero((self._powers < 0).any(axis=0)).tolist()
        row_of = {powers: row for row, powers in enumerate(products)}
        self._weights = np.zeros((len(plain), len(products) + 1))
        for row, (chosen, other, bound) in enumerate(plain):
            for powers, weight in other.items():
                self._weights[row, row_of[powers]] += bound * weight
            for powers, weight in chosen.items():
                self._weights[row, row_of[powers]] -= weight
            # If both sides are zero, this is what decides.
            self._weights[row, -1] = _NOTHING if bound > 1 + distance else -_NOTHING
        self._tree_weights = np.zeros((len(self._trees.sums), len(products) + 1))
        for row, part in enumerate(self._trees.sums):
            for powers, weight in part.items():
                self._tree_weights[row, row_of[powers]] += weight

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
        if estimates.joint:  # what correlated conditions keep is no product
            return False
        if len(self._powers) > 1 and not self._compare(estimates):
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
        products = np.exp(self._powers.dot(logarithms))
        if len(self._weights) and self._weights.dot(products).min() < 0:
            return False
        if not len(self._tree_weights):
            return True
        return self._trees.hold(self._tree_weights.dot(products).tolist())

    def _derive(self, values: Sequence[float], estimates: Estimates) -> list[float]:
        """The numbers of lists and unblocked shares, computed again where an input has changed."""
        for number, factor in enumerate(self._derived):
            inputs = [values[place] for place in self._inputs[number]]
            if inputs != self._latest[number][0]:
                self._latest[number] = inputs, factor.value(estimates)
        return [value for _, value in self._latest]


class LeastTable:
    """Comparisons with the least of some sums: `sums` are given values by a matrix, then each least
    is computed from what stands before it in one list."""

    def __init__(self, comparisons: Sequence[tuple[Side, Side, float]]) -> None:
        self.sums: list[Sum] = []
        self._least: list[list[tuple[int, int, int]]] = []
        self._places: dict[int, int] = {}
        for chosen, other, _ in comparisons:
            self._find_sums(chosen)
            self._find_sums(other)
        self._zero = len(self.sums)
        self._rows = [
            (self._place(chosen), self._place(other), bound) for chosen, other, bound in comparisons
        ]

    def _find_sums(self, side: Side) -> None:
        if id(side) in self._places:
            return
        self._places[id(side)] = -1
        if isinstance(side, Least):
            for option in side.options:
                for part in option:
                    self._find_sums(part)
        elif side:
            self._places[id(side)] = len(self.sums)
            self.sums.append(side)

    def _place(self, side: Side) -> int:
        if not isinstance(side, Least):
            return self._places[id(side)] if side else self._zero
        if self._places[id(side)] < 0:
            options = []
            for option in side.options:
                one, two, three = [self._place(part) for part in (*option, {}, {})][:3]
                options.append((one, two, three))
            self._places[id(side)] = self._zero + 1 + len(self._least)
            self._least.append(options)
        return self._places[id(side)]

    def hold(self, values: list[float]) -> bool:
        """`values`: of the sums."""
        values.append(0.0)
        for options in self._least:
            values.append(min([values[a] + values[b] + values[c] for a, b, c in options]))
        return all(values[chosen] < bound * values[other] for chosen, other, bound in self._rows)
