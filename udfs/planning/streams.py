"""Which partial matches a stream keeps from one trigger to the next: APAM in triggers.

Every set of slots may be the eager group (EEG), whose partial matches are kept; APAM's equations
say what an event then costs. Two things differ from the paper, where a server takes one event
after the other:

Every trigger reads what is kept, reduces it to what is still open, and writes it. So keeping has a
cost of its own, whatever arrives.

A trigger takes all events that have come, and gives its matches when it has done all of them. So a
match waits for the other events of its trigger too. With one event a trigger this is the paper's
latency; with many, what makes latency small is what makes the work of a trigger small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.apam import EventLoad, EventQueue
from spark_cep.udfs.planning.cost_model import PlanCost
from spark_cep.udfs.planning.greedy import plan_lazy_chain
from spark_cep.udfs.planning.invariants import Comparison, GeneratedPlan, PlanBlock
from spark_cep.udfs.planning.shapes import slots_of
from spark_cep.udfs.program import BranchPlan, StreamLoad

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.planning.cost_model import BranchModel
    from spark_cep.udfs.program import Estimates, Objective


# The cost of one kept partial match in each trigger, whether it is extended or not.
KEEPING_SECONDS: Final = 2e-7
# The cost of one kept prefix in each trigger, however few partial matches it has: to extend it,
# write it and read it. Measured with three prefixes of a few partial matches: 1.1 to 1.8 ms.
PREFIX_SECONDS: Final = 4e-4
# Up to so many slots every set of slots is an option: 26 sets. Beyond, the paper's prefixes of the
# matching order, and the prefixes of the pattern.
MAX_SLOTS_FOR_ALL_GROUPS: Final = 5
# A queue that grows has no latency: its options are compared by the time of a trigger, and are
# worse than every option that keeps up.
OVERLOADED: Final = 1e6

EagerGroup = tuple[int, ...]


@dataclass(frozen=True)
class StreamPlanOption:
    """`seconds`: the work of a trigger. `latency`: from the last event of a match to the match;
    infinite where triggers do not keep up, or nothing is known of the load. `held`: partial matches
    in the state. `plan.eager` is empty if none are kept."""

    plan: BranchPlan
    seconds: float
    latency: float
    held: float


class StreamPlanOptions:
    """What each group costs one branch of a stream under given estimates; computed when asked."""

    def __init__(self, model: BranchModel, estimates: Estimates, costs: OperationCosts) -> None:
        self.estimates = estimates
        self._model = model
        self._estimator = model.estimator(estimates)
        self._costs = costs
        load = estimates.load or StreamLoad(0.0)
        self._load = load
        arrivals = None if load.arrivals is None else EventLoad(1.0, load.arrivals)
        self._queue = EventQueue(self._estimator, costs, arrivals)
        self._arrivals = sum((load.arrivals or {}).values())
        self._known: dict[EagerGroup, StreamPlanOption] = {}

    def groups(self) -> Iterator[EagerGroup]:
        """The groups to choose from; the first one keeps nothing. Single rows are in the state
        anyway, and a repeated group has other iterations in every trigger. If all slots were in
        the group, matches would be kept that nothing can follow."""
        yield ()
        model = self._model
        slots = [slot for slot in range(model.size) if slot not in model.bodies]
        if len(slots) <= MAX_SLOTS_FOR_ALL_GROUPS:
            for length in range(2, min(len(slots), model.size - 1) + 1):
                yield from combinations(slots, length)
            return
        order = slots_of(plan_lazy_chain(model, self.estimates, self._costs).shape)
        prefixes = {
            tuple(sorted(each[:length])): None
            for each in ([s for s in order if s in slots], slots)
            for length in range(2, min(len(slots), model.size - 1) + 1)
        }
        yield from prefixes

    def option(self, eager: EagerGroup) -> StreamPlanOption:
        known = self._known.get(eager)
        if known is None:
            known = self._known[eager] = self._compute(eager)
        return known

    def _compute(self, eager: EagerGroup) -> StreamPlanOption:
        lazy = [slot for slot in range(self._model.size) if slot not in eager]
        scored = self._queue.score(eager, lazy)
        windows = self.estimates.windows
        prefixes = eager_prefixes(eager)
        held = windows * sum(self._estimator.cardinality(bits) for bits in prefixes)
        keeping = KEEPING_SECONDS * held + PREFIX_SECONDS * len(prefixes)
        events = self._load.events
        seconds = events * scored.service + keeping
        busy = self._arrivals * (seconds / events) if events else inf
        latency = inf
        if self._load.arrivals is not None and busy < 1:
            others = max(events - 1, 0.0) * scored.service
            latency = scored.latency + others + keeping
        return StreamPlanOption(scored.plan, seconds, latency, held)


def eager_prefixes(eager: Sequence[int]) -> list[int]:
    """The sets of slots whose partial matches are kept: every prefix of two slots or more.

    >>> eager_prefixes((0, 2, 3))
    [5, 13]
    """
    bits, prefixes = 0, []
    for place, slot in enumerate(eager):
        bits |= 1 << slot
        if place:
            prefixes.append(bits)
    return prefixes


class StreamPlanGenerator:
    """Chooses the group that one branch of a stream keeps, by APAM's equations. Nothing is kept
    where finding it anew takes less than `negligible` seconds a trigger."""

    kind: Final = "hybrid"

    def __init__(
        self,
        model: BranchModel,
        costs: OperationCosts,
        objective: Objective = "balanced",
        negligible: float = 0.0,
    ) -> None:
        self.model = model
        self.costs = costs
        self.objective = objective
        self.negligible = negligible
        self._options: StreamPlanOptions | None = None

    def options(self, estimates: Estimates) -> StreamPlanOptions:
        if self._options is None or self._options.estimates is not estimates:
            self._options = StreamPlanOptions(self.model, estimates, self.costs)
        return self._options

    def make(self, estimates: Estimates) -> GeneratedPlan:
        """The best group. Its block compares it with every other group."""
        options = self.options(estimates)
        if options.option(()).seconds < self.negligible:
            plan, cost = options.option(()).plan, self._cost(estimates, ())
            return GeneratedPlan(plan.shape or 0, (PlanBlock((WorkComparison(self),)),), cost)
        groups = list(options.groups())
        best = min(groups, key=lambda group: self.value(estimates, group))
        block = PlanBlock(
            tuple(
                GroupComparison(self, best, other, groups.index(best) < place)
                for place, other in enumerate(groups)
                if other != best
            )
        )
        plan = options.option(best).plan
        cost = self._cost(estimates, best)
        return GeneratedPlan(plan.shape or 0, (block,) if len(groups) > 1 else (), cost, plan.eager)

    def keep(self, estimates: Estimates, eager: EagerGroup) -> GeneratedPlan:
        """A given group, without a comparison."""
        plan = self.options(estimates).option(eager).plan
        return GeneratedPlan(plan.shape or 0, (), self._cost(estimates, eager), eager)

    @property
    def is_linear(self) -> bool:
        return False

    def seconds(self, generated: GeneratedPlan, estimates: Estimates) -> float:
        return self.value(estimates, generated.eager)

    def _cost(self, estimates: Estimates, eager: EagerGroup) -> PlanCost:
        held = self.options(estimates).option(eager).held
        return PlanCost(0.0, held, self.value(estimates, eager))

    def value(self, estimates: Estimates, eager: EagerGroup) -> float:
        """What the objective makes small, in seconds."""
        option = self.options(estimates).option(eager)
        load = estimates.load
        if load is None or load.arrivals is None or self.objective == "throughput":
            return option.seconds
        if self.objective == "balanced" and not load.is_idle:
            return option.seconds
        return option.latency if option.latency < inf else OVERLOADED * option.seconds


@dataclass(frozen=True, eq=False)
class WorkComparison(Comparison):
    """Finding everything anew is hardly any work."""

    generator: StreamPlanGenerator
    wins_ties = False

    def sides(self, estimates: Estimates) -> tuple[float, float]:
        lazy = self.generator.options(estimates).option(())
        return lazy.seconds, self.generator.negligible

    def terms(self, names: Sequence[str]) -> tuple[str, str]:
        return _group_term((), names), f"{self.generator.negligible * 1e3:g} ms"


@dataclass(frozen=True, eq=False)
class GroupComparison(Comparison):
    """Keeping the partial matches of `chosen` takes less time than keeping those of `other`."""

    generator: StreamPlanGenerator
    chosen: EagerGroup
    other: EagerGroup
    wins_ties: bool

    def sides(self, estimates: Estimates) -> tuple[float, float]:
        value = self.generator.value
        return value(estimates, self.chosen), value(estimates, self.other)

    def terms(self, names: Sequence[str]) -> tuple[str, str]:
        return _group_term(self.chosen, names), _group_term(self.other, names)


def _group_term(eager: EagerGroup, names: Sequence[str]) -> str:
    """
    >>> _group_term((0, 2), "abc"), _group_term((), "abc")
    ('time(keeping a c)', 'time(keeping nothing)')
    """
    return f"time(keeping {' '.join(names[slot] for slot in eager) or 'nothing'})"
