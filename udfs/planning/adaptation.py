"""When a plan is made anew, and whether the new one is taken: the detection-adaptation loop.

A `Decision` looks at current statistics and gives a reason to plan again, or none. The `Adapter`
asks it between advances, has the planner make a plan, and takes that if it is expected to cost
less than the plan in force under the same statistics. Whichever is taken, the decision goes on
from what the planner made last: until one of those reasons fails, it would make the same again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from spark_cep.udfs.planning.cost_model import PlanCost
from spark_cep.udfs.planning.invariants import (
    InvariantDistance,
    describe_violation,
    first_violation,
    select_invariants,
)
from spark_cep.udfs.planning.planner import ADAPTABLE, PlanGenerator, assemble_plan
from spark_cep.udfs.program import Estimates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_cep.udfs.planning.cost_model import BranchModel
    from spark_cep.udfs.planning.invariants import Comparison, GeneratedPlan
    from spark_cep.udfs.program import Adaptation, Plan


# --------------------------------------------------------------------------------------------------
# Statistics kept in a worker while it matches: sums over a sliding window of advances.
#
# Rates are exact: candidates per window of a key, as counted. Selectivities come from the pairs
# that were tested anyway, so they cost nothing; a condition that was hardly tested keeps what was
# last known of it. An advance adds its counts and takes those of the oldest one away: the work is
# proportional to the number of variables and conditions, whatever the window, and so is the memory
# for each advance remembered.
# --------------------------------------------------------------------------------------------------


# With n tests a selectivity of one half is known to 1 / (2 sqrt(n)): here to 5 %.
ENOUGH_TESTS: Final = 100


@dataclass(frozen=True)
class _AdvanceCounts:
    counts: Mapping[int, int]
    stretches: int
    conditions: Mapping[int, tuple[int, int]]


@dataclass
class SlidingStatistics:
    """The latest `advances`. `initial` is what was known before the first."""

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
        """What an advance saw: candidates of each variable, windows of keys, and for each
        condition how many combinations were tested and how many of them it kept."""
        advance = _AdvanceCounts(dict(counts), stretches, dict(conditions))
        self._latest.append(advance)
        self._change(advance, 1)
        if len(self._latest) > self.advances:
            self._change(self._latest.popleft(), -1)
        self._know(conditions)

    def _change(self, advance: _AdvanceCounts, sign: int) -> None:
        self._stretches += sign * advance.stretches
        for variable, count in advance.counts.items():
            self._counts[variable] += sign * count
        for index, (tested, kept) in advance.conditions.items():
            self._tested[index] += sign * tested
            self._kept[index] += sign * kept

    def _know(self, conditions: Iterable[int]) -> None:
        for index in conditions:
            tested = self._tested[index]
            if tested >= ENOUGH_TESTS:
                # Nothing kept of n is less than one of n, but it is not never.
                self._selectivities[index] = max(self._kept[index], 0.5) / tested

    def estimates(self) -> Estimates:
        """What is known now. Without any window seen yet, what was known before."""
        rates = dict(self.initial.rates)
        if self._stretches:
            rates |= dict.fromkeys(rates, 0.0)
            rates |= {v: count / self._stretches for v, count in self._counts.items()}
        return Estimates(
            rates, dict(self._selectivities), self.initial.windows, self.initial.places
        )


# Sums in another order differ by rounding: equal plans must not take turns.
_NO_GAIN: Final = 1e-9


class DecisionFunction(Protocol):
    """The function D of the loop."""

    def check(self, estimates: Estimates) -> str | None:
        """Why another plan should be made, if it should."""

    def made(
        self, generated: Sequence[GeneratedPlan], estimates: Estimates, gain: float | None = None
    ) -> None:
        """The planner made this, one a branch. `gain`: what share of the cost of the plan in
        force it saves; None for the first plan."""


class NeverDecision:
    """Never."""

    def check(self, estimates: Estimates) -> str | None:
        del estimates
        return None

    def made(
        self, generated: Sequence[GeneratedPlan], estimates: Estimates, gain: float | None = None
    ) -> None:
        pass


class AlwaysDecision(NeverDecision):
    """After every advance."""

    def check(self, estimates: Estimates) -> str | None:
        del estimates
        return "a plan is made after every advance"


class ThresholdDecision:
    """When any rate or selectivity has changed by more than a share of what it was when the plan
    was made. `names`: of the variables, and the texts of the conditions."""

    def __init__(self, threshold: float, names: Sequence[str], texts: Sequence[str]) -> None:
        self._threshold = threshold
        self._names = {"rate": names, "sel": texts}
        self._then: Estimates | None = None

    def check(self, estimates: Estimates) -> str | None:
        assert self._then is not None
        return self._changed("rate", self._then.rates, estimates.rates) or self._changed(
            "sel", self._then.selectivities, estimates.selectivities
        )

    def _changed(
        self, what: str, then: Mapping[int, float], now: Mapping[int, float]
    ) -> str | None:
        for number, value in now.items():
            before = then.get(number)
            if before is not None and abs(value - before) > self._threshold * before:
                return f"{what}({self._names[what][number]}) went from {before:.3g} to {value:.3g}"
        return None

    def made(
        self, generated: Sequence[GeneratedPlan], estimates: Estimates, gain: float | None = None
    ) -> None:
        self._then = estimates


class InvariantDecision:
    """When an invariant of the plan is violated."""

    def __init__(
        self, k: int | None, distance: InvariantDistance, names: Sequence[Sequence[str]]
    ) -> None:
        self.distance = distance
        self._k = k
        self._names = names
        self._kept: list[tuple[Comparison, ...]] = []

    def check(self, estimates: Estimates) -> str | None:
        for conditions, names in zip(self._kept, self._names, strict=True):
            found = first_violation(conditions, estimates, self.distance.value)
            if found is not None:
                return describe_violation(found, estimates, names)
        return None

    def made(
        self, generated: Sequence[GeneratedPlan], estimates: Estimates, gain: float | None = None
    ) -> None:
        self.distance.made(generated, estimates, gain)
        self._kept = [select_invariants(each, self._k, estimates) for each in generated]

    def texts(self) -> list[str]:
        """What is verified, in order."""
        return [
            condition.text(names)
            for conditions, names in zip(self._kept, self._names, strict=True)
            for condition in conditions
        ]


def make_decision(adaptation: Adaptation, models: Sequence[BranchModel]) -> DecisionFunction:
    """The decision function that was asked for."""
    if adaptation.kind == "always":
        return AlwaysDecision()
    if adaptation.kind == "threshold":
        names = [variable.name for variable in models[0].variables]
        return ThresholdDecision(adaptation.threshold, names, models[0].texts)
    if adaptation.kind == "invariants":
        distance = InvariantDistance(adaptation.distance)
        return InvariantDecision(adaptation.k, distance, [model.names for model in models])
    return NeverDecision()


# ---- the loop ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanSwap:
    """One plan took the place of another. `gain`: the share of the cost that it saves."""

    before: Plan
    after: Plan
    because: str
    gain: float


@dataclass
class Adapter:
    """The plan in force, and what adapting took. Begins with the plan for the first estimates.

    `checks`: how often the statistics were looked at; `plannings`: how often a plan was made;
    `seconds`: the time for both.
    """

    adaptation: Adaptation
    generators: Sequence[PlanGenerator]
    estimates: Estimates
    checks: int = 0
    plannings: int = 0
    seconds: float = 0.0
    swaps: list[PlanSwap] = field(default_factory=list)

    def __post_init__(self) -> None:
        start = perf_counter()
        self._kind = self.generators[0].kind
        adapts = self.adaptation.kind != "off" and self._kind in ADAPTABLE
        self.decision = (
            make_decision(self.adaptation, [g.model for g in self.generators])
            if adapts
            else NeverDecision()
        )
        self._generated = self._made(self.estimates)
        self.decision.made(self._generated, self.estimates)
        self.plan = assemble_plan(self._kind, self._generated)
        self.seconds += perf_counter() - start

    def after(self, estimates: Estimates, because: str | None = None) -> PlanSwap | None:
        """Looks at the statistics between advances; the swap, if the plan is another one now.
        `because`: a reason to plan anew that the caller has seen."""
        if type(self.decision) is NeverDecision:
            return None
        start = perf_counter()
        self.checks += 1
        because = self.decision.check(estimates) or because
        swap = None if because is None else self._replanned(estimates, because)
        self.seconds += perf_counter() - start
        return swap

    def _replanned(self, estimates: Estimates, because: str) -> PlanSwap | None:
        self.plannings += 1
        generated = self._made(estimates)
        now = self._cost(self._generated, estimates).time
        new = self._cost(generated, estimates).time
        gain = 1.0 - new / now if now > 0 else 0.0
        self.decision.made(generated, estimates, gain)
        if gain < _NO_GAIN:
            return None
        self._generated = generated
        swap = PlanSwap(self.plan, assemble_plan(self._kind, generated), because, gain)
        self.plan = swap.after
        self.swaps.append(swap)
        return swap

    def _made(self, estimates: Estimates) -> list[GeneratedPlan]:
        return [generator.make(estimates) for generator in self.generators]

    def cost(self, estimates: Estimates) -> PlanCost:
        """What the plan in force is expected to cost under these statistics."""
        return self._cost(self._generated, estimates)

    def _cost(self, generated: Sequence[GeneratedPlan], estimates: Estimates) -> PlanCost:
        total = PlanCost(0.0, 0.0, 0.0)
        for generator, each in zip(self.generators, generated, strict=True):
            total = total + generator.cost(each.shape, estimates)
        return total
