"""APAM: which slots are evaluated as their events arrive, which are left for the final event.

The matching order is the cheapest greedy one. Each of its prefixes may be the eager group
(evaluated in the order of the pattern, its partial matches kept), the rest is lazy (kept as
events). Each of these l + 1 partitions is scored by its latency in an M/G/1 queue: the wait for
what arrived before, and the service of the final event, which merges everything (Eqs. 1-9).

Three readings. Eq. 5 is a standard deviation, the root of the sum. Only the arriving final event
is in play at a merge, so its slot counts for one row there, not for a window's. And the engine
finds rows in sequence by position, before it looks at any pair: sequence predicates thin out the
pairs of Eq. 9 and are not evaluated on them, as Eq. 6 has it for eager events. Tested on every
pair they would make a merge of five slots three times as dear as it is.
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


# --------------------------------------------------------------------------------------------------
# What an arriving event meets, and the cheapest order to merge groups when it is the final one.
#
# A group is a slot whose events wait, or a shape whose partial matches are kept. A merge begins
# with the group of the final event, where there is one such slot, and joins the others one after
# the other.
# --------------------------------------------------------------------------------------------------


# How many sets of merged groups are followed at a time: all of them up to nine groups. Beyond it
# fewer, as the work of all partitions is cubic: 40 slots took 15 s with 70 sets, 1.3 s so.
_BEAM_WIDTH: Final = 70
_FULL_WIDTH_GROUPS: Final = 9


class MergePlanner:
    """`finals`: the slots that can be final, and how often each is."""

    def __init__(
        self, figures: CardinalityEstimator, costs: OperationCosts, finals: Mapping[int, float]
    ) -> None:
        self.finals = finals
        self._figures = figures
        self._costs = costs
        self._known: dict[tuple[int, int], float] = {}

    def eager(self, before: int, slot: int) -> float:
        """Eq. 6: an event of the slot is joined with the partial matches of those before it."""
        rate = self._figures.rate(slot)
        return self._time(before, 1 << slot) / rate if rate > 0 else 0.0

    def _in_play(self, final: int, both: int) -> float:
        """What share of a window's work on the slots `both` is done when a final event has come:
        of its slot nothing else is in play; of the others all in the window before it."""
        order = self._figures.model.order
        if not both >> final & 1:
            # Per window of time k slots begin k times as many combinations as lie in one window.
            return 1 / both.bit_count()
        rate = self._figures.rate(final)
        latest = order.count(both & ~(1 << final)) / order.count(both)
        return latest / rate if rate > 0 else 0.0

    def _time(self, left: int, right: int) -> float:
        """Per window of time. A pair is looked at even where there is nothing to test."""
        joined = self._figures.join(left, right)
        tested = max(1, self._tested(left, right))
        return joined.pairs * tested * self._costs.pair + joined.partials * self._costs.result

    def _tested(self, left: int, right: int) -> int:
        model = self._figures.model
        return sum(
            bool(a.slots & left and a.slots & right) and not model.is_looked_up(a, left, right)
            for a in model.within(left | right)
        )

    def cheapest(self, groups: Sequence[Shape]) -> tuple[float, Shape]:
        """The time of a merge, on average over the finals, and the shape that it runs."""
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
        (found,) = states.values()
        return found

    def join(self, left: int, right: int) -> float:
        """Eq. 9: a join when a final event has come, whichever that is."""
        known = self._known.get((left, right))
        if known is None:
            both = left | right
            in_play = sum(share * self._in_play(f, both) for f, share in self.finals.items())
            known = self._known[left, right] = self._time(left, right) * in_play
        return known


@dataclass(frozen=True)
class EventLoad:
    """How fast events come: for each variable, candidates a second over all keys. Without them
    there is one key, and a window of `window_s` seconds holds what the estimates say."""

    window_s: float
    arrivals: Mapping[int, float] | None = None


@dataclass(frozen=True)
class ApamPartition:
    """`latency` and `service` (of an event, on average) in seconds; `rho` is the utilization: at
    1 and above the queue only grows, and the latency is infinite."""

    eager: tuple[int, ...]
    lazy: tuple[int, ...]
    latency: float
    service: float
    rho: float
    shape: Shape

    @property
    def plan(self) -> BranchPlan:
        return BranchPlan(self.shape, self.eager)


def apam_partitions(
    model: BranchModel, estimates: Estimates, costs: OperationCosts, load: EventLoad | None = None
) -> list[ApamPartition]:
    """The l + 1 partitions of the matching order, from all lazy to all eager. Without a load all
    events are there at once: every queue is longer than any server can keep up with."""
    order = slots_of(plan_lazy_chain(model, estimates, costs).shape)
    queue = _EventQueue(model.given(estimates), costs, load)
    return [queue.scored(order[:cut], order[cut:]) for cut in range(len(order) + 1)]


def fastest_partition(candidates: Sequence[ApamPartition]) -> ApamPartition:
    """The partition of the lowest latency; where every queue grows, of the fastest service."""
    if any(isfinite(each.latency) for each in candidates):
        return min(candidates, key=lambda each: each.latency)
    return min(candidates, key=lambda each: each.service)


# ---- the queue ---------------------------------------------------------------------------------


class _EventQueue:
    """An M/G/1 queue whose customers are the branch's events."""

    def __init__(
        self, figures: CardinalityEstimator, costs: OperationCosts, load: EventLoad | None
    ) -> None:
        self._rates = figures.estimates.rates
        self._model = figures.model
        self._costs = costs
        self._load = load
        self._arrivals = [
            sum(self._arrival(v) for v in slot.variables) for slot in self._model.branch.slots
        ]
        self._blocking = sum(self._arrival(guard.variable) for guard in self._model.guards)
        self._merges = MergePlanner(figures, costs, self._shares_of_final())

    def _arrival(self, variable: int) -> float:
        """Events a second; without a load only their shares matter."""
        if self._load is not None and self._load.arrivals is not None:
            return self._load.arrivals.get(variable, 0.0)
        window_s = 1.0 if self._load is None else self._load.window_s
        return self._rates.get(variable, 0.0) / window_s

    def _shares_of_final(self) -> dict[int, float]:
        """How often each slot that can be final is it."""
        final = self._model.final
        total = sum(self._arrivals[slot] for slot in final)
        return {
            slot: self._arrivals[slot] / total if total > 0 else 1 / len(final) for slot in final
        }

    def scored(self, first: Sequence[int], lazy: Sequence[int]) -> ApamPartition:
        eager = tuple(sorted(first))
        groups: list[Shape] = [left_deep_shape(eager), *lazy] if eager else list(lazy)
        merging, shape = self._merges.cheapest(groups)
        services = {slot: self._costs.insert for slot in lazy} | self._eager_services(eager)
        shares = self._merges.finals
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
        """Eq. 6, for one event of each slot: tried with the partial matches of the slots before."""
        services = {}
        before = 0
        for slot in eager:
            services[slot] = self._costs.result
            if before:
                services[slot] = self._merges.eager(before, slot)
            before |= 1 << slot
        return services

    def _moments(self, services: Mapping[int, float]) -> tuple[float, float]:
        """Eqs. 4 and 5: the mean service and its standard deviation."""
        rates = [(self._arrivals[slot], service) for slot, service in services.items()]
        rates.append((self._blocking, self._costs.insert))
        total = sum(rate for rate, _ in rates)
        if total <= 0:
            return 0.0, 0.0
        mean = sum(rate * service for rate, service in rates) / total
        # A product overflows to infinity, where a power would raise.
        squares = (rate * (service - mean) * (service - mean) for rate, service in rates)
        return mean, sqrt(sum(squares) / total)


