"""The numbers of the cost model as products of monitored values, for checks in constant time.

A rate and a selectivity are monitored values; so are the number of lists and the share that a
negation leaves, which are functions of them. Every cardinality is a coefficient times a product of
monitored values, a *monomial*, and every time is a sum of monomials. What does not depend on
statistics is computed once, when a comparison is compiled. The formulas are those of
`CardinalityEstimator`; its cap is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import factorial, prod
from typing import TYPE_CHECKING, NamedTuple, cast

from spark_cep.udfs.planning.combinatorics import (
    WindowShare,
    bit_numbers,
    expected_lists,
    unblocked_share,
)
from spark_cep.udfs.planning.cost_model import UNKNOWN_RATE, UNKNOWN_SELECTIVITY, pair_seconds

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.planning.conditions import ConditionModel, NegationModel
    from spark_cep.udfs.planning.cost_model import BranchModel
    from spark_cep.udfs.program import Estimates, Shape


# ---- monitored values --------------------------------------------------------------------------


class Rate(NamedTuple):
    """The rate of a variable, or what is assumed without one."""

    variable: int
    unknown: float = UNKNOWN_RATE

    def value(self, estimates: Estimates) -> float:
        return estimates.rates.get(self.variable, self.unknown)


class Selectivity(NamedTuple):
    """The selectivity of a condition."""

    condition: int

    def value(self, estimates: Estimates) -> float:
        return estimates.selectivities.get(self.condition, UNKNOWN_SELECTIVITY)


class ListNumber(NamedTuple):
    """The number of lists of at least `low` elements in a share of the window; without a share, of
    lists that continue from a first element. `each` and `following`: the conditions on elements,
    on all of them and from the second one on. `rate`: a product."""

    rate: Product
    each: tuple[Selectivity, ...]
    following: tuple[Selectivity, ...]
    share: WindowShare | None
    low: int
    high: int | None

    @property
    def inputs(self) -> tuple[Measured, ...]:
        return (*self.rate.inputs, *self.each, *self.following)

    def value(self, estimates: Estimates) -> float:
        each = prod(one.value(estimates) for one in self.each)
        following = prod(one.value(estimates) for one in self.following)
        elements = self.rate.value(estimates) * each
        if self.share is None:
            high = None if self.high is None else self.high - 1
            whole = WindowShare(1, 1)
            return each * expected_lists(elements * following, whole, self.low - 1, high)
        if following <= 0:
            return elements * self.share.mean if self.low <= 1 else 0.0
        lists = expected_lists(elements * following, self.share, self.low, self.high)
        return lists / following


class Alternatives(NamedTuple):
    """The iterations of a repeated OR: the sum of those of its parts, each of them a product."""

    rates: tuple[Product, ...]

    @property
    def inputs(self) -> tuple[Measured, ...]:
        return tuple(each for rate in self.rates for each in rate.inputs)

    def value(self, estimates: Estimates) -> float:
        return sum(rate.value(estimates) for rate in self.rates)


class Unblocked(NamedTuple):
    """The share of the combinations that no row of a negation blocks. `blockers`: a product."""

    blockers: Product
    share: WindowShare

    @property
    def inputs(self) -> tuple[Measured, ...]:
        return self.blockers.inputs

    def value(self, estimates: Estimates) -> float:
        return unblocked_share(self.blockers.value(estimates), self.share)


Measured = Rate | Selectivity
Monitored = Rate | Selectivity | Alternatives | ListNumber | Unblocked
Powers = frozenset[tuple[Monitored, int]]
# A sum of monomials: the weight of each product of powers.
Sum = Mapping[Powers, float]


@dataclass(frozen=True, eq=False)
class Least:
    """The least of some options, each the sum of up to three parts: what the best plan costs."""

    options: tuple[tuple[Side, ...], ...]


# What a comparison compares.
Side = Sum | Least


class Product(NamedTuple):
    """A coefficient times measured values, some of them several times, and sums of products."""

    coefficient: float
    factors: tuple[Measured | Alternatives, ...]

    @property
    def inputs(self) -> tuple[Measured, ...]:
        found: list[Measured] = []
        for factor in self.factors:
            found += factor.inputs if isinstance(factor, Alternatives) else (factor,)
        return tuple(found)

    def value(self, estimates: Estimates) -> float:
        return self.coefficient * prod(factor.value(estimates) for factor in self.factors)


class Monomial:
    """A coefficient times powers of monitored values."""

    def __init__(self, coefficient: float, factors: Iterable[Monitored] = ()) -> None:
        self.coefficient = coefficient
        self.powers: dict[Monitored, int] = {}
        for factor in factors:
            self.powers[factor] = self.powers.get(factor, 0) + 1

    def times(self, *others: Monomial, power: int = 1) -> Monomial:
        """The product with other monomials, or with their reciprocals (`power` -1)."""
        product = Monomial(self.coefficient)
        product.powers = dict(self.powers)
        for other in others:
            product.coefficient *= other.coefficient**power
            for factor, count in other.powers.items():
                product.powers[factor] = product.powers.get(factor, 0) + power * count
        return product

    def as_sum(self, weight: float = 1.0) -> Sum:
        powers = frozenset((factor, power) for factor, power in self.powers.items() if power)
        return {powers: weight * self.coefficient}


def add(sums: Iterable[Sum]) -> Sum:
    total: dict[Powers, float] = {}
    for each in sums:
        for powers, weight in each.items():
            total[powers] = total.get(powers, 0.0) + weight
    return total


# ---- the numbers of a branch -------------------------------------------------------------------


class BranchMonomials:
    """The numbers of a branch, as `CardinalityEstimator` and `TimeEstimator` compute them.
    `best_runs` is the memory of the planner that splits runs of slots."""

    def __init__(self, model: BranchModel) -> None:
        self.model = model
        self._cardinalities: dict[int, Monomial] = {}
        self._joins: dict[tuple[int, int, OperationCosts], Sum] = {}
        self._shapes: dict[tuple[Shape, OperationCosts], Sum] = {}
        self.best_runs: dict[tuple[int, int, OperationCosts], Least] = {}
        self._rates = [self._rate(slot) for slot in range(model.size)]

    # -- one slot --------------------------------------------------------------------------------

    def _rate(self, slot: int) -> Product:
        bodies = self.model.bodies.get(slot)
        if bodies is None:
            return Product(1.0, (Rate(self.model.branch.slots[slot].variables[0]),))
        rates = tuple(self._group_rate(body) for body in bodies)
        return rates[0] if len(rates) == 1 else Product(1.0, (Alternatives(rates),))

    @staticmethod
    def _group_rate(body: BranchModel) -> Product:
        """The elements of a group: its combinations, as it has neither lists nor negations."""
        once = [Selectivity(c.index) for c in body.within(body.all)]
        rates = [Rate(body.branch.slots[inner].variables[0]) for inner in range(body.size)]
        arranged = body.order.count(body.all) / factorial(body.size - 1)
        return Product(arranged, (*rates, *once))

    def weight(self, slot: int, bound: int) -> Monomial:
        decided = list(self.model.decided(slot, bound))
        if not self.model.lists >> slot & 1:
            rate = self._rates[slot]
            tests = (Selectivity(condition.index) for condition in decided)
            coefficient = rate.coefficient * self.model.choices(slot, bound)
            return Monomial(coefficient, (*rate.factors, *tests))
        if not bound:
            return self.cardinality(1 << slot)
        low = self.model.branch.slots[slot].low
        share = self._window_share(slot, self._anchors(bound))
        lists = self._list_number(slot, decided, share, low)
        return Monomial(bound.bit_count(), [lists, *_complete(decided)])

    def start(self, slot: int) -> Monomial:
        if self.model.lists >> slot & 1:
            return self._combinations(1 << slot, [], growing=slot)
        return self.cardinality(1 << slot)

    # -- sets of slots ---------------------------------------------------------------------------

    def cardinality(self, slots: int) -> Monomial:
        known = self._cardinalities.get(slots)
        if known is None:
            negations = [n for n in self.model.negation_models if not n.needs & ~slots]
            known = self._cardinalities[slots] = self._combinations(slots, negations)
        return known

    def _combinations(
        self,
        slots: int,
        negations: Collection[NegationModel],
        without: Collection[int] = (),
        growing: int = -1,
    ) -> Monomial:
        model, anchors = self.model, self._anchors(slots)
        coefficient = model.order.count(anchors) / factorial(anchors.bit_count() - 1)
        factors: list[Monitored] = []
        for slot in bit_numbers(anchors):
            coefficient *= self._rates[slot].coefficient
            factors += self._rates[slot].factors
        used = [c for c in model.within(slots) if c.index not in without]
        factors += [Selectivity(c.index) for c in used if c.keeps == "once"]
        for slot in bit_numbers(slots & model.lists):
            own = [c for c in used if c.keeps != "once" and c.owner == slot]
            low = 1 if slot == growing else model.branch.slots[slot].low
            share = None if anchors >> slot & 1 else self._window_share(slot, anchors)
            factors.append(self._list_number(slot, own, share, low))
            if slot != growing:
                factors += _complete(own)
        factors += [self._unblocked(negation, anchors) for negation in negations]
        return Monomial(coefficient, factors)

    def _list_number(
        self,
        slot: int,
        conditions: Collection[ConditionModel],
        share: WindowShare | None,
        low: int,
    ) -> ListNumber:
        each = tuple(Selectivity(c.index) for c in conditions if c.keeps in {"once", "each"})
        following = tuple(Selectivity(c.index) for c in conditions if c.keeps == "prev")
        high = self.model.branch.slots[slot].high
        return ListNumber(self._rates[slot], each, following, share, low, high)

    def _anchors(self, slots: int) -> int:
        return slots & ~self.model.lists or slots & -slots

    def _window_share(self, element: int, anchors: int) -> WindowShare:
        order = self.model.order
        gaps = order.count(anchors | 1 << element) / order.count(anchors)
        return WindowShare(gaps, anchors.bit_count())

    def _unblocked(self, negation: NegationModel, anchors: int) -> Unblocked:
        tests = (Selectivity(index) for index in negation.conditions)
        share = self._window_share(negation.element, anchors)
        group = self.model.negated.get(negation.element)
        if group is None:
            return Unblocked(Product(1.0, (Rate(negation.variable, 0.0), *tests)), share)
        rate = self._group_rate(group)
        in_share = rate.coefficient * share.mean ** (group.size - 1)
        return Unblocked(Product(in_share, (*rate.factors, *tests)), share)

    # -- joins -----------------------------------------------------------------------------------

    def time(self, shape: Shape, costs: OperationCosts) -> Sum:
        """The time of a shape, as `TimeEstimator.shape` computes it."""
        known = self._shapes.get((shape, costs))
        if known is None:
            joins = _joins_of(shape)[1]
            known = add(self.join(left, right, costs) for left, right in joins)
            self._shapes[shape, costs] = known
        return known

    def join(self, left: int, right: int, costs: OperationCosts) -> Sum:
        """The time of a join, as `TimeEstimator.join` computes it."""
        known = self._joins.get((left, right, costs))
        if known is None:
            is_list = right.bit_count() == 1 and right & self.model.lists
            pairs, partials = (self._join_list if is_list else self._join_unit)(left, right)
            parts = [pairs.as_sum(pair_seconds(costs, right)), partials.as_sum(costs.result)]
            if left.bit_count() == 1:
                parts.append(self.start(left.bit_length() - 1).as_sum(costs.result))
            if right.bit_count() > 1:
                parts.append(self.cardinality(right).as_sum(costs.insert))
            known = self._joins[left, right, costs] = add(parts)
        return known

    def _join_unit(self, left: int, right: int) -> tuple[Monomial, Monomial]:
        model, both = self.model, left | right
        pairs = self._pairs_in_scope(left, right, model.anchor(left, right))
        indexed = [c for c in model.within(both) if model.uses_index(c, left, right)]
        if indexed:
            pairs = pairs.times(Monomial(1.0, (Selectivity(c.index) for c in indexed)))
        if not model.negation_models:
            return pairs, self.cardinality(both)
        return pairs, self._combinations(both, self._decided_inside(left, right))

    def _pairs_in_scope(self, left: int, right: int, anchor: int) -> Monomial:
        if self.model.lists >> anchor & 1:
            share = self._window_share(anchor, self._anchors(left))
            sides = self.cardinality(left), self.cardinality(right)
            return Monomial(share.mean).times(*sides)
        anchored = left | 1 << anchor
        between = {c.index for c in self.model.within(anchored) if c.slots >> anchor & 1}
        negations = [n for n in self.model.negation_models if not n.needs & ~left]
        pairs = self._combinations(anchored, negations, between)
        if right.bit_count() == 1:
            return pairs
        rate = Monomial(*self._rates[anchor])
        return pairs.times(self.cardinality(right)).times(rate, power=-1)

    def _join_list(self, left: int, right: int) -> tuple[Monomial, Monomial]:
        slot, both = right.bit_length() - 1, left | right
        decided = self._decided_inside(left, right)
        partials = self._combinations(both, decided, growing=slot)
        tested = [
            Selectivity(condition.index)
            for condition in self.model.within(both)
            if condition.owner == slot
            and condition.keeps == "each"
            and not self.model.uses_index(condition, left, right)
        ]
        return partials.times(Monomial(1.0, tested), power=-1), partials

    def _decided_inside(self, left: int, right: int) -> list[NegationModel]:
        return [
            n for n in self.model.negation_models if not n.needs & ~left or not n.needs & ~right
        ]


def _complete(conditions: Collection[ConditionModel]) -> list[Selectivity]:
    return [Selectivity(c.index) for c in conditions if c.keeps == "complete"]


def _joins_of(shape: Shape) -> tuple[int, list[tuple[int, int]]]:
    """The slots of a shape, and the sets that its joins join."""
    if isinstance(shape, int):
        return 1 << shape, []
    (left, before), (right, beside) = _joins_of(shape[0]), _joins_of(shape[1])
    return left | right, [*before, *beside, (left, right)]


def branch_monomials(model: BranchModel) -> BranchMonomials:
    """The numbers of a branch. They are made once."""
    if model.monomials is None:
        model.monomials = BranchMonomials(model)
    return cast("BranchMonomials", model.monomials)
