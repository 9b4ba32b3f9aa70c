"""When a plan is made anew, and whether the new one is taken: the detection-adaptation loop.

A `Decision` looks at current statistics and gives a reason to plan again, or none. The `Adapter`
asks it between advances, has the planner make a plan, and takes that if it is expected to cost
less than the plan in force under the same statistics. Whichever is taken, the decision goes on
from what the planner made last: until one of those reasons fails, it would make the same again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from spark_cep.udfs.planning.generate import ADAPTABLE, Generator, plan_from
from spark_cep.udfs.planning.invariants import Distance, invariants, reason, violated
from spark_cep.udfs.planning.model import Cost

if TYPE_CHECKING:
    from spark_cep.udfs.planning.blocks import Comparison, Generated
    from spark_cep.udfs.planning.model import BranchModel
    from spark_cep.udfs.program import Adaptation, Estimates, Plan


# Sums in another order differ by rounding: equal plans must not take turns.
_NO_GAIN: Final = 1e-9


class Decision(Protocol):
    """The function D of the loop."""

    def check(self, estimates: Estimates) -> str | None:
        """Why another plan should be made, if it should."""

    def made(
        self, generated: Sequence[Generated], estimates: Estimates, gain: float | None = None
    ) -> None:
        """The planner made this, one a branch. `gain`: what share of the cost of the plan in
        force it saves; None for the first plan."""


class Off:
    """Never."""

    def check(self, estimates: Estimates) -> str | None:
        del estimates
        return None

    def made(
        self, generated: Sequence[Generated], estimates: Estimates, gain: float | None = None
    ) -> None:
        pass


class Always(Off):
    """After every advance."""

    def check(self, estimates: Estimates) -> str | None:
        del estimates
        return "a plan is made after every advance"


class Threshold:
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
        self, generated: Sequence[Generated], estimates: Estimates, gain: float | None = None
    ) -> None:
        self._then = estimates


class Invariants:
    """When an invariant of the plan is violated."""

    def __init__(self, k: int | None, distance: Distance, names: Sequence[Sequence[str]]) -> None:
        self.distance = distance
        self._k = k
        self._names = names
        self._kept: list[tuple[Comparison, ...]] = []

    def check(self, estimates: Estimates) -> str | None:
        for conditions, names in zip(self._kept, self._names, strict=True):
            found = violated(conditions, estimates, self.distance.value)
            if found is not None:
                return reason(found, estimates, names)
        return None

    def made(
        self, generated: Sequence[Generated], estimates: Estimates, gain: float | None = None
    ) -> None:
        self.distance.made(generated, estimates, gain)
        self._kept = [invariants(each, self._k, estimates) for each in generated]

    def texts(self) -> list[str]:
        """What is verified, in order."""
        return [
            condition.text(names)
            for conditions, names in zip(self._kept, self._names, strict=True)
            for condition in conditions
        ]


def decision(adaptation: Adaptation, models: Sequence[BranchModel]) -> Decision:
    """The decision function that was asked for."""
    if adaptation.kind == "always":
        return Always()
    if adaptation.kind == "threshold":
        names = [variable.name for variable in models[0].variables]
        return Threshold(adaptation.threshold, names, models[0].texts)
    if adaptation.kind == "invariants":
        distance = Distance(adaptation.distance)
        return Invariants(adaptation.k, distance, [model.names for model in models])
    return Off()


# ---- the loop ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Swap:
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
    generators: Sequence[Generator]
    estimates: Estimates
    checks: int = 0
    plannings: int = 0
    seconds: float = 0.0
    swaps: list[Swap] = field(default_factory=list)

    def __post_init__(self) -> None:
        start = perf_counter()
        self._kind = self.generators[0].kind
        adapts = self.adaptation.kind != "off" and self._kind in ADAPTABLE
        self.decision = (
            decision(self.adaptation, [g.model for g in self.generators]) if adapts else Off()
        )
        self._generated = self._made(self.estimates)
        self.decision.made(self._generated, self.estimates)
        self.plan = plan_from(self._kind, self._generated)
        self.seconds += perf_counter() - start

    def after(self, estimates: Estimates, because: str | None = None) -> Swap | None:
        """Looks at the statistics between advances; the swap, if the plan is another one now.
        `because`: a reason to plan anew that the caller has seen."""
        if type(self.decision) is Off:
            return None
        start = perf_counter()
        self.checks += 1
        because = self.decision.check(estimates) or because
        swap = None if because is None else self._replanned(estimates, because)
        self.seconds += perf_counter() - start
        return swap

    def _replanned(self, estimates: Estimates, because: str) -> Swap | None:
        self.plannings += 1
        generated = self._made(estimates)
        now = self._cost(self._generated, estimates).time
        new = self._cost(generated, estimates).time
        gain = 1.0 - new / now if now > 0 else 0.0
        self.decision.made(generated, estimates, gain)
        if gain < _NO_GAIN:
            return None
        self._generated = generated
        swap = Swap(self.plan, plan_from(self._kind, generated), because, gain)
        self.plan = swap.after
        self.swaps.append(swap)
        return swap

    def _made(self, estimates: Estimates) -> list[Generated]:
        return [generator.make(estimates) for generator in self.generators]

    def cost(self, estimates: Estimates) -> Cost:
        """What the plan in force is expected to cost under these statistics."""
        return self._cost(self._generated, estimates)

    def _cost(self, generated: Sequence[Generated], estimates: Estimates) -> Cost:
        total = Cost(0.0, 0.0, 0.0)
        for generator, each in zip(self.generators, generated, strict=True):
            total = total + generator.cost(each.shape, estimates)
        return total
