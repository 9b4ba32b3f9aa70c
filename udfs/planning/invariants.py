"""Deciding conditions of generated plans, and the invariants that are selected from them.

A building block is the smallest part of a plan that the planner decides: what is at one position of
an order, or how one set of slots is joined. Its deciding conditions are the comparisons that it
won. As long as all of them hold, the planner makes the same plan again. A few of each block are
verified between advances as invariants; the first one that is violated is the reason to plan
again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from spark_cep.udfs.planning.cost_model import PlanCost
    from spark_cep.udfs.planning.monomials import Side
    from spark_cep.udfs.program import Estimates, Shape


# The paper's Figure 5 scans d up to 0.5 and loses throughput well before that. An average over
# skewed rates would be far beyond: with rates 1, 100 and 1,000 it is 369, and nothing is ever
# violated.
LARGEST_DISTANCE: Final = 0.5
SMALLEST_DISTANCE: Final = 0.01
# A new plan that saves less than the first share was not worth making, one that saves more than
# the second could have come earlier.
LOW_GAIN: Final = 0.05
CLEAR_GAIN: Final = 0.25


# ---- generated plans ---------------------------------------------------------------------------


class Comparison(ABC):
    """A deciding condition: the chosen side is smaller than the other one. `wins_ties`: it is also
    chosen if both are equal; otherwise a tie would look like a changed plan."""

    wins_ties: bool

    @abstractmethod
    def sides(self, estimates: Estimates) -> tuple[float, float]:
        """The values of the chosen side and of the other one under these estimates."""

    def sums(self) -> tuple[Side, Side] | None:
        """Both sides as sums of products of monitored values, or the least of such sums, so that
        the comparison can be compiled; None for a comparison that can only be evaluated."""
        return None

    @abstractmethod
    def terms(self, names: Sequence[str]) -> tuple[str, str]:
        """Both sides as text. `names`: one for each slot."""

    def text(self, names: Sequence[str]) -> str:
        chosen, other = self.terms(names)
        return f"{chosen} < {other}"

    def holds(self, estimates: Estimates, distance: float = 0.0) -> bool:
        """Whether chosen < (1 + d) * other, where `distance` is d, the smallest relative difference
        that counts as a violation.

        The paper prints (1 + d) * chosen < other. That demands a margin when the plan is made, and
        the tightest conditions would be violated at once.
        """
        chosen, other = self.sides(estimates)
        bound = (1.0 + distance) * other
        return chosen < bound or (chosen == bound and self.wins_ties)

    def difference(self, estimates: Estimates) -> float:
        """The difference between the sides, relative to the smaller one."""
        chosen, other = self.sides(estimates)
        if chosen == other:
            return 0.0
        smaller = min(abs(chosen), abs(other))
        return inf if smaller == 0 else (other - chosen) / smaller


@dataclass(frozen=True)
class PlanBlock:
    """A building block. `conditions`: the comparisons that the planner made for it. `every`: the
    comparisons with everything that could take its place, where that is more."""

    conditions: tuple[Comparison, ...]
    every: tuple[Comparison, ...] | None = None


@dataclass(frozen=True)
class GeneratedPlan:
    """A plan for one branch, its blocks in the order in which they are verified, its cost. `eager`:
    the slots whose partial matches a stream keeps."""

    shape: Shape
    blocks: tuple[PlanBlock, ...]
    cost: PlanCost
    eager: tuple[int, ...] = ()


# ---- invariants --------------------------------------------------------------------------------


def select_invariants(
    generated: GeneratedPlan, k: int | None, estimates: Estimates
) -> tuple[Comparison, ...]:
    """The invariants of one branch, in the order in which they are verified.

    Of each block the k tightest conditions; with k = None all of them, and the comparisons with
    everything that could take the block's place. The order is that of the blocks: an invariant is
    only meaningful while all invariants before it hold.
    """
    return tuple(c for block in generated.blocks for c in _tightest(block, k, estimates))


def _tightest(block: PlanBlock, k: int | None, estimates: Estimates) -> Sequence[Comparison]:
    if k is None:
        return block.conditions if block.every is None else block.every
    return sorted(block.conditions, key=lambda c: c.difference(estimates))[:k]


def first_violation(
    conditions: Sequence[Comparison], estimates: Estimates, distance: float = 0.0
) -> Comparison | None:
    """The first condition that does not hold any more."""
    return next((c for c in conditions if not c.holds(estimates, distance)), None)


def describe_violation(violation: Comparison, estimates: Estimates, names: Sequence[str]) -> str:
    """A violated invariant as text: the condition and the current values of its sides."""
    (chosen, other), values = violation.terms(names), violation.sides(estimates)
    return f"{chosen} = {values[0]:.3g} is no longer below {other} = {values[1]:.3g}"


# ---- the distance ------------------------------------------------------------------------------


@dataclass
class InvariantDistance:
    """The distance d in force. "auto" takes the average difference whenever a plan is made; "meta"
    begins with it, then adjusts it to the gain of each new plan."""

    kind: float | Literal["auto", "meta"]
    value: float = 0.0
    _begun: bool = False

    def record_plan(
        self, generated: Sequence[GeneratedPlan], estimates: Estimates, gain: float | None
    ) -> None:
        """Takes note of a new plan. `gain`: the share of the old plan's cost that it saves, None
        for the first plan."""
        if not isinstance(self.kind, str):
            self.value = self.kind
        elif self.kind == "auto" or not self._begun:
            self.value = average_difference(generated, estimates)
            self._begun = True
        elif gain is not None and gain < LOW_GAIN:
            self.value = min(max(2 * self.value, SMALLEST_DISTANCE), LARGEST_DISTANCE)
        elif gain is not None and gain > CLEAR_GAIN:
            self.value = max(self.value / 2, SMALLEST_DISTANCE)


def average_difference(generated: Sequence[GeneratedPlan], estimates: Estimates) -> float:
    """The average relative difference between the sides of all deciding conditions, bounded."""
    differences = [
        condition.difference(estimates)
        for each in generated
        for block in each.blocks
        for condition in block.conditions
    ]
    finite = [difference for difference in differences if isfinite(difference)]
    return min(sum(finite) / len(finite), LARGEST_DISTANCE) if finite else 0.0
