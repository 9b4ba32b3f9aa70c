"""The order that each case of an advance runs: the plan's own, or a cheaper one.

A plan is made for whole windows. In a trigger that is shorter than the window only a few rows of
the case's slot are new, and every match has one of them, so beginning there may save most of the
work; or it may join slots that no condition connects, which costs more than the plan. So orders
are compared as the advance would run them: of each slot only the rows that meet the case's rule,
and of slots that are joined without the case's slot all that lie in the rows at hand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isinf
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.bucket_plans import estimate_rates
from spark_cep.udfs.events.table import AHEAD, NEW, OLD
from spark_cep.udfs.planning.beginnings import share_beginnings
from spark_cep.udfs.planning.cost_model import BranchModel
from spark_cep.udfs.planning.dynamic import cheapest_chain
from spark_cep.udfs.planning.greedy import complete_order, complete_order_from
from spark_cep.udfs.planning.shapes import left_deep_shape, order_text, slots_of, with_first
from spark_cep.udfs.program import Estimates

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.events.candidates import SlotCandidates
    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.planning.cost_model import CardinalityEstimator, TimeEstimator
    from spark_cep.udfs.program import BranchPlan, Program, Shape


# The candidates are made again when an estimate has changed by this factor. The rows that make the
# case change by chance from trigger to trigger: what they cost is computed in each.
ESTIMATE_CHANGE_FACTOR: Final = 1.5
# Smaller rates change by that factor by chance.
LEAST_RATE: Final = 2.0
# Where a case is expected to take longer, the best of all orders is looked for, which takes from
# 0.14 ms for three slots to 0.7 ms for ten.
EXACT_SECONDS: Final = 2e-4
# New rows whose windows are looked at.
CROWD_ROWS: Final = 64

Groups = Collection[frozenset[int]]
CaseKey = tuple[int, "BranchPlan", int, tuple[int, ...], frozenset[frozenset[int]]]


@dataclass(frozen=True)
class CaseCandidate:
    """A shape and its seconds: of joins with the case's slot, which each of its rows repeats, and
    of the others."""

    shape: Shape
    repeated: float
    other: float


@dataclass(frozen=True)
class CaseCandidates:
    """`work`: what they were made for."""

    candidates: tuple[CaseCandidate, ...]
    work: CaseWork

    def cheapest(self, now: CaseWork) -> Shape:
        """The first of equals, which is the plan's own shape."""
        rows = now.rate / self.work.rate
        return min(self.candidates, key=lambda each: each.repeated * rows + each.other).shape


class CaseOrders:
    """Chooses the shape of each case. The candidates are remembered until the estimates have
    changed, so that the usual trigger only compares a few numbers."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._costs = program.costs or TYPICAL_COSTS
        self._models: dict[int, BranchModel] = {}
        self._candidates: dict[CaseKey, CaseCandidates] = {}

    def shape(
        self, branch: int, plan: BranchPlan, pools: SlotCandidates, kept: Groups = ()
    ) -> Shape | None:
        """The shape for the case of `pools`: the cheapest under the case's rules. A fixed plan and
        that of a paper's planner are never changed, and a tree NFA has none."""
        slot = pools.case.slot
        assert slot is not None
        if plan.shape is None or plan.fixed or self._program.planner != "dp":
            return plan.shape
        model = self._model(branch)
        if model.lists >> slot & 1:
            return plan.shape
        work = _case_work(model, pools)
        if work is None:
            return plan.shape
        key = branch, plan, slot, tuple(sorted(pools.case.rules)), frozenset(kept)
        known = self._candidates.get(key)
        if known is None or known.work.differs(work):
            found = tuple(case_candidates(model, self._costs, plan.shape, work, kept))
            known = self._candidates[key] = CaseCandidates(found, work)
        return known.cheapest(work)

    def shared(self, plans: Sequence[BranchPlan], matching: AdvanceContext) -> Sequence[BranchPlan]:
        """The plans, with other orders where branches had better begin alike. Not where most rows
        were there before: the order of each case is chosen by what is new. The papers' planners
        know no sharing."""
        program = self._program
        is_mostly_new = np.count_nonzero(matching.status == NEW) > 0.5 * len(matching.status)
        if len(plans) < 2 or program.planner != "dp" or not is_mostly_new:
            return plans
        estimates = matching.estimates
        if estimates is None:
            known = program.estimates or Estimates({})
            estimates = estimate_rates(matching, known.selectivities)
        models = [self._model(number) for number in range(len(plans))]
        return share_beginnings(models, plans, estimates, self._costs)

    def describe(
        self, branch: int, shape: Shape | None, slot: int | None = None, kept: Groups = ()
    ) -> str:
        """An order that ran, for the metrics. `slot`: of the case, where not all rows are new;
        `kept`: groups whose partial matches were known."""
        names = self._model(branch).names
        text = order_text(shape, names, kept)
        return text if slot is None else f"{text}, new {names[slot]}"

    def _model(self, branch: int) -> BranchModel:
        if branch not in self._models:
            program = self._program
            given = program.branches[branch]
            self._models[branch] = BranchModel(given, program.conditions, program.variables)
        return self._models[branch]


