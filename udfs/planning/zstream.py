"""Algorithm 3 (ZStream): the cheapest join tree over the slots in their order.

Dynamic programming plans every run of neighbouring slots once, from all ways to split it in two.
The sides of a join are those that the engine runs: the left one is the spine, the right one the
unit, which is kept in a buffer if it is a join itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, cast

from spark_cep.udfs.planning.cost_model import plan_cost
from spark_cep.udfs.planning.invariants import Comparison, GeneratedPlan, PlanBlock
from spark_cep.udfs.planning.monomials import Least, branch_monomials
from spark_cep.udfs.planning.shapes import tree_text

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.planning.cost_model import BranchModel, TimeEstimator
    from spark_cep.udfs.planning.monomials import BranchMonomials, Side, Sum
    from spark_cep.udfs.program import Estimates, Shape


def plan_zstream(model: BranchModel, estimates: Estimates, costs: OperationCosts) -> GeneratedPlan:
    """The cheapest tree, and its joins as building blocks, verified from the leaves to the root.

    The deciding conditions of a join compare its time with that of the best tree of each other
    split of the same run, as found when it was planned: both trees are fixed, and their times are
    computed from current statistics. The paper keeps the costs of subtrees as constants instead;
    but a statistic may change without violating any earlier invariant, and then the constants are
    wrong on both sides. `PlanBlock.every` compares with the best of all trees of each other split
    under current statistics.
    """
    times = model.estimator(estimates).times(costs)
    best = _best_run(times, 0, model.size)
    blocks = tuple(_run_blocks(model, costs, times, best))
    return GeneratedPlan(best.shape, blocks, plan_cost(model, best.shape, estimates, costs))


# ---- dynamic programming -----------------------------------------------------------------------


@dataclass(frozen=True)
class _SlotRun:
    """The best tree over the slots [start, stop). `split`: where its second side begins."""

    start: int
    stop: int
    shape: Shape
    time: float = 0.0
    split: int = -1

    @property
    def slots(self) -> int:
        return (1 << self.stop) - (1 << self.start)

    @property
    def is_slot(self) -> bool:
        return self.stop - self.start == 1


def _best_run(times: TimeEstimator, start: int, stop: int) -> _SlotRun:
    known = times.best_runs.get((start, stop))
    if known is not None:
        return cast("_SlotRun", known)
    if stop - start == 1:
        best = _SlotRun(start, stop, start)
    else:
        # min takes the first of equals: ties go to the earliest split.
        best = min(
            (_join_runs(times, start, split, stop) for split in range(start + 1, stop)),
            key=lambda run: run.time,
        )
    times.best_runs[start, stop] = best
    return best


def _join_runs(times: TimeEstimator, start: int, split: int, stop: int) -> _SlotRun:
    """The best tree over [start, stop) whose two sides meet at `split`."""
    spine, unit = _orient(times, _best_run(times, start, split), _best_run(times, split, stop))
    time = (spine.time + unit.time) + times.join(spine.slots, unit.slots)
    return _SlotRun(start, stop, (spine.shape, unit.shape), time, split)


def _orient(times: TimeEstimator, first: _SlotRun, second: _SlotRun) -> tuple[_SlotRun, _SlotRun]:
    """Which of two neighbouring runs is the spine. Of a join and a slot, the join is; of two slots,
    the one with fewer candidates. With a list, or of two joins, the cheaper way round decides: as a
    rule the smaller join is the unit, which has to be kept."""
    if first.is_slot != second.is_slot:
        in_order = second.is_slot
    elif first.is_slot and times.estimator.model.is_symmetric(first.slots, second.slots):
        in_order = times.estimator.start(first.start) <= times.estimator.start(second.start)
    else:
        forward = times.join(first.slots, second.slots)
        in_order = forward <= times.join(second.slots, first.slots)
    return (first, second) if in_order else (second, first)


# ---- the same from monomials -------------------------------------------------------------------


def _best_side(numbers: BranchMonomials, costs: OperationCosts, start: int, stop: int) -> Side:
    """The time of the best tree over [start, stop), as `_best_run` finds it."""
    if stop - start == 1:
        return {}
    known = numbers.best_runs.get((start, stop, costs))
    if known is None:
        splits = range(start + 1, stop)
        options = (_split_options(numbers, costs, start, split, stop) for split in splits)
        known = Least(tuple(chain.from_iterable(options)))
        numbers.best_runs[start, stop, costs] = known
    return known


def _split_options(
    numbers: BranchMonomials, costs: OperationCosts, start: int, split: int, stop: int
) -> Iterator[tuple[Side, Side, Side]]:
    """The trees whose two sides meet at `split`, a join and a slot in this order, others both ways
    round: of two slots, the cheaper join has the one with fewer candidates as its spine."""
    sides = _best_side(numbers, costs, start, split), _best_side(numbers, costs, split, stop)
    first, second = (1 << split) - (1 << start), (1 << stop) - (1 << split)
    is_slot = split - start == 1, stop - split == 1
    if is_slot[0] == is_slot[1] or is_slot[1]:
        yield *sides, numbers.join(first, second, costs)
    if is_slot[0] == is_slot[1] or is_slot[0]:
        yield *sides, numbers.join(second, first, costs)


# ---- building blocks ---------------------------------------------------------------------------


def _run_blocks(
    model: BranchModel, costs: OperationCosts, times: TimeEstimator, run: _SlotRun
) -> Iterator[PlanBlock]:
    if run.is_slot:
        return
    first, second = _best_run(times, run.start, run.split), _best_run(times, run.split, run.stop)
    yield from _run_blocks(model, costs, times, first)
    yield from _run_blocks(model, costs, times, second)
    sides = _side_comparison(model, costs, run, first, second)
    if sides is not None:
        yield PlanBlock((sides,))
    splits = [split for split in range(run.start + 1, run.stop) if split != run.split]
    if splits:
        yield PlanBlock(
            tuple(
                CostComparison(
                    model, costs, run.shape, _join_runs(times, run.start, split, run.stop).shape,
                    wins_ties=run.split < split,
                )
                for split in splits
            ),
            tuple(
                SplitComparison(
                    model, costs, run.shape, (run.start, split, run.stop),
                    wins_ties=run.split < split,
                )
                for split in splits
            ),
        )  # fmt: skip


def _side_comparison(
    model: BranchModel, costs: OperationCosts, run: _SlotRun, first: _SlotRun, second: _SlotRun
) -> Comparison | None:
    """The deciding condition between spine and unit; None for a join and a slot, where the sides
    are given."""
    if first.is_slot != second.is_slot:
        return None
    assert not isinstance(run.shape, int)
    spine, unit = run.shape
    if (
        isinstance(spine, int)
        and isinstance(unit, int)
        and model.is_symmetric(first.slots, second.slots)
    ):
        return RateComparison(model, spine, unit)
    return CostComparison(model, costs, run.shape, (unit, spine), wins_ties=spine == first.shape)


@dataclass(frozen=True, eq=False)
class CostComparison(Comparison):
    """Over the same slots, the tree `chosen` takes less time than `other`."""

    model: BranchModel
    costs: OperationCosts
    chosen: Shape
    other: Shape
    wins_ties: bool

    def sides(self, estimates: Estimates) -> tuple[float, float]:
        times = self.model.estimator(estimates).times(self.costs)
        return times.shape(self.chosen)[0], times.shape(self.other)[0]

    def sums(self) -> tuple[Sum, Sum]:
        numbers = branch_monomials(self.model)
        return numbers.time(self.chosen, self.costs), numbers.time(self.other, self.costs)

    def terms(self, names: Sequence[str]) -> tuple[str, str]:
        return f"cost{tree_text(self.chosen, names)}", f"cost{tree_text(self.other, names)}"


@dataclass(frozen=True, eq=False)
class SplitComparison(Comparison):
    """The tree `chosen` takes less time than every tree over the same run with another split:
    `others` is (start, split, stop)."""

    model: BranchModel
    costs: OperationCosts
    chosen: Shape
    others: tuple[int, int, int]
    wins_ties: bool

    def sides(self, estimates: Estimates) -> tuple[float, float]:
        times = self.model.estimator(estimates).times(self.costs)
        return times.shape(self.chosen)[0], _join_runs(times, *self.others).time

    def sums(self) -> tuple[Sum, Least]:
        numbers = branch_monomials(self.model)
        others = Least(tuple(_split_options(numbers, self.costs, *self.others)))
        return numbers.time(self.chosen, self.costs), others

    def terms(self, names: Sequence[str]) -> tuple[str, str]:
        start, split, stop = self.others
        parts = " ".join(names[start:split]), " ".join(names[split:stop])
        return f"cost{tree_text(self.chosen, names)}", f"cost(best of [{parts[0]}] [{parts[1]}])"


@dataclass(frozen=True, eq=False)
class RateComparison(Comparison):
    """Of the two slots of a join, `spine` has fewer candidates than `unit`."""

    model: BranchModel
    spine: int
    unit: int

    @property
    def wins_ties(self) -> bool:  # type: ignore[override]
        return self.spine < self.unit

    def sides(self, estimates: Estimates) -> tuple[float, float]:
        estimator = self.model.estimator(estimates)
        return estimator.start(self.spine), estimator.start(self.unit)

    def sums(self) -> tuple[Sum, Sum]:
        numbers = branch_monomials(self.model)
        return numbers.start(self.spine).as_sum(), numbers.start(self.unit).as_sum()

    def terms(self, names: Sequence[str]) -> tuple[str, str]:
        return f"rate({names[self.spine]})", f"rate({names[self.unit]})"
