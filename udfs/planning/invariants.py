"""Invariants: the deciding conditions that are verified between advances.

From each block the k tightest are kept (None: all of them, and those with every tree that could
stand there), in the order of the plan, which later ones rely on: an invariant is only meant while
all before it hold. The first that is violated is a reason for another plan.

`distance` is the smallest relative difference that counts as violated: chosen < (1 + d) * other
is what must hold. The paper prints (1 + d) * chosen < other, which asks for a margin when the
plan is made and would call the tightest conditions violated at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from spark_cep.udfs.planning.cost_model import PlanCost
    from spark_cep.udfs.program import Estimates, Shape


# --------------------------------------------------------------------------------------------------
# What a planner gives: a plan with the reasons for each of its building blocks.
#
# A building block is the smallest part of a plan that the planner decides: what stands at one place
# of an order, or how one set of slots is joined. Its deciding conditions are the comparisons that
# it won. As long as all of them hold, the planner makes the same plan again; they are what
# invariants are taken from.
# --------------------------------------------------------------------------------------------------


class Comparison(ABC):
    """A deciding condition: the chosen side is the smaller one. Whether `wins_ties`, it is also
    chosen where both are equal; without that, a tie would look like a plan that has changed."""

    wins_ties: bool

    @abstractmethod
    def sides(self, estimates: Estimates) -> tuple[float, float]:
        """The figures of what was chosen and of what was not, under these estimates."""

    @abstractmethod
    def terms(self, names: Sequence[str]) -> tuple[str, str]:
        """Both sides in words. `names`: one for each slot."""

    def text(self, names: Sequence[str]) -> str:
        chosen, other = self.terms(names)
        return f"{chosen} < {other}"

    def holds(self, estimates: Estimates, distance: float = 0.0) -> bool:
        """Violated only when the chosen side exceeds the other one by more than `distance`: the
        smallest relative difference that counts."""
        chosen, other = self.sides(estimates)
        bound = (1.0 + distance) * other
        return chosen < bound or (chosen == bound and self.wins_ties)

    def difference(self, estimates: Estimates) -> float:
        """How far the sides are apart, relative to the smaller one."""
        chosen, other = self.sides(estimates)
        if chosen == other:
            return 0.0
        smaller = min(abs(chosen), abs(other))
        return inf if smaller == 0 else (other - chosen) / smaller


@dataclass(frozen=True)
class PlanBlock:
    """`conditions`: the comparisons that were made for it. `every`: those with everything that
    could stand in its place, where that is more than was compared."""

    conditions: tuple[Comparison, ...]
    every: tuple[Comparison, ...] | None = None


@dataclass(frozen=True)
class GeneratedPlan:
    """A plan for one branch, its blocks in the order in which they are verified, its cost."""

    shape: Shape
    blocks: tuple[PlanBlock, ...]
    cost: PlanCost


# The paper's Figure 5 scans d up to 0.5 and loses throughput well before that. An average over
# skewed rates would be far beyond: with rates 1, 100 and 1,000 it is 369, and nothing is ever
# violated.
LARGEST_DISTANCE: Final = 0.5
SMALLEST_DISTANCE: Final = 0.01
# A new plan that saves less than the first share was not worth making, one that saves more than
# the second could have come earlier.
LOW_GAIN: Final = 0.05
CLEAR_GAIN: Final = 0.25


def select_invariants(
    generated: GeneratedPlan, k: int | None, estimates: Estimates
) -> tuple[Comparison, ...]:
    """The conditions to verify for one branch, in order."""
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
    """A violated invariant in words: what it said, and the figures now."""
    (chosen, other), figures = violation.terms(names), violation.sides(estimates)
    return f"{chosen} = {figures[0]:.3g} is no longer below {other} = {figures[1]:.3g}"


# ---- the distance ------------------------------------------------------------------------------


def average_difference(generated: Sequence[GeneratedPlan], estimates: Estimates) -> float:
    """The average relative difference between the sides of all deciding conditions, bounded."""
    found = [
        condition.difference(estimates)
        for each in generated
        for block in each.blocks
        for condition in block.conditions
    ]
    known = [difference for difference in found if isfinite(difference)]
    return min(sum(known) / len(known), LARGEST_DISTANCE) if known else 0.0


@dataclass
class InvariantDistance:
    """The distance in force. "auto" takes the average difference whenever a plan is made; "meta"
    begins with it, then follows what the plans since have gained."""

    kind: float | Literal["auto", "meta"]
    value: float = 0.0
    _begun: bool = False

    def made(
        self, generated: Sequence[GeneratedPlan], estimates: Estimates, gain: float | None
    ) -> None:
        """A plan was made. `gain`: the share of the old plan's cost that it saves, None for the
        first one."""
        if not isinstance(self.kind, str):
            self.value = self.kind
        elif self.kind == "auto" or not self._begun:
            self.value = average_difference(generated, estimates)
            self._begun = True
        elif gain is not None and gain < LOW_GAIN:
            self.value = min(max(2 * self.value, SMALLEST_DISTANCE), LARGEST_DISTANCE)
        elif gain is not None and gain > CLEAR_GAIN:
            self.value = max(self.value / 2, SMALLEST_DISTANCE)
