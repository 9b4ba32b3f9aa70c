"""The cost model: how many combinations, pairs and partial matches a branch makes, and the time.

Arrivals of different variables are assumed to be independent and even in time (Poisson). A
`BranchModel` holds what does not depend on statistics, a `CardinalityEstimator` the numbers under
given statistics, a `TimeEstimator` the seconds. Sets of slots are bit masks (`slot_set`), and the
cost of a plan is the sum over its joins. Numbers are capped instead of overflowing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
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
    from spark_cep.udfs.program import Branch, Condition, Estimates, Shape, Slot, Variable


# Assumed of a condition and of a variable without statistics.
UNKNOWN_SELECTIVITY: Final = 0.5
UNKNOWN_RATE: Final = 1.0

LARGEST_NUMBER: Final = 1e250

# A pair with a unit of several slots, in pairs with one row: order and window are tested for every
# slot of the unit. Measured on trees whose last join takes most of the time: 50 to 85 ns, where a
# chain over the same rows takes 15 to 21 ns a pair.
UNIT_PAIR: Final = 3.5


# ---- one branch --------------------------------------------------------------------------------


class BranchModel:
    """One branch as the planners see it: which conditions and negations apply to which slots,
    which conditions use an index, the partial order, the lists.

    `conditions` are all conditions of the program: a condition is identified by its index there.
    """

    def __init__(
        self, branch: Branch, conditions: Sequence[Condition], variables: Sequence[Variable]
    ) -> None:
        self.branch = branch
        self.variables = tuple(variables)
        self.texts = tuple(condition.text for condition in conditions)
        self.size = len(branch.slots)
        self.all = (1 << self.size) - 1
        self.lists = slot_set(i for i, slot in enumerate(branch.slots) if slot.is_list)
        self.condition_models = condition_models(branch, conditions, variables)
        self.negation_models = negation_models(branch, conditions, variables)
        # Whether each selectivity is a factor of what a plan costs, at most once: an element of a
        # list has it as often as there are elements, a negation keeps more where it is smaller.
        self.is_linear = not self.lists and not self.negation_models
        self.order = LinearExtensions(before_masks(branch))
        self.bodies = {
            number: tuple(BranchModel(body, conditions, variables) for body in slot.bodies)
            for number, slot in enumerate(branch.slots)
            if slot.is_group
        }
        self.set_model: object | None = None  # of the module set_tables
        self.monomials: object | None = None  # of the module monomials
        self.negated = {
            negation.element: BranchModel(negation.group, conditions, variables)
            for negation in self.negation_models
            if negation.group is not None
        }
        self._within: dict[int, tuple[ConditionModel, ...]] = {}
        self._estimator: CardinalityEstimator | None = None

    def estimator(self, estimates: Estimates) -> CardinalityEstimator:
        """The numbers of the branch under these statistics. The latest estimator is kept: a planner
        and the checks between two advances need the same numbers many times."""
        if self._estimator is None or self._estimator.estimates is not estimates:
            self._estimator = CardinalityEstimator(self, estimates)
        return self._estimator

    @property
    def names(self) -> tuple[str, ...]:
        """One name per slot; for a repeated group, the names of its variables: (b c), and (b | c)
        if they are alternatives."""
        return tuple(self._slot_name(slot) for slot in self.branch.slots)

    def _slot_name(self, slot: Slot) -> str:
        names = [self.variables[v].name for v in slot.variables]
        if len(names) == 1:
            return names[0]
        if not slot.has_alternatives:
            return f"({' '.join(names)})"
        bodies = ([v for each in body.slots for v in each.variables] for body in slot.bodies)
        sides = (" ".join(self.variables[v].name for v in body) for body in bodies)
        return f"({' | '.join(sides)})"

    @property
    def final(self) -> tuple[int, ...]:
        """The slots that can hold the final event of a match."""
        later = {earlier for earlier, _ in self.branch.precedes}
        return tuple(slot for slot in range(self.size) if slot not in later)

    def within(self, slots: int) -> tuple[ConditionModel, ...]:
        """The conditions that read only these slots."""
        known = self._within.get(slots)
        if known is None:
            known = tuple(c for c in self.condition_models if not c.slots & ~slots)
            self._within[slots] = known
        return known

    def decided(self, slot: int, bound: int) -> Iterator[ConditionModel]:
        """The conditions that can be tested once `slot` is added to the slots `bound`."""
        return (c for c in self.within(bound | 1 << slot) if c.slots >> slot & 1)

    def choices(self, slot: int, bound: int) -> float:
        """The factor by which the slot multiplies the linear extensions of `bound`."""
        return self.order.count(bound | 1 << slot) / self.order.count(bound)

    def uses_index(self, condition: ConditionModel, left: int, right: int) -> bool:
        """Whether a join finds equal values by index, so that other pairs are never made. An index
        finds the elements of a list while it grows, never those of a finished list."""
        return any(
            right >> equality.slot & 1
            and not equality.bound & ~left
            and (right.bit_count() == 1 or not self.lists >> equality.slot & 1)
            for equality in condition.index_equalities
        )

    def anchor(self, left: int, right: int) -> int:
        """The slot of the unit by which the engine finds the unit: the one whose position the left
        side bounds most, before and after it."""

        def bounds(slot: int) -> tuple[int, bool, int]:
            before, after = self.order.sides(slot, left)
            return before + after, not self.lists >> slot & 1, -slot

        return max(bit_numbers(right), key=bounds)

    def is_symmetric(self, left: int, right: int) -> bool:
        """Whether the join of two slots evaluates the same pairs with its sides exchanged."""
        both = left | right
        return not both & self.lists and all(
            condition.slots == both
            and self.uses_index(condition, left, right) == self.uses_index(condition, right, left)
            for condition in self.within(both)
        )


# ---- cardinalities -----------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinEstimate:
    """Pairs that a join of two sets of slots evaluates and partial matches that it makes, per
    window of one key."""

    pairs: float
    partials: float


class CardinalityEstimator:
    """The numbers of a branch under given statistics.

    With r_j candidates of slot j in one window of one key, k slots make prod(r_j) * e(S) / (k-1)!
    combinations per window of time that respect order and window (e: linear extensions), times the
    selectivities of the conditions among them. Lists and negations concern the share of the window
    that the other slots leave them: a list multiplies by the number of lists, a negation by the
    probability that nothing blocks.

    All this depends on the set of slots and not on the order in which they were bound. The pairs
    that a join evaluates do depend on it (`_join_unit`, `_join_list`). The partial matches of a
    join are those that its conditions leave, before the negations and the conditions on whole lists
    that are decided there. Every number is computed once; `work` counts the computations.
    """

    def __init__(self, model: BranchModel, estimates: Estimates) -> None:
        self.model = model
        self.estimates = estimates
        self.work = 0
        self._selectivity = {
            condition.index: estimates.selectivities.get(condition.index, UNKNOWN_SELECTIVITY)
            for condition in model.condition_models
        }
        self.joint_shares = tuple(
            (pair, factor, factor * prod(self._selectivity[index] for index in pair))
            for pair, factor in estimates.joint.items()
            if pair <= self._selectivity.keys()
        )
        self._rates = [self._compute_rate(slot) for slot in range(model.size)]
        self._cardinalities: dict[int, float] = {}
        self._joins: dict[tuple[int, int], JoinEstimate] = {}
        self._anchored: dict[tuple[int, int], float] = {}
        self._times: dict[OperationCosts, TimeEstimator] = {}

    def _compute_rate(self, slot: int) -> float:
        bodies = self.model.bodies.get(slot)
        if bodies is not None:
            numbers = [each.estimator(self.estimates).cardinality(each.all) for each in bodies]
            return min(sum(numbers), LARGEST_NUMBER)
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
        """The selectivity of the condition with this index in the program."""
        return self._selectivity[index]

    def weight(self, slot: int, bound: int) -> float:
        """The factor by which the slot multiplies the combinations of the slots `bound`, without
        what is the same for every slot: the rate times selectivities of Algorithm 2, times the
        share that the order allows."""
        self.work += 1
        if self.model.lists >> slot & 1:
            return self._list_weight(slot, bound)
        weight = _capped_product(self._rates[slot], self.model.choices(slot, bound))
        return self._keep_more(weight, bound, self.model.decided(slot, bound))

    def _list_weight(self, slot: int, bound: int) -> float:
        if not bound:
            return self.cardinality(1 << slot)
        lists = _ListEstimate(self, slot)
        for condition in self.model.decided(slot, bound):
            lists.apply(condition)
        low = self.model.branch.slots[slot].low
        number = lists.number(self._window_share(slot, self._anchors(bound)), low)
        return _capped_product(number, lists.complete * bound.bit_count())

    # -- sets of slots ---------------------------------------------------------------------------

    def cardinality(self, slots: int) -> float:
        """Combinations of the slots that meet everything that can be decided among them."""
        known = self._cardinalities.get(slots)
        if known is None:
            negations = [n for n in self.model.negation_models if n.needs & ~slots == 0]
            known = self._cardinalities[slots] = self._combinations(slots, negations)
        return known

    def start(self, slot: int) -> float:
        """The partial matches that a walk begins with."""
        if self.model.lists >> slot & 1:
            return self._combinations(1 << slot, [], growing=slot)
        return self.cardinality(1 << slot)

    def join(self, left: int, right: int) -> JoinEstimate:
        """`left` is the spine, `right` the unit."""
        known = self._joins.get((left, right))
        if known is None:
            single_list = right & self.model.lists if right.bit_count() == 1 else 0
            estimate = self._join_list if single_list else self._join_unit
            known = self._joins[left, right] = estimate(left, right)
        return known

    def pairs(self, left: int, right: int) -> float:
        return self.join(left, right).pairs

    def anchored(self, left: int, anchor: int) -> float:
        """Pairs of the partial matches of `left` with the rows in scope of another slot, before the
        conditions on that slot."""
        pairs = self._anchored.get((left, anchor))
        if pairs is None:
            anchored = left | 1 << anchor
            between = {c.index for c in self.model.within(anchored) if c.slots >> anchor & 1}
            negations = [n for n in self.model.negation_models if not n.needs & ~left]
            pairs = self._combinations(anchored, negations, between)
            self._anchored[left, anchor] = pairs
        return pairs

    def _join_unit(self, left: int, right: int) -> JoinEstimate:
        """The engine finds a unit by the rows of one of its slots, the anchor: those in scope, with
        equal values. Everything else, the unit's other slots included, is tested on the pairs."""
        model = self.model
        pairs = self._pairs_in_scope(left, right, model.anchor(left, right))
        found = (c for c in model.within(left | right) if model.uses_index(c, left, right))
        pairs = self._keep_more(pairs, left, found)
        return JoinEstimate(min(pairs, LARGEST_NUMBER), self.results(left, right))

    def results(self, left: int, right: int) -> float:
        """What the conditions of a join leave, before the negations that are decided there."""
        both = left | right
        decided = self._decided_inside(left, right)
        if len(decided) == sum(not n.needs & ~both for n in self.model.negation_models):
            return self.cardinality(both)
        return self._combinations(both, decided)

    def _pairs_in_scope(self, left: int, right: int, anchor: int) -> float:
        """Pairs of partial matches of the left side with those of the unit whose anchor is in
        scope. Each row of the anchor has its average share of the unit's partial matches."""
        if self.model.lists >> anchor & 1:
            share = self._window_share(anchor, self._anchors(left))
            return _capped_product(self.cardinality(left), self.cardinality(right)) * share.mean
        pairs = self.anchored(left, anchor)
        if right.bit_count() == 1:
            return pairs
        rate = self._rates[anchor]
        return _capped_product(pairs, self.cardinality(right)) / rate if rate > 0 else 0.0

    def _join_list(self, left: int, right: int) -> JoinEstimate:
        """A list grows by one element per round: the lists of each round are partial matches, and
        each is paired with the elements left in its scope before their own conditions are
        tested."""
        slot, both = right.bit_length() - 1, left | right
        decided = self._decided_inside(left, right)
        partials = self._combinations(both, decided, growing=slot)
        tested = {
            condition.index
            for condition in self.model.within(both)
            if condition.owner == slot
            and condition.keeps == "each"
            and not self.model.uses_index(condition, left, right)
        }
        passing = prod(self._selectivity[index] for index in tested)
        if passing > 0:
            return JoinEstimate(min(partials / passing, LARGEST_NUMBER), partials)
        # Nothing passes, so there is one round: single elements.
        first = self._rates[slot] * self._window_share(slot, self._anchors(left)).mean
        return JoinEstimate(min(self.cardinality(left) * first, LARGEST_NUMBER), partials)

    def _decided_inside(self, left: int, right: int) -> list[NegationModel]:
        return [
            n for n in self.model.negation_models if not n.needs & ~left or not n.needs & ~right
        ]

    # -- the formula -----------------------------------------------------------------------------

    def _combinations(
        self,
        slots: int,
        negations: Collection[NegationModel],
        without: Collection[int] = (),
        growing: int = -1,
    ) -> float:
        """The formula of the class for a set of slots. Conditions whose index is in `without` are
        left out; the list `growing` need not be finished."""
        self.work += 1
        model, anchors = self.model, self._anchors(slots)
        number = model.order.count(anchors) / factorial(anchors.bit_count() - 1)
        for slot in bit_numbers(anchors):
            number = _capped_product(number, self._rates[slot])
        lists = {slot: _ListEstimate(self, slot) for slot in bit_numbers(slots & model.lists)}
        once = []
        for condition in model.within(slots):
            if condition.index in without:
                continue
            if condition.keeps == "once":
                once.append(condition.index)
            else:
                lists[condition.owner].apply(condition)
        number = self._keep(number, once)
        for slot, estimate in lists.items():
            low = 1 if slot == growing else model.branch.slots[slot].low
            if anchors >> slot & 1:
                number = _capped_product(number, estimate.rest(low))
            else:
                share = self._window_share(slot, anchors)
                number = _capped_product(number, estimate.number(share, low))
            number = _capped_product(number, 1.0 if slot == growing else estimate.complete)
        for negation in negations:
            number *= self._unblocked(negation, anchors)
        return min(number, LARGEST_NUMBER)

    def _keep(self, number: float, indexes: Collection[int]) -> float:
        """What these conditions keep of so many combinations. They are multiplied one after the
        other, as in the tables of all sets."""
        if self.joint_shares:
            return number * self.kept_share(indexes)
        for index in indexes:
            number *= self._selectivity[index]
        return number

    def _keep_more(self, number: float, bound: int, added: Iterable[ConditionModel]) -> float:
        """What these conditions keep of what the conditions among `bound` have kept."""
        indexes = [condition.index for condition in added]
        if not self.joint_shares:
            return self._keep(number, indexes)
        before = [condition.index for condition in self.model.within(bound)]
        kept = self.kept_share(before)
        return number * self.kept_share([*before, *indexes]) / kept if kept > 0 else 0.0

    def kept_share(self, indexes: Collection[int]) -> float:
        """The share that all of these conditions keep: the product of their selectivities, times
        the factors of the pairs that are not independent, and no more than any pair keeps."""
        selectivities = [self._selectivity[index] for index in indexes]
        share = prod(selectivities)
        if len(selectivities) < 2:
            return share
        most, given = min(selectivities), set(indexes)
        for pair, factor, both in self.joint_shares:
            if pair <= given:
                share *= factor
                most = min(most, both)
        return min(share, most)

    def _anchors(self, slots: int) -> int:
        """The slots whose rows divide the window for lists and negations. If all slots are lists,
        the first element of the first list takes the place of a slot."""
        return slots & ~self.model.lists or slots & -slots

    def _window_share(self, element: int, anchors: int) -> WindowShare:
        order = self.model.order
        gaps = order.count(anchors | 1 << element) / order.count(anchors)
        return WindowShare(gaps, anchors.bit_count())

    def _unblocked(self, negation: NegationModel, anchors: int) -> float:
        """The share of the combinations that no row blocks."""
        share = self._window_share(negation.element, anchors)
        blockers = self.estimates.rates.get(negation.variable, 0.0)
        group = self.model.negated.get(negation.element)
        if group is not None:
            # All rows of an occurrence have to lie in the share, not only one of them.
            blockers = group.estimator(self.estimates).cardinality(group.all)
            blockers *= share.mean ** (group.size - 1)
        for index in negation.conditions:
            blockers *= self.estimates.selectivities.get(index, UNKNOWN_SELECTIVITY)
        return unblocked_share(blockers, share)


