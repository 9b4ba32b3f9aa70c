"""Seconds: what joins, shapes and plans are expected to take in one window of one key."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.planning.figures import Figures
    from spark_cep.udfs.program import Shape


class Times:
    """Figures times costs. `found` is the memory of the planner that splits runs of slots."""

    def __init__(self, figures: Figures, costs: Costs) -> None:
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
