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
from math import inf, isfinite, sqrt
from typing import TYPE_CHECKING

from spark_cep.udfs.planning.merges import Merges
from spark_cep.udfs.planning.model import shape_slots
from spark_cep.udfs.planning.shapes import chain, slots_of
from spark_cep.udfs.planning.starts import cheapest_start
from spark_cep.udfs.program import BranchPlan

if TYPE_CHECKING:
    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.planning.figures import Figures
    from spark_cep.udfs.planning.model import BranchModel
    from spark_cep.udfs.program import Estimates, Shape


@dataclass(frozen=True)
class Load:
    """How fast events come: for each variable, candidates a second over all keys. Without them
    there is one key, and a window of `window_s` seconds holds what the estimates say."""

    window_s: float
    arrivals: Mapping[int, float] | None = None


@dataclass(frozen=True)
class Partition:
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


def partitions(
    model: BranchModel, estimates: Estimates, costs: Costs, load: Load | None = None
) -> list[Partition]:
    """The l + 1 partitions of the matching order, from all lazy to all eager. Without a load all
    events are there at once: every queue is longer than any server can keep up with."""
    order = slots_of(cheapest_start(model, estimates, costs).shape)
    queue = _Queue(model.given(estimates), costs, load)
    return [queue.scored(order[:cut], order[cut:]) for cut in range(len(order) + 1)]


def fastest(candidates: Sequence[Partition]) -> Partition:
    """The partition of the lowest latency; where every queue grows, of the fastest service."""
    if any(isfinite(each.latency) for each in candidates):
        return min(candidates, key=lambda each: each.latency)
    return min(candidates, key=lambda each: each.service)


# ---- the queue ---------------------------------------------------------------------------------


class _Queue:
    """An M/G/1 queue whose customers are the branch's events."""

    def __init__(self, figures: Figures, costs: Costs, load: Load | None) -> None:
        self._rates = figures.estimates.rates
        self._model = figures.model
        self._costs = costs
        self._load = load
        self._arrivals = [
            sum(self._arrival(v) for v in slot.variables) for slot in self._model.branch.slots
        ]
        self._blocking = sum(self._arrival(guard.variable) for guard in self._model.guards)
        self._merges = Merges(figures, costs, self._shares_of_final())

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

    def scored(self, first: Sequence[int], lazy: Sequence[int]) -> Partition:
        eager = tuple(sorted(first))
        groups: list[Shape] = [chain(eager), *lazy] if eager else list(lazy)
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
        return Partition(eager, tuple(lazy), latency, mean, rho, shape)

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


def hybrid_plan(
    model: BranchModel,
    estimates: Estimates,
    costs: Costs,
    groups: tuple[Sequence[int], Sequence[int]] | None = None,
    load: Load | None = None,
) -> BranchPlan:
    """The plan for given groups (eager, lazy), or else that of the fastest partition."""
    if groups is None:
        return fastest(partitions(model, estimates, costs, load)).plan
    return hybrid_shape(model, *groups, estimates)


def hybrid_shape(
    model: BranchModel, eager: Sequence[int], lazy: Sequence[int], estimates: Estimates
) -> BranchPlan:
    """The plan for given groups: `lazy` slots are merged in their order, but for the final slot,
    which every merge begins with; the eager group joins where that makes fewest pairs."""
    group = tuple(sorted(eager))
    final = model.final[0] if len(model.final) == 1 else -1
    # Python's sort is stable: but for the final slot, the order stays.
    parts: list[Shape] = [*sorted(lazy, key=lambda slot: slot != final)]
    if not group:
        return BranchPlan(_merged(parts))
    figures = model.given(estimates)
    first, last = int(final in lazy), 0 if final in group else len(parts)
    merged = [
        _merged([*parts[:place], chain(group), *parts[place:]]) for place in range(first, last + 1)
    ]
    return BranchPlan(min(merged, key=lambda shape: _pairs(figures, shape)), group)


def _merged(parts: Sequence[Shape]) -> Shape:
    shape = parts[0]
    for part in parts[1:]:
        shape = (shape, part)
    return shape


def _pairs(figures: Figures, shape: Shape) -> float:
    if isinstance(shape, int):
        return 0.0
    joined = figures.pairs(shape_slots(shape[0]), shape_slots(shape[1]))
    return _pairs(figures, shape[0]) + _pairs(figures, shape[1]) + joined