@dataclass(frozen=True)
class CaseWork:
    """What a case has to do. `estimates`: rates of the rows that meet its rules. `slot`: the
    case's, and its `variable`. `span`: the time that the rows at hand fill, in windows."""

    estimates: Estimates
    slot: int
    variable: int
    span: float

    @property
    def rate(self) -> float:
        return self.estimates.rates[self.variable]

    def candidate(self, times: TimeEstimator, shape: Shape, kept: Groups) -> CaseCandidate:
        repeated, other = self._seconds(times, shape, kept)
        return CaseCandidate(shape, repeated, other)

    def _seconds(self, times: TimeEstimator, shape: Shape, kept: Groups) -> tuple[float, float]:
        if isinstance(shape, int) or frozenset(slots_of(shape)) in kept:
            return 0.0, 0.0
        sides = [self._seconds(times, side, kept) for side in shape]
        repeated, other = (sum(each) for each in zip(*sides, strict=True))
        left, right = (sum(1 << slot for slot in slots_of(side)) for side in shape)
        here = times.join(left, right)
        if (left | right) >> self.slot & 1:
            return repeated + here, other
        return repeated, other + here * self._share_at_hand((left | right).bit_count())

    def _share_at_hand(self, count: int) -> float:
        """Rows that make the case have their whole window before them. The combinations of other
        rows do not: of those that end in the first window, on average one in k of k slots begins
        in it too."""
        return 1.0 if isinf(self.span) else (self.span - 1 + 1 / count) / self.span

    def differs(self, now: CaseWork) -> bool:
        """Whether other candidates may be better, whatever number of rows make the case."""
        before, after = self.estimates, now.estimates
        own = {self.variable: 0.0}
        return _have_changed({**before.rates, **own}, {**after.rates, **own}, LEAST_RATE) or any(
            _have_changed(old, new, 0.0)
            for old, new in (
                (before.selectivities, after.selectivities),
                (before.joint, after.joint),
            )
        )


def _have_changed(before: Mapping[Any, float], now: Mapping[Any, float], least: float) -> bool:
    if before.keys() != now.keys():
        return True
    for key, value in now.items():
        low, high = sorted((before[key], value))
        if high + least > ESTIMATE_CHANGE_FACTOR * (low + least):
            return True
    return False


def case_candidates(
    model: BranchModel, costs: OperationCosts, shape: Shape, work: CaseWork, kept: Groups = ()
) -> Iterator[CaseCandidate]:
    """The shape itself, the same order from the case's slot on, and, unless all is done in no time,
    the best orders: those that begin with the slot, and those for as many rows of it as there are
    in a window. `kept`: groups whose partial matches are known, so that finding them costs nothing;
    an order may begin with each of them, as a pair with a row costs less than one with a group.
    """
    slot, estimates = work.slot, work.estimates
    times = model.estimator(estimates).times(costs)
    greedy = left_deep_shape(complete_order(times.estimator, slot))
    from_groups = (_from_group(times.estimator, group) for group in kept)
    found = [
        work.candidate(times, each, kept)
        for each in (shape, with_first(shape, slot, kept), greedy, *from_groups)
    ]
    yield from found
    least = min(each.repeated + each.other for each in found)
    if least * estimates.windows > EXACT_SECONDS:
        full = max(estimates.rates.values())
        whole = replace(estimates, rates={**estimates.rates, work.variable: full})
        best = [
            cheapest_chain(model, estimates, costs, slot),
            cheapest_chain(model, estimates, costs),
            cheapest_chain(model, whole, costs),
        ]
        times = model.estimator(estimates).times(costs)
        for each in dict.fromkeys(best):
            yield work.candidate(times, each, kept)


def _from_group(estimator: CardinalityEstimator, group: frozenset[int]) -> Shape:
    """The order of Algorithm 2 behind a group."""
    bound = sum(1 << slot for slot in group)
    return left_deep_shape([*sorted(group), *complete_order_from(estimator, bound)])


def _case_work(model: BranchModel, pools: SlotCandidates) -> CaseWork | None:
    """None where all rows are new, so that the case's rules leave every row of every slot. A list
    is taken as it is: a rule concerns one of its rows."""
    matching, slot = pools.matching, pools.case.slot
    assert slot is not None
    if (matching.status == NEW).all():
        return None
    counts, is_known = {}, not (matching.status == AHEAD).any()
    for number, each in enumerate(model.branch.slots):
        is_free = is_known and number not in pools.case.rules
        for variable in each.variables:
            counts[variable] = (
                int(np.count_nonzero(matching.events.candidates(variable)))
                if each.is_list or is_free
                else len(pools.pool(number).elements)
            )
    crowd, span = _crowd_and_span(matching)
    windows = matching.events.size / crowd
    given = matching.estimates or matching.program.estimates or Estimates({})
    rates = {variable: count / windows for variable, count in counts.items()}
    rates = {**given.rates, **rates}
    (variable,) = model.branch.slots[slot].variables
    return CaseWork(replace(given, rates=rates, windows=windows), slot, variable, span)


def _crowd_and_span(matching: AdvanceContext) -> tuple[float, float]:
    """The rows in the window of a new row, and the time that the rows at hand fill: what is new,
    and a window of what was there before, or is ahead where the earliest row decides."""
    window, new = matching.events.window, np.flatnonzero(matching.status == NEW)
    some = new[:: max(1, len(new) // CROWD_ROWS)]
    if matching.deciding_row == "earliest":
        sizes, others = window.end[some] - some, np.count_nonzero(matching.status == AHEAD)
    else:
        sizes, others = some + 1 - window.start[some], np.count_nonzero(matching.status == OLD)
    span = 1 + len(new) / int(others) if others else inf
    return float(sizes.mean()), span
