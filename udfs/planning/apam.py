"""APAM: which slots are evaluated when their events arrive, and which wait for the final event.

The matching order is the best greedy one. Each of its prefixes may be the eager evaluation group
(EEG: evaluated in the order of the pattern, its partial matches kept); the rest is the lazy
evaluation group (LEG: kept as events). Each of these l + 1 partitions is scored by its expected
latency in an M/G/1 queue: the waiting time of an event, and the service time of the final event,
which merges everything (Eqs. 1-9).

Three deviations from the paper. Eq. 5 is read as a standard deviation, the root of the sum. A merge
is for one final event, so its slot counts for one row there and not for the rows of a window. And
Eq. 9 counts no sequence predicates: the engine finds rows in sequence by position before it makes
any pair, so these predicates reduce the pairs instead of being evaluated on them (as Eq. 6 has it
for eager events). Counted on every pair, they would make a merge of five slots cost three times
what it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import inf, isfinite, sqrt
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.cost_model import shape_slot_set
from spark_cep.udfs.planning.greedy import plan_lazy_chain
from spark_cep.udfs.planning.shapes import left_deep_shape, slots_of
from spark_cep.udfs.program import BranchPlan

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.planning.cost_model import BranchModel, CardinalityEstimator
    from spark_cep.udfs.program import Estimates, Shape


# Sets of merged groups that the search of `MergePlanner` follows at a time: all of them up to nine
# groups, fewer beyond, as the work of all partitions is cubic: 40 slots took 15 s with 70 sets, and
# take 1.3 s.
_BEAM_WIDTH: Final = 70
_FULL_WIDTH_GROUPS: Final = 9


@dataclass(frozen=True)
class EventLoad:
    """How fast events arrive: for each variable, candidates per second over all keys. Without
    arrivals there is one key, and a window of `window_s` seconds holds what the estimates say."""

    window_s: float
    arrivals: Mapping[int, float] | None = None


@dataclass(frozen=True)
class ApamPartition:
    """`latency` and `service` (E[L] and E[ST]) are in seconds; `rho` is the utilization: at 1 and
    above the queue only grows, and the latency is infinite."""

    eager: tuple[int, ...]
    lazy: tuple[int, ...]
    latency: float
    service: float
    rho: float
    shape: Shape

    @property
    def plan(self) -> BranchPlan:
        return BranchPlan(self.shape, self.eager)


# ---- plans -------------------------------------------------------------------------------------


def plan_hybrid(
    model: BranchModel,
    estimates: Estimates,
    costs: OperationCosts,
    groups: tuple[Sequence[int], Sequence[int]] | None = None,
    load: EventLoad | None = None,
) -> BranchPlan:
    """The plan for the given groups (eager, lazy), or for the partition of the lowest latency."""
    if groups is None:
        return fastest_partition(apam_partitions(model, estimates, costs, load)).plan
    return plan_hybrid_groups(model, *groups, estimates)


def plan_hybrid_groups(
    model: BranchModel, eager: Sequence[int], lazy: Sequence[int], estimates: Estimates
) -> BranchPlan:
    """The plan for given groups: `lazy` slots are merged in their order, except that every merge
    begins with the final slot; the eager group is joined where that makes the fewest pairs."""
    group = tuple(sorted(eager))
    final = model.final[0] if len(model.final) == 1 else -1
    # Python's sort is stable: the other slots keep their order.
    units: list[Shape] = [*sorted(lazy, key=lambda slot: slot != final)]
    if not group:
        return BranchPlan(left_deep_shape(units))
    estimator = model.estimator(estimates)
    first, last = int(final in lazy), 0 if final in group else len(units)
    merged = [
        left_deep_shape([*units[:place], left_deep_shape(group), *units[place:]])
        for place in range(first, last + 1)
    ]
    return BranchPlan(min(merged, key=lambda shape: _shape_pairs(estimator, shape)), group)


def _shape_pairs(estimator: CardinalityEstimator, shape: Shape) -> float:
    if isinstance(shape, int):
        return 0.0
    joined = estimator.pairs(shape_slot_set(shape[0]), shape_slot_set(shape[1]))
    return _shape_pairs(estimator, shape[0]) + _shape_pairs(estimator, shape[1]) + joined


def apam_partitions(
    model: BranchModel, estimates: Estimates, costs: OperationCosts, load: EventLoad | None = None
) -> list[ApamPartition]:
    """The l + 1 partitions of the matching order, from all lazy to all eager. Without a load all
    events are there at once: no server keeps up with any of the queues."""
    order = slots_of(plan_lazy_chain(model, estimates, costs).shape)
    queue = EventQueue(model.estimator(estimates), costs, load)
    return [queue.score(order[:cut], order[cut:]) for cut in range(len(order) + 1)]


def fastest_partition(candidates: Sequence[ApamPartition]) -> ApamPartition:
    """The partition with the lowest latency; if every queue grows, the fastest service."""
    if any(isfinite(each.latency) for each in candidates):
        return min(candidates, key=lambda each: each.latency)
    return min(candidates, key=lambda each: each.service)


# ---- the queue ---------------------------------------------------------------------------------


class EventQueue:
    """An M/G/1 queue whose customers are the events of a branch."""

    def __init__(
        self, estimator: CardinalityEstimator, costs: OperationCosts, load: EventLoad | None
    ) -> None:
        self._rates = estimator.estimates.rates
        self._model = estimator.model
        self._costs = costs
        self._load = load
        self._arrivals = [
            sum(self._arrival(v) for v in slot.variables) for slot in self._model.branch.slots
        ]
        self._blocking = sum(self._arrival(each.variable) for each in self._model.negation_models)
        self._merges = MergePlanner(estimator, costs, self._final_shares())

    def _arrival(self, variable: int) -> float:
        """Events per second; without a load only their ratios matter."""
        if self._load is not None and self._load.arrivals is not None:
            return self._load.arrivals.get(variable, 0.0)
        window_s = 1.0 if self._load is None else self._load.window_s
        return self._rates.get(variable, 0.0) / window_s

    def _final_shares(self) -> dict[int, float]:
        """For each slot that can hold the final event, the share of final events that it holds."""
        final = self._model.final
        total = sum(self._arrivals[slot] for slot in final)
        return {
            slot: self._arrivals[slot] / total if total > 0 else 1 / len(final) for slot in final
        }

    def score(self, prefix: Sequence[int], lazy: Sequence[int]) -> ApamPartition:
        """Eqs. 2 and 3 for one partition."""
        eager = tuple(sorted(prefix))
        groups: list[Shape] = [left_deep_shape(eager), *lazy] if eager else list(lazy)
        merging, shape = self._merges.cheapest(groups)
        # Eq. 7 for the slots of the LEG.
        services = {slot: self._costs.insert for slot in lazy} | self._eager_services(eager)
        shares = self._merges.finals
        # Eq. 8.
        final_service = sum(share * services[slot] for slot, share in shares.items()) + merging
        for slot in shares:
            services[slot] += merging
        mean, deviation = self._moments(services)
        rho = (sum(self._arrivals) + self._blocking) * mean if self._load is not None else inf
        latency = inf
        if rho < 1:
            variation = (deviation / mean) ** 2 if mean > 0 else 0.0
            latency = rho * mean / (2 * (1 - rho)) * (1 + variation) + final_service
        return ApamPartition(eager, tuple(lazy), latency, mean, rho, shape)

    def _eager_services(self, eager: Sequence[int]) -> dict[int, float]:
        """Eq. 6 for each slot of the EEG."""
        services = {}
        before = 0
        for slot in eager:
            services[slot] = self._costs.result
            if before:
                services[slot] = self._merges.eager(before, slot)
            before |= 1 << slot
        return services

    def _moments(self, services: Mapping[int, float]) -> tuple[float, float]:
        """Eqs. 4 and 5: the mean service time and its standard deviation."""
        rates = [(self._arrivals[slot], service) for slot, service in services.items()]
        rates.append((self._blocking, self._costs.insert))
        total = sum(rate for rate, _ in rates)
        if total <= 0:
            return 0.0, 0.0
        mean = sum(rate * service for rate, service in rates) / total
        # A product overflows to infinity, where a power would raise.
        squares = (rate * (service - mean) * (service - mean) for rate, service in rates)
        return mean, sqrt(sum(squares) / total)


# ---- merging -----------------------------------------------------------------------------------


class MergePlanner:
    """The cheapest order in which a final event merges the groups.

    A group is a slot whose events wait, or a shape whose partial matches are kept. A merge begins
    with the group of the final event, if there is only one such slot, and joins the other groups
    one after the other. `finals`: the slots that can be final, and the share of each.
    """

    def __init__(
        self, estimator: CardinalityEstimator, costs: OperationCosts, finals: Mapping[int, float]
    ) -> None:
        self.finals = finals
        self._estimator = estimator
        self._costs = costs
        self._joins: dict[tuple[int, int], float] = {}

    def cheapest(self, groups: Sequence[Shape]) -> tuple[float, Shape]:
        """T_M, the time of a merge, on average over the final slots, and the shape that it runs."""
        slots = {shape_slot_set(group): group for group in groups}
        states = {mask: (0.0, group) for mask, group in slots.items()}
        if len(self.finals) == 1:
            (final,) = self.finals
            states = {mask: state for mask, state in states.items() if mask >> final & 1}
        width = max(1, int(_BEAM_WIDTH * min(1.0, _FULL_WIDTH_GROUPS / len(groups)) ** 3))
        for _ in range(len(groups) - 1):
            grown: dict[int, tuple[float, Shape]] = {}
            for mask, (time, shape) in states.items():
                for other, group in slots.items():
                    if not mask & other:
                        total = time + self.join(mask, other)
                        both = mask | other
                        if both not in grown or total < grown[both][0]:
                            grown[both] = total, (shape, group)
            states = dict(nsmallest(width, grown.items(), key=lambda item: item[1][0]))
        (best,) = states.values()
        return best

    def join(self, left: int, right: int) -> float:
        """Eq. 9: one join of a merge, on average over the final slots."""
        known = self._joins.get((left, right))
        if known is None:
            both = left | right
            share = sum(share * self._final_share(f, both) for f, share in self.finals.items())
            known = self._joins[left, right] = self._window_time(left, right) * share
        return known

    def eager(self, before: int, slot: int) -> float:
        """Eq. 6: an event of the slot is joined with the partial matches of those before it."""
        rate = self._estimator.rate(slot)
        return self._window_time(before, 1 << slot) / rate if rate > 0 else 0.0

    def _final_share(self, final: int, both: int) -> float:
        """The share of a window's work on the slots `both` that is done for one final event: one
        row of the final slot takes part, and of the other slots all rows in the window before."""
        order = self._estimator.model.order
        if not both >> final & 1:
            # Per window of time k slots begin k times as many combinations as lie in one window.
            return 1 / both.bit_count()
        rate = self._estimator.rate(final)
        latest = order.count(both & ~(1 << final)) / order.count(both)
        return latest / rate if rate > 0 else 0.0

    def _window_time(self, left: int, right: int) -> float:
        """The time of a join per window. A pair costs something even if nothing is tested on it."""
        joined = self._estimator.join(left, right)
        tests = max(1, self._tests(left, right))
        return joined.pairs * tests * self._costs.pair + joined.partials * self._costs.result

    def _tests(self, left: int, right: int) -> int:
        """NP: the predicates that are evaluated on each pair."""
        model = self._estimator.model
        return sum(
            bool(c.slots & left and c.slots & right) and not model.uses_index(c, left, right)
            for c in model.within(left | right)
        )
