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

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import factorial, prod
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.combinatorics import (
    LinearExtensions,
    WindowShare,
    bit_numbers,
    expected_lists,
    unblocked_share,
)
from spark_cep.udfs.planning.conditions import (
    ConditionModel,
    before_masks,
    condition_models,
    negation_models,
    slot_set,
)

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.planning.conditions import NegationModel
    from spark_cep.udfs.program import Branch, Condition, Estimates, Shape, Variable


# --------------------------------------------------------------------------------------------------
# Seconds: what joins, shapes and plans are expected to take in one window of one key.
# --------------------------------------------------------------------------------------------------


class TimeEstimator:
    """Figures times costs. `found` is the memory of the planner that splits runs of slots."""

    def __init__(self, figures: CardinalityEstimator, costs: OperationCosts) -> None:
        self.figures = figures
        self.costs = costs
        self.found: dict[tuple[int, int], object] = {}
        self._joins: dict[tuple[int, int], float] = {}

    def join(self, left: int, right: int) -> float:
        """With what the sides need of their own: a single slot on the left is where a walk
        starts, and a join on the right is put into a buffer."""
        known = self._joins.get((left, right))
        if known is None:
            joined = self.figures.join(left, right)
            known = self.costs.pair * joined.pairs + self.costs.result * joined.partials
            if left.bit_count() == 1:
                known += self.costs.result * self.figures.start(left.bit_length() - 1)
            if right.bit_count() > 1:
                known += self.costs.insert * self.figures.cardinality(right)
            self._joins[left, right] = known
        return known

    def shape(self, shape: Shape) -> tuple[float, int]:
        """The time of a shape, and its set of slots."""
        if isinstance(shape, int):
            return 0.0, 1 << shape
        (left_time, left), (right_time, right) = self.shape(shape[0]), self.shape(shape[1])
        return (left_time + right_time) + self.join(left, right), left | right

    def plan(self, shape: Shape) -> float:
        """The time of a whole plan: one that is a single slot still starts there."""
        if isinstance(shape, int):
            return self.costs.result * self.figures.start(shape)
        return self.shape(shape)[0]


# What is assumed of a condition, and of a variable, of which nothing is known.
UNKNOWN_SELECTIVITY: Final = 0.5
UNKNOWN_RATE: Final = 1.0

_CAP: Final = 1e250


@dataclass(frozen=True)
class JoinEstimate:
    """What joining two sets of slots evaluates and makes, per window of one key."""

    pairs: float
    partials: float


class CardinalityEstimator:
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
        self._joins: dict[tuple[int, int], JoinEstimate] = {}
        self._anchored: dict[tuple[int, int], float] = {}
        self._times: dict[OperationCosts, TimeEstimator] = {}

    def _rate(self, slot: int) -> float:
        body = self.model.bodies.get(slot)
        if body is not None:
            return body.given(self.estimates).cardinality(body.all)
        variable = self.model.branch.slots[slot].variables[0]
        return self.estimates.rates.get(variable, UNKNOWN_RATE)

    def times(self, costs: OperationCosts) -> TimeEstimator:
        if costs not in self._times:
            self._times[costs] = TimeEstimator(self, costs)
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
        weight = _capped_product(self._rates[slot], self.model.choices(slot, bound))
        for applied in self.model.decided(slot, bound):
            weight *= self._selectivity[applied.index]
        return weight

    def _list_weight(self, slot: int, bound: int) -> float:
        if not bound:
            return self.cardinality(1 << slot)
        made = _ListEstimate(self, slot)
        for applied in self.model.decided(slot, bound):
            made.keep(applied)
        low = self.model.branch.slots[slot].low
        number = made.number(self._room(slot, self._anchors(bound)), low)
        return _capped_product(number, made.complete * bound.bit_count())

    # -- sets of slots ---------------------------------------------------------------------------

    def cardinality(self, slots: int) -> float:
        """Combinations of the slots that hold all that can be decided among them."""
        known = self._cardinalities.get(slots)
        if known is None:
            guards = [g for g in self.model.guards if g.needs & ~slots == 0]
            known = self._cardinalities[slots] = self._combinations(slots, guards)
        return known

    def join(self, left: int, right: int) -> JoinEstimate:
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

    def _joined(self, left: int, right: int) -> JoinEstimate:
        """The engine finds a unit by the rows of one of its slots, the anchor: those in scope, with
        equal values. All else, the unit's other slots included, is tested on the pairs."""
        model = self.model
        pairs = self._tried(left, right, model.anchor(left, right))
        for applied in model.within(left | right):
            if model.is_looked_up(applied, left, right):
                pairs = _capped_product(pairs, self._selectivity[applied.index])
        return JoinEstimate(min(pairs, _CAP), self._made(left, right))

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
            return _capped_product(self.cardinality(left), self.cardinality(right)) * room.mean
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
        return _capped_product(tried, self.cardinality(right)) / rate if rate > 0 else 0.0

    def _grown(self, left: int, right: int) -> JoinEstimate:
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
            return JoinEstimate(min(partials / share, _CAP), partials)
        # Nothing passes, so there is one round: single elements.
        first = self._rates[slot] * self._room(slot, self._anchors(left)).mean
        return JoinEstimate(min(self.cardinality(left) * first, _CAP), partials)

    def _decided_inside(self, left: int, right: int) -> list[NegationModel]:
        return [g for g in self.model.guards if not g.needs & ~left or not g.needs & ~right]

    # -- the formula -----------------------------------------------------------------------------

    def _combinations(
        self,
        slots: int,
        guards: Collection[NegationModel],
        without: Collection[int] = (),
        growing: int = -1,
    ) -> float:
        """`without` these conditions (by their index); the list `growing` need not be finished."""
        self.work += 1
        model, anchors = self.model, self._anchors(slots)
        number = model.order.count(anchors) / factorial(anchors.bit_count() - 1)
        for slot in bit_numbers(anchors):
            number = _capped_product(number, self._rates[slot])
        bound = {slot: _ListEstimate(self, slot) for slot in bit_numbers(slots & model.lists)}
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
                number = _capped_product(number, made.rest(low))
            else:
                number = _capped_product(number, made.number(self._room(slot, anchors), low))
            number = _capped_product(number, 1.0 if slot == growing else made.complete)
        for guard in guards:
            number *= self._share(guard, anchors)
        return min(number, _CAP)

    def _anchors(self, slots: int) -> int:
        """The slots whose rows divide the window for lists and negations. With nothing but lists,
        the first element of the first one takes the place of a slot."""
        return slots & ~self.model.lists or slots & -slots

    def _room(self, element: int, anchors: int) -> WindowShare:
        order = self.model.order
        gaps = order.count(anchors | 1 << element) / order.count(anchors)
        return WindowShare(gaps, anchors.bit_count())

    def _share(self, guard: NegationModel, anchors: int) -> float:
        """Of the combinations, how many no row blocks."""
        blockers = self.estimates.rates.get(guard.variable, 0.0)
        for index in guard.conditions:
            blockers *= self.estimates.selectivities.get(index, UNKNOWN_SELECTIVITY)
        return unblocked_share(blockers, self._room(guard.element, anchors))


