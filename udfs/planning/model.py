"""One branch as the planners see it, and what a plan for it costs.

A `BranchModel` is what does not depend on statistics: which conditions lie on which slots, which
of them are looked up, the order, the lists, the negations. `given(estimates)` are the numbers.
Sets of slots are bit masks (`slot_set`); a plan's cost is the sum over its joins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.udfs.planning.applied import (
    Applied,
    applied_conditions,
    before_masks,
    guards,
    slot_set,
)
from spark_cep.udfs.planning.extensions import Extensions, members
from spark_cep.udfs.planning.figures import Figures

if TYPE_CHECKING:
    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.program import Branch, Condition, Estimates, Shape, Variable


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
        self.applied = applied_conditions(branch, conditions, variables)
        self.guards = guards(branch, conditions, variables)
        self.order = Extensions(before_masks(branch))
        self.bodies = {
            number: BranchModel(slot.body, conditions, variables)
            for number, slot in enumerate(branch.slots)
            if slot.body is not None
        }
        self._within: dict[int, tuple[Applied, ...]] = {}
        self._given: Figures | None = None

    def given(self, estimates: Estimates) -> Figures:
        """The branch's numbers. Those of the latest estimates are kept: a planner and the checks
        between two advances ask for the same ones many times."""
        if self._given is None or self._given.estimates is not estimates:
            self._given = Figures(self, estimates)
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

    def within(self, slots: int) -> tuple[Applied, ...]:
        """The conditions that read none but these slots."""
        known = self._within.get(slots)
        if known is None:
            known = tuple(a for a in self.applied if not a.slots & ~slots)
            self._within[slots] = known
        return known

    def decided(self, slot: int, bound: int) -> Iterator[Applied]:
        """The conditions that can be tested once `slot` joins the slots `bound`."""
        return (a for a in self.within(bound | 1 << slot) if a.slots >> slot & 1)

    def choices(self, slot: int, bound: int) -> float:
        """By how much the slot multiplies the ways to line up the rows of `bound`."""
        return self.order.count(bound | 1 << slot) / self.order.count(bound)

    def is_looked_up(self, applied: Applied, left: int, right: int) -> bool:
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

        return max(members(right), key=held)

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
class Cost:
    """Of a plan, over all windows: pairs evaluated, partial matches made, seconds."""

    pairs: float
    partials: float
    time: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.pairs + other.pairs, self.partials + other.partials, self.time + other.time
        )


@dataclass(frozen=True)
class Node:
    """One step of a plan: it `binds` these slots to those bound before on its side, which then
    are `slots`, and decides these conditions (by their place in the program)."""

    binds: tuple[int, ...]
    slots: tuple[int, ...]
    pairs: float
    partials: float
    conditions: tuple[int, ...]


def plan_cost(model: BranchModel, shape: Shape, estimates: Estimates, costs: Costs) -> Cost:
    """What the plan is expected to evaluate, make and take."""
    nodes = plan_nodes(model, shape, estimates)
    time = model.given(estimates).times(costs).plan(shape) * estimates.windows
    return Cost(sum(n.pairs for n in nodes), sum(n.partials for n in nodes), time)


def plan_nodes(model: BranchModel, shape: Shape, estimates: Estimates) -> tuple[Node, ...]:
    """The plan's steps in the order in which they are run, each unit before it is joined."""
    figures = model.given(estimates)
    return tuple(_nodes(figures, shape, starts=True))


def _nodes(figures: Figures, shape: Shape, *, starts: bool) -> Iterator[Node]:
    """`starts`: a single slot is where a walk begins, and not a unit that is joined to one."""
    windows = figures.estimates.windows
    if isinstance(shape, int):
        if starts:
            alone = tuple(a.index for a in figures.model.within(1 << shape))
            yield Node((shape,), (shape,), 0.0, figures.start(shape) * windows, alone)
        return
    yield from _nodes(figures, shape[0], starts=True)
    yield from _nodes(figures, shape[1], starts=False)
    left, right = shape_slots(shape[0]), shape_slots(shape[1])
    joined = figures.join(left, right)
    within = figures.model.within(left | right)
    decided = tuple(a.index for a in within if a.slots & ~left and _tested_here(a, right))
    yield Node(
        tuple(members(right)),
        tuple(members(left | right)),
        joined.pairs * windows,
        joined.partials * windows,
        decided,
    )


def _tested_here(applied: Applied, right: int) -> bool:
    """A single slot's own conditions are tested where it is joined, a join's own before."""
    return bool(applied.slots & ~right) or right.bit_count() == 1


def shape_slots(shape: Shape) -> int:
    """The set of slots that a shape joins."""
    if isinstance(shape, int):
        return 1 << shape
    return shape_slots(shape[0]) | shape_slots(shape[1])