class _ListEstimate:
    """The lists of one slot under the conditions applied so far. `complete` is the selectivity of
    the conditions on finished lists."""

    def __init__(self, estimator: CardinalityEstimator, slot: int) -> None:
        self._estimator = estimator
        self._slot = estimator.model.branch.slots[slot]
        self._rate = estimator.rate(slot)
        self.complete = self._each = self._next = 1.0

    def apply(self, condition: ConditionModel) -> None:
        selectivity = self._estimator.selectivity(condition.index)
        if condition.keeps == "complete":
            self.complete *= selectivity
        elif condition.keeps == "prev":
            self._next *= selectivity
        else:
            self._each *= selectivity

    def number(self, share: WindowShare, low: int) -> float:
        """Lists of at least `low` elements that lie in the share of the window."""
        elements = self._rate * self._each
        if self._next <= 0:
            return elements * share.mean if low <= 1 else 0.0
        return expected_lists(elements * self._next, share, low, self._slot.high) / self._next

    def rest(self, low: int) -> float:
        """Lists that continue from a first element, which is counted already."""
        high = None if self._slot.high is None else self._slot.high - 1
        following = expected_lists(
            self._rate * self._each * self._next, WindowShare(1, 1), low - 1, high
        )
        return self._each * following


def _capped_product(number: float, factor: float) -> float:
    """The product, capped; zero times anything is zero."""
    return min(number * factor, LARGEST_NUMBER) if number and factor else 0.0


