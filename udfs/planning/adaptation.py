"""The detection-adaptation loop (Algorithm 1): when to plan again, and whether to take the plan.

Between advances, the `Adapter` asks a `DecisionFunction` whether the current statistics are a
reason to plan again. If so, it takes the new plan if that is expected to cost less than the plan in
force under the same statistics, by more than the errors of the statistics explain. In either case
the decision continues from the plan that was made last: as long as the reasons for that plan hold,
the planner would make the same plan again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from spark_cep.udfs.planning.compiled_invariants import CompiledInvariants
from spark_cep.udfs.planning.invariants import (
    InvariantDistance,
    describe_violation,
    first_violation,
    select_invariants,
)
from spark_cep.udfs.planning.planner import assemble_plan
from spark_cep.udfs.program import Estimates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_cep.udfs.planning.cost_model import BranchModel
    from spark_cep.udfs.planning.invariants import Comparison, GeneratedPlan
    from spark_cep.udfs.program import Adaptation, Plan, PlanKind


# A plan is replaced where the gain exceeds so many of its standard errors.
SURE_ERRORS: Final = 1.0
# A plan that was refused is made again when a statistic has changed by this factor.
STATISTIC_CHANGE_FACTOR: Final = 1.25
# What a trigger brings varies more, and after a first trigger with all that was waiting its average
# falls for a while; each time all groups are looked at again.
LOAD_CHANGE_FACTOR: Final = 2.0
# Smaller rates change by that factor by chance.
LEAST_RATE: Final = 2.0
# Sums in another order differ by rounding: equal plans must not alternate.
_NO_GAIN: Final = 1e-9
# With n tests a selectivity of one half is known to 1 / (2 sqrt(n)): here to 5 %.
ENOUGH_TESTS: Final = 100


# ---- the loop ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanSwap:
    """One plan replaced another. `gain`: the share of the cost that this saves."""

    before: Plan
    after: Plan
    because: str
    gain: float


class BranchPlanGenerator(Protocol):
    """Makes the plans of one branch. `seconds`: of a plan that was made before. `is_linear`:
    whether each selectivity is a factor of them, at most once."""

    @property
    def kind(self) -> PlanKind: ...

    @property
    def model(self) -> BranchModel: ...

    def make(self, estimates: Estimates) -> GeneratedPlan: ...

    @property
    def is_linear(self) -> bool: ...

    def seconds(self, generated: GeneratedPlan, estimates: Estimates) -> float: ...


@dataclass
class Adapter:
    """The plan in force, and what adapting has cost. Begins with the plan for the first estimates,
    or with the plans `begin`; `first` is the reason to make others.

    `least_gain`: the share of the cost that a new plan has to save. `checks`: how often the
    statistics were checked; `plannings`: how often a plan was made; `seconds`: the time for both.
    """

    adaptation: Adaptation
    generators: Sequence[BranchPlanGenerator]
    estimates: Estimates
    begin: Sequence[GeneratedPlan] | None = None
    first: str = "the statistics are known better"
    least_gain: float = 0.0
    checks: int = 0
    plannings: int = 0
    seconds: float = 0.0
    swaps: list[PlanSwap] = field(default_factory=list)

    def __post_init__(self) -> None:
        start = perf_counter()
        self._kind = self.generators[0].kind
        self.decision = make_decision(self.adaptation, [g.model for g in self.generators])
        self._is_linear = all(generator.is_linear for generator in self.generators)
        # The estimates under which a plan was made and not taken.
        self._refused: Estimates | None = None
        if self.begin is None:
            self._generated: Sequence[GeneratedPlan] = self._generate(self.estimates)
        else:
            self._generated, self._refused = self.begin, Estimates({})
        self.decision.record_plan(self._generated, self.estimates)
        self.plan = assemble_plan(self._kind, self._generated)
        self.seconds += perf_counter() - start

    def after(self, estimates: Estimates, because: str | None = None) -> PlanSwap | None:
        """Checks the statistics after an advance; returns the swap if there is a new plan.
        `because`: a reason to plan again that the caller has found."""
        if type(self.decision) is NeverDecision:
            return None
        start = perf_counter()
        self.checks += 1
        because = self.decision.check(estimates) or because
        if because is None and self._refused is not None:
            has_changed = estimates_differ(self._refused, estimates)
            because = self.first if has_changed else None
        swap = None if because is None else self._plan_again(estimates, because)
        self.seconds += perf_counter() - start
        return swap

    def _plan_again(self, estimates: Estimates, because: str) -> PlanSwap | None:
        self.plannings += 1
        generated = self._generate(estimates)
        now, new = self.seconds_of_plan(estimates), self._seconds(generated, estimates)
        gain = 1.0 - new / now if now > 0 else 0.0
        self.decision.record_plan(generated, estimates, gain)
        self._refused = None
        if gain < _NO_GAIN:
            # A greedy planner may make a plan that costs more now and less later.
            if any(a.shape != b.shape for a, b in zip(generated, self._generated, strict=True)):
                self._refused = estimates
            return None
        if gain < self.least_gain or not self._is_sure(generated, estimates, (now, new)):
            self._refused = estimates
            return None
        self._generated = generated
        swap = PlanSwap(self.plan, assemble_plan(self._kind, generated), because, gain)
        self.plan = swap.after
        self.swaps.append(swap)
        return swap

    def _is_sure(
        self, generated: Sequence[GeneratedPlan], estimates: Estimates, seconds: tuple[float, float]
    ) -> bool:
        """Whether the gain exceeds its standard error: how much it changes where a selectivity is
        one error larger than was measured. `seconds`: of the plan in force and of the new one."""
        now, new = seconds
        gain = now - new
        if self._is_linear:
            # Then no plan takes longer by more than these errors together.
            most = sqrt(sum(error**2 for error in estimates.errors.values())) * max(now, new)
            if gain >= SURE_ERRORS * most:
                return True
        variance = 0.0
        for place, error in estimates.errors.items():
            larger = min(1.0, estimates.selectivities[place] * (1 + error))
            moved = replace(estimates, selectivities={**estimates.selectivities, place: larger})
            there = self.seconds_of_plan(moved) - self._seconds(generated, moved)
            variance += (there - gain) ** 2
        return not gain < SURE_ERRORS * sqrt(variance)

    def _generate(self, estimates: Estimates) -> list[GeneratedPlan]:
        return [generator.make(estimates) for generator in self.generators]

    def seconds_of_plan(self, estimates: Estimates) -> float:
        """What the plan in force is expected to take under these statistics."""
        return self._seconds(self._generated, estimates)

    def _seconds(self, generated: Sequence[GeneratedPlan], estimates: Estimates) -> float:
        plans = zip(self.generators, generated, strict=True)
        return sum(generator.seconds(each, estimates) for generator, each in plans)


def estimates_differ(before: Estimates, now: Estimates) -> bool:
    """Whether a statistic or its error has changed by the factor."""
    if _values_differ(before.rates, now.rates, LEAST_RATE) or _loads_differ(before, now):
        return True
    groups = (
        (before.selectivities, now.selectivities),
        (before.joint, now.joint),
        (before.errors, now.errors),
    )
    return any(_values_differ(old, new) for old, new in groups)


def _loads_differ(before: Estimates, now: Estimates) -> bool:
    if before.load is None or now.load is None:
        return before.load is not now.load
    old, new = before.load, now.load
    if (old.arrivals is None, old.is_idle) != (new.arrivals is None, new.is_idle):
        return True
    return _values_differ({0: old.events}, {0: new.events}, LEAST_RATE, LOAD_CHANGE_FACTOR)


def _values_differ(
    before: Mapping[Any, float],
    now: Mapping[Any, float],
    least: float = 0.0,
    factor: float = STATISTIC_CHANGE_FACTOR,
) -> bool:
    if before.keys() != now.keys():
        return True
    for key, value in now.items():
        low, high = sorted((before[key], value))
        if high + least > factor * (low + least):
            return True
    return False


# ---- decision functions ------------------------------------------------------------------------


class DecisionFunction(Protocol):
    """The reoptimizing decision function D."""

    def check(self, estimates: Estimates) -> str | None:
        """The reason to plan again, None if there is none."""

    def record_plan(
        self, generated: Sequence[GeneratedPlan], estimates: Estimates, gain: float | None = None
    ) -> None:
        """Takes note of what the planner made, one plan per branch. `gain`: the share of the cost
        of the plan in force that it saves; None for the first plan."""


def make_decision(adaptation: Adaptation, models: Sequence[BranchModel]) -> DecisionFunction:
    """The decision function of an adaptation."""
    if adaptation.kind == "always":
        return AlwaysDecision()
    if adaptation.kind == "threshold":
        names = [variable.name for variable in models[0].variables]
        return ThresholdDecision(adaptation.threshold, names, models[0].texts)
    if adaptation.kind == "invariants":
        distance = InvariantDistance(adaptation.distance)
        return InvariantDecision(adaptation.k, distance, [model.names for model in models])
    return NeverDecision()


class NeverDecision:
    """Never plans again."""

    def check(self, estimates: Estimates) -> str | None:
        del estimates
        return None

    def record_plan(
        self, generated: Sequence[GeneratedPlan], estimates: Estimates, gain: float | None = None
    ) -> None:
        pass


class AlwaysDecision(NeverDecision):
    """Plans again after every advance."""

    def check(self, estimates: Estimates) -> str | None:
        del estimates
        return "a plan is made after every advance"


class ThresholdDecision:
    """Plans again when a rate or selectivity has changed by more than a share of its value when the
    plan was made. `names`: of the variables; `texts`: of the conditions."""

    def __init__(self, threshold: float, names: Sequence[str], texts: Sequence[str]) -> None:
        self._threshold = threshold
        self._names = {"rate": names, "sel": texts}
        self._planned: Estimates | None = None

    def check(self, estimates: Estimates) -> str | None:
        assert self._planned is not None
        return self._change("rate", self._planned.rates, estimates.rates) or self._change(
            "sel", self._planned.selectivities, estimates.selectivities
        )

    def _change(self, what: str, then: Mapping[int, float], now: Mapping[int, float]) -> str | None:
        for number, value in now.items():
            before = then.get(number)
            if before is not None and abs(value - before) > self._threshold * before:
                return f"{what}({self._names[what][number]}) went from {before:.3g} to {value:.3g}"
        return None

    def record_plan(
        self, generated: Sequence[GeneratedPlan], estimates: Estimates, gain: float | None = None
    ) -> None:
        self._planned = estimates


class InvariantDecision:
    """Plans again when an invariant of the plan is violated."""

    def __init__(
        self, k: int | None, distance: InvariantDistance, names: Sequence[Sequence[str]]
    ) -> None:
        self.distance = distance
        self._k = k
        self._names = names
        self._invariants: list[tuple[Comparison, ...]] = []
        self._compiled: CompiledInvariants | None = None
        self._is_checked = False

    def check(self, estimates: Estimates) -> str | None:
        if self._compiled is not None and self._compiled.hold(estimates):
            return None
        violation = self._violation(estimates)
        if violation is None and self._compiled is None:
            # Compiling takes as long as some exact checks, and many plans are checked once.
            if self._is_checked:
                flat = [each for invariants in self._invariants for each in invariants]
                self._compiled = CompiledInvariants(flat, self.distance.value)
            self._is_checked = True
        return violation

    def _violation(self, estimates: Estimates) -> str | None:
        for invariants, names in zip(self._invariants, self._names, strict=True):
            violation = first_violation(invariants, estimates, self.distance.value)
            if violation is not None:
                return describe_violation(violation, estimates, names)
        return None

    def record_plan(
        self, generated: Sequence[GeneratedPlan], estimates: Estimates, gain: float | None = None
    ) -> None:
        self.distance.record_plan(generated, estimates, gain)
        self._invariants = [select_invariants(each, self._k, estimates) for each in generated]
        self._compiled, self._is_checked = None, False

    def texts(self) -> list[str]:
        """The invariants in the order in which they are verified."""
        return [
            invariant.text(names)
            for invariants, names in zip(self._invariants, self._names, strict=True)
            for invariant in invariants
        ]


# ---- statistics --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _AdvanceCounts:
    counts: Mapping[int, int]
    stretches: int
    conditions: Mapping[int, tuple[int, int]]


@dataclass
class SlidingStatistics:
    """Statistics that a worker keeps while it matches: sums over the latest `advances`.

    Rates are exact: candidates per window of a key, as counted. Selectivities come from the pairs
    that were tested anyway, so they cost nothing; a condition that was hardly tested keeps the
    value that was last known. An advance adds its counts and subtracts those of the oldest one:
    time, and memory per advance remembered, are proportional to the number of variables and
    conditions, whatever the window. `initial` is what was known before the first advance.
    """

    initial: Estimates
    advances: int = 8
    _latest: deque[_AdvanceCounts] = field(default_factory=deque)
    _counts: Counter[int] = field(default_factory=Counter)
    _tested: Counter[int] = field(default_factory=Counter)
    _kept: Counter[int] = field(default_factory=Counter)
    _stretches: int = 0
    _selectivities: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._selectivities.update(self.initial.selectivities)

    def add(
        self,
        counts: Mapping[int, int],
        stretches: int,
        conditions: Mapping[int, tuple[int, int]],
    ) -> None:
        """The counts of an advance: candidates of each variable, windows of keys (`stretches`), and
        for each condition how many combinations were tested and how many of them it kept."""
        advance = _AdvanceCounts(dict(counts), stretches, dict(conditions))
        self._latest.append(advance)
        self._change(advance, 1)
        if len(self._latest) > self.advances:
            self._change(self._latest.popleft(), -1)
        self._update_selectivities(conditions)

    def estimates(self) -> Estimates:
        """The current estimates; before any window was counted, the initial ones."""
        rates = dict(self.initial.rates)
        if self._stretches:
            rates |= dict.fromkeys(rates, 0.0)
            rates |= {v: count / self._stretches for v, count in self._counts.items()}
        return Estimates(
            rates, dict(self._selectivities), self.initial.windows, self.initial.places
        )

    def _change(self, advance: _AdvanceCounts, sign: int) -> None:
        self._stretches += sign * advance.stretches
        for variable, count in advance.counts.items():
            self._counts[variable] += sign * count
        for index, (tested, kept) in advance.conditions.items():
            self._tested[index] += sign * tested
            self._kept[index] += sign * kept

    def _update_selectivities(self, conditions: Iterable[int]) -> None:
        for index in conditions:
            tested = self._tested[index]
            if tested >= ENOUGH_TESTS:
                # If nothing was kept of n, the selectivity is below one in n, but it is not zero.
                self._selectivities[index] = max(self._kept[index], 0.5) / tested