def _capped_product(number: float, factor: float) -> float:
    """Capped; nothing stays nothing, however large the other is."""
    return min(number * factor, _CAP) if number and factor else 0.0


class _ListEstimate:
    """The lists of one slot under the conditions kept so far."""

    def __init__(self, figures: CardinalityEstimator, slot: int) -> None:
        self._figures = figures
        self._slot = figures.model.branch.slots[slot]
        self._rate = figures.rate(slot)
        self.complete = self._each = self._next = 1.0

    def keep(self, applied: ConditionModel) -> None:
        share = self._figures.selectivity(applied.index)
        if applied.keeps == "complete":
            self.complete *= share
        elif applied.keeps == "prev":
            self._next *= share
        else:
            self._each *= share

    def number(self, room: WindowShare, low: int) -> float:
        """Lists of at least `low` elements that lie in the room."""
        elements = self._rate * self._each
        if self._next <= 0:
            return elements * room.mean if low <= 1 else 0.0
        return expected_lists(elements * self._next, room, low, self._slot.high) / self._next

    def rest(self, low: int) -> float:
        """Lists that go on from a first element, which is counted already."""
        high = None if self._slot.high is None else self._slot.high - 1
        following = expected_lists(
            self._rate * self._each * self._next, WindowShare(1, 1), low - 1, high
        )
        return self._each * following


# --------------------------------------------------------------------------------------------------
# One branch as the planners see it, and what a plan for it costs.
#
# A `BranchModel` is what does not depend on statistics: which conditions lie on which slots, which
# of them are looked up, the order, the lists, the negations. `given(estimates)` are the numbers.
# Sets of slots are bit masks (`slot_set`); a plan's cost is the sum over its joins.
# --------------------------------------------------------------------------------------------------


