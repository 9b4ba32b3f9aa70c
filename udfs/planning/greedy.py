"""Algorithm 2: the order of a lazy chain, one slot after the other, the lightest first.

Each step takes the slot that multiplies the partial matches least: rate, times the selectivity of
every condition that it closes, times the share that the order allows. A block is one place of the
order, and its deciding conditions are its comparisons with all slots still left then. Lists weigh
as much as there are sub-lists, so they come last unless they are short; negations are tested as
soon as their neighbours are bound and change no order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.udfs.planning.blocks import Block, Comparison, Generated
from spark_cep.udfs.planning.extensions import members
from spark_cep.udfs.planning.model import plan_cost
from spark_cep.udfs.planning.shapes import chain

if TYPE_CHECKING:
    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.planning.figures import Figures
    from spark_cep.udfs.planning.model import BranchModel
    from spark_cep.udfs.program import Estimates


def greedy(model: BranchModel, estimates: Estimates, costs: Costs) -> Generated:
    """The order, as a left-deep shape."""
    figures = model.given(estimates)
    order = continued(figures, _lightest(figures, 0))
    shape = chain(order)
    blocks = (_block(model, 0, order[0]), *followers(model, order))
    return Generated(shape, blocks, plan_cost(model, shape, estimates, costs))


def continued(figures: Figures, first: int) -> tuple[int, ...]:
    """The order that the algorithm makes of a given first slot."""
    order, bound = [first], 1 << first
    while bound != figures.model.all:
        order.append(_lightest(figures, bound))
        bound |= 1 << order[-1]
    return tuple(order)


def _lightest(figures: Figures, bound: int) -> int:
    left = members(figures.model.all & ~bound)
    return min((figures.weight(slot, bound), slot) for slot in left)[1]


def followers(model: BranchModel, order: Sequence[int]) -> Iterator[Block]:
    """The blocks of all places but the first."""
    bound = 1 << order[0]
    for chosen in order[1:]:
        yield _block(model, bound, chosen)
        bound |= 1 << chosen


def _block(model: BranchModel, bound: int, chosen: int) -> Block:
    others = members(model.all & ~bound & ~(1 << chosen))
    return Block(tuple(Lighter(model, bound, chosen, other) for other in others))


@dataclass(frozen=True, eq=False)
class Lighter(Comparison):
    """After the slots `bound` came `chosen` and not `other`."""

    model: BranchModel
    bound: int
    chosen: int
    other: int

    @property
    def wins_ties(self) -> bool:  # type: ignore[override]
        return self.chosen < self.other

    def sides(self, estimates: Estimates) -> tuple[float, float]:
        figures = self.model.given(estimates)
        return figures.weight(self.chosen, self.bound), figures.weight(self.other, self.bound)

    def terms(self, names: Sequence[str]) -> tuple[str, str]:
        return self._term(self.chosen, names), self._term(self.other, names)

    def _term(self, slot: int, names: Sequence[str]) -> str:
        is_list = self.model.lists >> slot & 1
        factors = [f"lists({names[slot]})" if is_list else f"rate({names[slot]})"]
        for applied in self.model.decided(slot, self.bound):
            factors.append(f"sel({self.model.texts[applied.index]})")
        choices = self.model.choices(slot, self.bound)
        if choices != 1 and not is_list:
            factors.append(f"{choices:.3g}")
        return " · ".join(factors)
