"""Invariants: the deciding conditions that are verified between advances.

From each block the k tightest are kept (None: all of them, and those with every tree that could
stand there), in the order of the plan, which later ones rely on: an invariant is only meant while
all before it hold. The first that is violated is a reason for another plan.

`distance` is the smallest relative difference that counts as violated: chosen < (1 + d) * other
is what must hold. The paper prints (1 + d) * chosen < other, which asks for a margin when the
plan is made and would call the tightest conditions violated at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final
from typing import Literal as Choice

if TYPE_CHECKING:
    from spark_cep.udfs.planning.blocks import Block, Comparison, Generated
    from spark_cep.udfs.program import Estimates

# The paper's Figure 5 scans d up to 0.5 and loses throughput well before that. An average over
# skewed rates would be far beyond: with rates 1, 100 and 1,000 it is 369, and nothing is ever
# violated.
LARGEST_DISTANCE: Final = 0.5
SMALLEST_DISTANCE: Final = 0.01
# A new plan that saves less than the first share was not worth making, one that saves more than
# the second could have come earlier.
LOW_GAIN: Final = 0.05
CLEAR_GAIN: Final = 0.25


def invariants(generated: Generated, k: int | None, estimates: Estimates) -> tuple[Comparison, ...]:
    """The conditions to verify for one branch, in order."""
    return tuple(c for block in generated.blocks for c in _kept(block, k, estimates))


def _kept(block: Block, k: int | None, estimates: Estimates) -> Sequence[Comparison]:
    if k is None:
        return block.conditions if block.every is None else block.every
    return sorted(block.conditions, key=lambda c: c.difference(estimates))[:k]


def violated(
    conditions: Sequence[Comparison], estimates: Estimates, distance: float = 0.0
) -> Comparison | None:
    """The first condition that does not hold any more."""
    return next((c for c in conditions if not c.holds(estimates, distance)), None)


def reason(violation: Comparison, estimates: Estimates, names: Sequence[str]) -> str:
    """A violated invariant in words: what it said, and the figures now."""
    (chosen, other), figures = violation.terms(names), violation.sides(estimates)
    return f"{chosen} = {figures[0]:.3g} is no longer below {other} = {figures[1]:.3g}"


# ---- the distance ------------------------------------------------------------------------------


def average_difference(generated: Sequence[Generated], estimates: Estimates) -> float:
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
class Distance:
    """The distance in force. "auto" takes the average difference whenever a plan is made; "meta"
    begins with it, then follows what the plans since have gained."""

    kind: float | Choice["auto", "meta"]
    value: float = 0.0
    _begun: bool = False

    def made(
        self, generated: Sequence[Generated], estimates: Estimates, gain: float | None
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