class BranchModel:
    """`conditions` are all of the program's: a condition is known by its place there."""

    def __init__(
        self, branch: Branch, conditions: Sequence[Condition], variables: Sequence[Variable]
    ) -> None:
        self.branch = branch
        self.variables = tuple(variables)
        self.texts = tuple(condition.text for condition in conditions)
        self.size = len(branch.slots)
        self.all = (1 << self.size) - 1
        self.lists = slot_set(i for i, slot in enumerate(branch.slots) if slot.is_list)
        self.applied = condition_models(branch, conditions, variables)
        self.guards = negation_models(branch, conditions, variables)
        self.order = LinearExtensions(before_masks(branch))
        self.bodies = {
            number: BranchModel(slot.body, conditions, variables)
            for number, slot in enumerate(branch.slots)
            if slot.body is not None
        }
        self._within: dict[int, tuple[ConditionModel, ...]] = {}
        self._given: CardinalityEstimator | None = None

    def given(self, estimates: Estimates) -> CardinalityEstimator:
        """The branch's numbers. Those of the latest estimates are kept: a planner and the checks
        between two advances ask for the same ones many times."""
        if self._given is None or self._given.estimates is not estimates:
            self._given = CardinalityEstimator(self, estimates)
        return self._given

    @property
    def names(self) -> tuple[str, ...]:
        """One name a slot; of a repeated group, those of its variables."""
        named = [[self.variables[v].name for v in slot.variables] for slot in self.branch.slots]
        return tuple(each[0] if len(each) == 1 else f"({' '.join(each)})" for each in named)

    @property
    def final(self) -> tuple[int, ...]:
        """The slots that can hold the latest event of a match."""
        later = {earlier for earlier, _ in self.branch.precedes}
        return tuple(slot for slot in range(self.size) if slot not in later)

    def within(self, slots: int) -> tuple[ConditionModel, ...]:
        """The conditions that read none but these slots."""
        known = self._within.get(slots)
        if known is None:
            known = tuple(a for a in self.applied if not a.slots & ~slots)
            self._within[slots] = known
        return known

    def decided(self, slot: int, bound: int) -> Iterator[ConditionModel]:
        """The conditions that can be tested once `slot` joins the slots `bound`."""
        return (a for a in self.within(bound | 1 << slot) if a.slots >> slot & 1)

    def choices(self, slot: int, bound: int) -> float:
        """By how much the slot multiplies the ways to line up the rows of `bound`."""
        return self.order.count(bound | 1 << slot) / self.order.count(bound)

    def is_looked_up(self, applied: ConditionModel, left: int, right: int) -> bool:
        """Whether a join finds equal values by index, so that other pairs never arise. The
        elements of a list are found as it grows, never those of a finished list."""
        return any(
            right >> lookup.slot & 1
            and not lookup.given & ~left
            and (right.bit_count() == 1 or not self.lists >> lookup.slot & 1)
            for lookup in applied.lookups
        )

    def anchor(self, left: int, right: int) -> int:
        """The slot of the unit by which the engine finds it: the one that the left side holds
        most tightly, before and after it."""

        def held(slot: int) -> tuple[int, bool, int]:
            before, after = self.order.sides(slot, left)
            return before + after, not self.lists >> slot & 1, -slot

        return max(bit_numbers(right), key=held)

    def is_symmetric(self, left: int, right: int) -> bool:
        """Whether the join of two slots evaluates the same pairs with its sides exchanged."""
        both = left | right
        return not both & self.lists and all(
            applied.slots == both
            and self.is_looked_up(applied, left, right) == self.is_looked_up(applied, right, left)
            for applied in self.within(both)
        )


# ---- plans -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanCost:
    """Of a plan, over all windows: pairs evaluated, partial matches made, seconds."""

    pairs: float
    partials: float
    time: float

    def __add__(self, other: PlanCost) -> PlanCost:
        return PlanCost(
            self.pairs + other.pairs, self.partials + other.partials, self.time + other.time
        )


@dataclass(frozen=True)
class PlanStep:
    """One step of a plan: it `binds` these slots to those bound before on its side, which then
    are `slots`, and decides these conditions (by their place in the program)."""

    binds: tuple[int, ...]
    slots: tuple[int, ...]
    pairs: float
    partials: float
    conditions: tuple[int, ...]


def plan_cost(
    model: BranchModel, shape: Shape, estimates: Estimates, costs: OperationCosts
) -> PlanCost:
    """What the plan is expected to evaluate, make and take."""
    nodes = plan_steps(model, shape, estimates)
    time = model.given(estimates).times(costs).plan(shape) * estimates.windows
    return PlanCost(sum(n.pairs for n in nodes), sum(n.partials for n in nodes), time)


def plan_steps(model: BranchModel, shape: Shape, estimates: Estimates) -> tuple[PlanStep, ...]:
    """The plan's steps in the order in which they are run, each unit before it is joined."""
    figures = model.given(estimates)
    return tuple(_shape_steps(figures, shape, starts=True))


def _shape_steps(
    figures: CardinalityEstimator, shape: Shape, *, starts: bool
) -> Iterator[PlanStep]:
    """`starts`: a single slot is where a walk begins, and not a unit that is joined to one."""
    windows = figures.estimates.windows
    if isinstance(shape, int):
        if starts:
            alone = tuple(a.index for a in figures.model.within(1 << shape))
            yield PlanStep((shape,), (shape,), 0.0, figures.start(shape) * windows, alone)
        return
    yield from _shape_steps(figures, shape[0], starts=True)
    yield from _shape_steps(figures, shape[1], starts=False)
    left, right = shape_slot_set(shape[0]), shape_slot_set(shape[1])
    joined = figures.join(left, right)
    within = figures.model.within(left | right)
    decided = tuple(a.index for a in within if a.slots & ~left and _is_tested_at_join(a, right))
    yield PlanStep(
        tuple(bit_numbers(right)),
        tuple(bit_numbers(left | right)),
        joined.pairs * windows,
        joined.partials * windows,
        decided,
    )


def _is_tested_at_join(applied: ConditionModel, right: int) -> bool:
    """A single slot's own conditions are tested where it is joined, a join's own before."""
    return bool(applied.slots & ~right) or right.bit_count() == 1


def shape_slot_set(shape: Shape) -> int:
    """The set of slots that a shape joins."""
    if isinstance(shape, int):
        return 1 << shape
    return shape_slot_set(shape[0]) | shape_slot_set(shape[1])