# ---- time --------------------------------------------------------------------------------------


def pair_seconds(costs: OperationCosts, right: int) -> float:
    """The time of a pair in a join with this unit."""
    return costs.pair * UNIT_PAIR if right.bit_count() > 1 else costs.pair


class TimeEstimator:
    """Cardinalities times costs: the seconds of joins, shapes and plans in one window of one key.

    `best_runs` and `join_table` are the memory of the planners.
    """

    def __init__(self, estimator: CardinalityEstimator, costs: OperationCosts) -> None:
        self.estimator = estimator
        self.costs = costs
        self.best_runs: dict[tuple[int, int], object] = {}
        self.join_table: object | None = None
        self._joins: dict[tuple[int, int], float] = {}

    def join(self, left: int, right: int) -> float:
        """The time of a join and of what its sides need: a single slot on the left is where a walk
        starts, and a join on the right is put into a buffer."""
        known = self._joins.get((left, right))
        if known is None:
            joined = self.estimator.join(left, right)
            pair = pair_seconds(self.costs, right)
            known = pair * joined.pairs + self.costs.result * joined.partials
            if left.bit_count() == 1:
                known += self.costs.result * self.estimator.start(left.bit_length() - 1)
            if right.bit_count() > 1:
                known += self.costs.insert * self.estimator.cardinality(right)
            self._joins[left, right] = known
        return known

    def shape(self, shape: Shape) -> tuple[float, int]:
        """The time of a shape, and its set of slots."""
        if isinstance(shape, int):
            return 0.0, 1 << shape
        (left_time, left), (right_time, right) = self.shape(shape[0]), self.shape(shape[1])
        return (left_time + right_time) + self.join(left, right), left | right

    def plan(self, shape: Shape) -> float:
        """The time of a whole plan: a plan of a single slot still has to start there."""
        if isinstance(shape, int):
            return self.costs.result * self.estimator.start(shape)
        return self.shape(shape)[0]


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
    """One step of a plan: it `binds` these slots, which makes `slots` the slots bound on its side
    of the tree, and it decides these conditions (by their index in the program)."""

    binds: tuple[int, ...]
    slots: tuple[int, ...]
    pairs: float
    partials: float
    conditions: tuple[int, ...]