# ---- plans -------------------------------------------------------------------------------------


def plan_hybrid(
    model: BranchModel,
    estimates: Estimates,
    costs: OperationCosts,
    groups: tuple[Sequence[int], Sequence[int]] | None = None,
    load: EventLoad | None = None,
) -> BranchPlan:
    """The plan for given groups (eager, lazy), or else that of the fastest partition."""
    if groups is None:
        return fastest_partition(apam_partitions(model, estimates, costs, load)).plan
    return plan_hybrid_groups(model, *groups, estimates)


def plan_hybrid_groups(
    model: BranchModel, eager: Sequence[int], lazy: Sequence[int], estimates: Estimates
) -> BranchPlan:
    """The plan for given groups: `lazy` slots are merged in their order, but for the final slot,
    which every merge begins with; the eager group joins where that makes fewest pairs."""
    group = tuple(sorted(eager))
    final = model.final[0] if len(model.final) == 1 else -1
    # Python's sort is stable: but for the final slot, the order stays.
    parts: list[Shape] = [*sorted(lazy, key=lambda slot: slot != final)]
    if not group:
        return BranchPlan(_left_deep(parts))
    figures = model.given(estimates)
    first, last = int(final in lazy), 0 if final in group else len(parts)
    merged = [
        _left_deep([*parts[:place], left_deep_shape(group), *parts[place:]])
        for place in range(first, last + 1)
    ]
    return BranchPlan(min(merged, key=lambda shape: _shape_pairs(figures, shape)), group)


def _left_deep(parts: Sequence[Shape]) -> Shape:
    shape = parts[0]
    for part in parts[1:]:
        shape = (shape, part)
    return shape


def _shape_pairs(figures: CardinalityEstimator, shape: Shape) -> float:
    if isinstance(shape, int):
        return 0.0
    joined = figures.pairs(shape_slot_set(shape[0]), shape_slot_set(shape[1]))
    return _shape_pairs(figures, shape[0]) + _shape_pairs(figures, shape[1]) + joined
