"""Expected numbers: how many combinations, pairs and partial matches a branch makes.

The arrivals of different variables are taken as independent and even in time (Poisson). With r_j
candidates of slot j in one window of one key, k slots make prod(r_j) * e(S) / (k-1)! combinations
per window of time that respect order and window (e: linear extensions), times the share that the
conditions among them keep. Lists and negations take the room that the other slots leave them
(`room`): a list multiplies by the number of lists, a negation by the chance that nothing blocks.

All of this depends on the set of slots and not on the way to it. What a join evaluates does: see
`_joined`. Its partial matches are what its conditions leave, before the negations and whole-list
conditions that are decided there. Numbers are capped instead of overflowing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import factorial, prod
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.extensions import members
from spark_cep.udfs.planning.room import Room, lists, unblocked
from spark_cep.udfs.planning.times import Times

if TYPE_CHECKING:
    from spark_cep.udfs.planning.applied import Applied, Guard
    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.planning.model import BranchModel
    from spark_cep.udfs.program import Estimates

# What is assumed of a condition, and of a variable, of which nothing is known.
UNKNOWN_SELECTIVITY: Final = 0.5
UNKNOWN_RATE: Final = 1.0

_CAP: Final = 1e250


@dataclass(frozen=True)
class Join:
    """What joining two sets of slots evaluates and makes, per window of one key."""

    pairs: float
    partials: float


class Figures:
    """A model under given estimates. Every number is computed once; `work` says how many were."""

    def __init__(self, model: BranchModel, estimates: Estimates) -> None:
        self.model = model
        self.estimates = estimates
        self.work = 0
        self._selectivity = {
            applied.index: estimates.selectivities.get(applied.index, UNKNOWN_SELECTIVITY)
            for applied in model.applied
        }
        self._rates = [self._rate(slot) for slot in range(model.size)]
        self._cardinalities: dict[int, float] = {}
        self._joins: dict[tuple[int, int], Join] = {}
        self._anchored: dict[tuple[int, int], float] = {}
        self._times: dict[Costs, Times] = {}

    def _rate(self, slot: int) -> float:
        body = self.model.bodies.get(slot)
        if body is not None:
            return body.given(self.estimates).cardinality(body.all)
        variable = self.model.branch.slots[slot].variables[0]
        return self.estimates.rates.get(variable, UNKNOWN_RATE)

    def times(self, costs: Costs) -> Times:
        if costs not in self._times:
            self._times[costs] = Times(self, costs)
        return self._times[costs]

    # -- one slot --------------------------------------------------------------------------------

    def rate(self, slot: int) -> float:
        """Candidates in one window; of a repeated group, its iterations."""
        return self._rates[slot]

    def selectivity(self, index: int) -> float:
        """Of the condition with this place in the program."""
        return self._selectivity[index]

    def weight(self, slot: int, bound: int) -> float:
        """How much the slot multiplies the combinations of the slots `bound`, but for what is the
        same for every slot: Algorithm 2's rate times selectivities, times the order's share."""
        self.work += 1
        if self.model.lists >> slot & 1:
            return self._list_weight(slot, bound)
        weight = _product(self._rates[slot], self.model.choices(slot, bound))
        for applied in self.model.decided(slot, bound):
            weight *= self._selectivity[applied.index]
        return weight

    def _list_weight(self, slot: int, bound: int) -> float:
        if not bound:
            return self.cardinality(1 << slot)
        made = _Lists(self, slot)
        for applied in self.model.decided(slot, bound):
            made.keep(applied)
        low = self.model.branch.slots[slot].low
        number = made.number(self._room(slot, self._anchors(bound)), low)
        return _product(number, made.complete * bound.bit_count())

    # -- sets of slots ---------------------------------------------------------------------------

    def cardinality(self, slots: int) -> float:
        """Combinations of the slots that hold all that can be decided among them."""
        known = self._cardinalities.get(slots)
        if known is None:
            guards = [g for g in self.model.guards if g.needs & ~slots == 0]
            known = self._cardinalities[slots] = self._combinations(slots, guards)
        return known

    def join(self, left: int, right: int) -> Join:
        """`left` as the spine, `right` as the unit."""
        known = self._joins.get((left, right))
        if known is None:
            single = right & self.model.lists if right.bit_count() == 1 else 0
            made = self._grown if single else self._joined
            known = self._joins[left, right] = made(left, right)
        return known

    def pairs(self, left: int, right: int) -> float:
        return self.join(left, right).pairs

    def start(self, slot: int) -> float:
        """Partial matches that a walk begins with."""
        if self.model.lists >> slot & 1:
            return self._combinations(1 << slot, [], growing=slot)
        return self.cardinality(1 << slot)

    def _joined(self, left: int, right: int) -> Join:
        """The engine finds a unit by the rows of one of its slots, the anchor: those in scope, with
        equal values. All else, the unit's other slots included, is tested on the pairs."""
        model = self.model
        pairs = self._tried(left, right, model.anchor(left, right))
        for applied in model.within(left | right):
            if model.is_looked_up(applied, left, right):
                pairs = _product(pairs, self._selectivity[applied.index])
        return Join(min(pairs, _CAP), self._made(left, right))

    def _made(self, left: int, right: int) -> float:
        """What the conditions of a join leave, before the negations that are decided there."""
        both = left | right
        decided = self._decided_inside(left, right)
        if len(decided) == sum(not guard.needs & ~both for guard in self.model.guards):
            return self.cardinality(both)
        return self._combinations(both, decided)

    def _tried(self, left: int, right: int, anchor: int) -> float:
        """Pairs of partial matches of the left side with those of the unit whose anchor is in
        scope. Each row of the anchor has its average share of the unit's partial matches."""
        if self.model.lists >> anchor & 1:
            room = self._room(anchor, self._anchors(left))
            return _product(self.cardinality(left), self.cardinality(right)) * room.mean
        tried = self._anchored.get((left, anchor))
        if tried is None:
            anchored = left | 1 << anchor
            between = {a.index for a in self.model.within(anchored) if a.slots >> anchor & 1}
            guards = [guard for guard in self.model.guards if not guard.needs & ~left]
            tried = self._combinations(anchored, guards, between)
            self._anchored[left, anchor] = tried
        if right.bit_count() == 1:
            return tried
        rate = self._rates[anchor]
        return _product(tried, self.cardinality(right)) / rate if rate > 0 else 0.0

    def _grown(self, left: int, right: int) -> Join:
        """A list grows by an element a round: each round's lists are partial matches, and each is
        tried with the elements left in its scope before their own conditions are tested."""
        slot, both = right.bit_length() - 1, left | right
        decided = self._decided_inside(left, right)
        partials = self._combinations(both, decided, growing=slot)
        tested = {
            applied.index
            for applied in self.model.within(both)
            if applied.owner == slot
            and applied.keeps == "each"
            and not self.model.is_looked_up(applied, left, right)
        }
        share = prod(self._selectivity[index] for index in tested)
        if share > 0:
            return Join(min(partials / share, _CAP), partials)
        # Nothing passes, so there is one round: single elements.
        first = self._rates[slot] * self._room(slot, self._anchors(left)).mean
        return Join(min(self.cardinality(left) * first, _CAP), partials)

    def _decided_inside(self, left: int, right: int) -> list[Guard]:
        return [g for g in self.model.guards if not g.needs & ~left or not g.needs & ~right]

    # -- the formula -----------------------------------------------------------------------------

    def _combinations(
        self,
        slots: int,
        guards: Collection[Guard],
        without: Collection[int] = (),
        growing: int = -1,
    ) -> float:
        """`without` these conditions (by their index); the list `growing` need not be finished."""
        self.work += 1
        model, anchors = self.model, self._anchors(slots)
        number = model.order.count(anchors) / factorial(anchors.bit_count() - 1)
        for slot in members(anchors):
            number = _product(number, self._rates[slot])
        bound = {slot: _Lists(self, slot) for slot in members(slots & model.lists)}
        for applied in model.within(slots):
            if applied.index in without:
                continue
            if applied.keeps == "once":
                number *= self._selectivity[applied.index]
            else:
                bound[applied.owner].keep(applied)
        for slot, made in bound.items():
            low = 1 if slot == growing else model.branch.slots[slot].low
            if anchors >> slot & 1:
                number = _product(number, made.rest(low))
            else:
                number = _product(number, made.number(self._room(slot, anchors), low))
            number = _product(number, 1.0 if slot == growing else made.complete)
        for guard in guards:
            number *= self._share(guard, anchors)
        return min(number, _CAP)

    def _anchors(self, slots: int) -> int:
        """The slots whose rows divide the window for lists and negations. With nothing but lists,
        the first element of the first one takes the place of a slot."""
        return slots & ~self.model.lists or slots & -slots

    def _room(self, element: int, anchors: int) -> Room:
        order = self.model.order
        gaps = order.count(anchors | 1 << element) / order.count(anchors)
        return Room(gaps, anchors.bit_count())

    def _share(self, guard: Guard, anchors: int) -> float:
        """Of the combinations, how many no row blocks."""
        blockers = self.estimates.rates.get(guard.variable, 0.0)
        for index in guard.conditions:
            blockers *= self.estimates.selectivities.get(index, UNKNOWN_SELECTIVITY)
        return unblocked(blockers, self._room(guard.element, anchors))


def _product(number: float, factor: float) -> float:
    """Capped; nothing stays nothing, however large the other is."""
    return min(number * factor, _CAP) if number and factor else 0.0


class _Lists:
    """The lists of one slot under the conditions kept so far."""

    def __init__(self, figures: Figures, slot: int) -> None:
        self._figures = figures
        self._slot = figures.model.branch.slots[slot]
        self._rate = figures.rate(slot)
        self.complete = self._each = self._next = 1.0

    def keep(self, applied: Applied) -> None:
        share = self._figures.selectivity(applied.index)
        if applied.keeps == "complete":
            self.complete *= share
        elif applied.keeps == "prev":
            self._next *= share
        else:
            self._each *= share

    def number(self, room: Room, low: int) -> float:
        """Lists of at least `low` elements that lie in the room."""
        elements = self._rate * self._each
        if self._next <= 0:
            return elements * room.mean if low <= 1 else 0.0
        return lists(elements * self._next, room, low, self._slot.high) / self._next

    def rest(self, low: int) -> float:
        """Lists that go on from a first element, which is counted already."""
        high = None if self._slot.high is None else self._slot.high - 1
        following = lists(self._rate * self._each * self._next, Room(1, 1), low - 1, high)
        return self._each * following