def plan_cost(
    model: BranchModel, shape: Shape, estimates: Estimates, costs: OperationCosts
) -> PlanCost:
    """The pairs, partial matches and seconds that are expected of a plan."""
    steps = plan_steps(model, shape, estimates)
    time = plan_seconds(model, shape, estimates, costs)
    return PlanCost(sum(s.pairs for s in steps), sum(s.partials for s in steps), time)


def plan_seconds(
    model: BranchModel, shape: Shape, estimates: Estimates, costs: OperationCosts
) -> float:
    """The seconds alone, which take less to compute."""
    return model.estimator(estimates).times(costs).plan(shape) * estimates.windows


def plan_steps(model: BranchModel, shape: Shape, estimates: Estimates) -> tuple[PlanStep, ...]:
    """The steps of a plan in the order in which they run, each unit before it is joined."""
    return tuple(_shape_steps(model.estimator(estimates), shape, starts=True))


def _shape_steps(
    estimator: CardinalityEstimator, shape: Shape, *, starts: bool
) -> Iterator[PlanStep]:
    """`starts`: a single slot is where a walk begins, and not a unit that is joined."""
    windows = estimator.estimates.windows
    if isinstance(shape, int):
        if starts:
            conditions = tuple(c.index for c in estimator.model.within(1 << shape))
            partials = estimator.start(shape) * windows
            yield PlanStep((shape,), (shape,), 0.0, partials, conditions)
        return
    yield from _shape_steps(estimator, shape[0], starts=True)
    yield from _shape_steps(estimator, shape[1], starts=False)
    left, right = shape_slot_set(shape[0]), shape_slot_set(shape[1])
    joined = estimator.join(left, right)
    within = estimator.model.within(left | right)
    decided = tuple(c.index for c in within if c.slots & ~left and _is_tested_at_join(c, right))
    yield PlanStep(
        tuple(bit_numbers(right)),
        tuple(bit_numbers(left | right)),
        joined.pairs * windows,
        joined.partials * windows,
        decided,
    )


def _is_tested_at_join(condition: ConditionModel, right: int) -> bool:
    """A join tests the conditions of a single slot that it binds; the conditions within a unit of
    several slots were tested when the unit was made."""
    return bool(condition.slots & ~right) or right.bit_count() == 1


def shape_slot_set(shape: Shape) -> int:
    """The set of slots that a shape joins."""
    if isinstance(shape, int):
        return 1 << shape
    return shape_slot_set(shape[0]) | shape_slot_set(shape[1])
