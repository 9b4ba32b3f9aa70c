"""What a planner gives: a plan with the reasons for each of its building blocks.

A building block is the smallest part of a plan that the planner decides: what stands at one place
of an order, or how one set of slots is joined. Its deciding conditions are the comparisons that
it won. As long as all of them hold, the planner makes the same plan again; they are what
invariants are taken from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.udfs.planning.model import Cost
    from spark_cep.udfs.program import Estimates, Shape


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
class Block:
    """`conditions`: the comparisons that were made for it. `every`: those with everything that
    could stand in its place, where that is more than was compared."""

    conditions: tuple[Comparison, ...]
    every: tuple[Comparison, ...] | None = None


@dataclass(frozen=True)
class Generated:
    """A plan for one branch, its blocks in the order in which they are verified, its cost."""

    shape: Shape
    blocks: tuple[Block, ...]
    cost: Cost
