"""The choice of a plan for an event pattern: a pure function from facts to a choice with a reason.

A ladder of named rungs, of which the first with an answer decides: patterns with only one plan,
forced plans, unknown data; then cost. Every rejected plan keeps its estimated cost and a reason.
The answer of the query does not depend on the choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

from spark_cep.planner.named_plans import build_named_plan, groups_of
from spark_cep.udfs.costs import TYPICAL_COSTS, OperationCosts, measure_costs
from spark_cep.udfs.planning.apam import plan_hybrid
from spark_cep.udfs.planning.beginnings import share_beginnings, shared_beginnings
from spark_cep.udfs.planning.cost_model import (
    BranchModel,
    PlanCost,
    PlanStep,
    plan_cost,
    plan_steps,
)
from spark_cep.udfs.planning.dynamic import EXACT_SLOTS
from spark_cep.udfs.planning.invariants import select_invariants
from spark_cep.udfs.planning.planner import (
    ADAPTABLE,
    PLANNERS,
    assemble_plan,
    format_plan,
    generate_plans,
    tree_cost,
)
from spark_cep.udfs.planning.shapes import left_deep_shape, order_text, slots_of
from spark_cep.udfs.program import (
    BranchPlan,
    Estimates,
    Plan,
    PlanKind,
    PlannerName,
    Shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.plans import PlanRequest
    from spark_cep.udfs.planning.invariants import GeneratedPlan
    from spark_cep.udfs.program import Adaptation, Branch, Condition, Strategy, Variable


# A tree NFA must be expected to take less than this share of the best chain's time.
CLEARLY_CHEAPER = 0.8
# A join tree as well; it holds its intermediate results, a chain only a few blocks. Measured on 21
# random patterns of 4 to 6 variables, trees of 0.4 to 0.95 of the chain's expected time: where a
# millisecond and more is expected of 10,000 rows, each expected gain was met (0.49 as 0.59, 0.73 as
# 0.71, 0.92 as 0.92). Where less is expected, trees took 0.7 to 1.2 of the chain's time.
JOINS_CHEAPER = 0.9
# Below this expected time, in seconds for a million rows, a chain leaves nothing to save.
NEGLIGIBLE_S = 0.01


@dataclass(frozen=True)
class PlanFacts:
    """`plan_request`: the plan that the user requested. `estimates`: statistics of the data for
    each
    `unit`; None if unknown. `source`: their origin in words. `notes`: further reasons."""

    variables: tuple[Variable, ...]
    strategy: Strategy
    plan_request: PlanRequest
    branches: tuple[Branch, ...]
    conditions: tuple[Condition, ...] = ()
    estimates: Estimates | None = None
    source: str = ""
    unit: str = ""
    notes: tuple[str, ...] = ()
    costs: OperationCosts | None = None
    in_batch: bool = True


@dataclass(frozen=True)
class RejectedPlan:
    plan: str
    shown: str
    cost: float | None
    reason: str


@dataclass(frozen=True)
class PlanChoice:
    """`order`: the variables of the first branch in binding order, as far as the driver knows it.
    `cost`: expected pairs for each `unit`. `adapts`: whether workers may change the plan.
    `planner`: what decided its shape, here or in each bucket; None if nothing was to decide."""

    plan: Plan
    rung: str
    reason: str
    order: tuple[int, ...]
    shown: str
    cost: float | None = None
    unit: str = ""
    source: str = ""
    seconds: float | None = None
    rejected: tuple[RejectedPlan, ...] = ()
    adapts: bool = False
    estimates: Estimates | None = None
    generated: tuple[GeneratedPlan, ...] = ()
    costs: OperationCosts | None = None
    planner: PlannerName | None = None


def choose_plan(facts: PlanFacts) -> PlanChoice:
    """The plan for a pattern."""
    table = _CandidatePlans(facts)
    choice = next(found for rung in LADDER if (found := rung(table)) is not None)
    reason = "; ".join((choice.reason, *facts.notes))
    rejected = table.rejected(choice)
    costs = table.costs if choice.adapts else None
    return replace(
        choice, reason=reason, rejected=rejected, estimates=facts.estimates, source=facts.source,
        costs=costs,
    )  # fmt: skip


# ---- candidates ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanCandidate:
    """A plan that the pattern can run. `cost` None: unknown."""

    plan: Plan
    shown: str
    cost: PlanCost | None
    generated: tuple[GeneratedPlan, ...] = ()


@dataclass
class _CandidatePlans:
    """The candidates of one choice, generated on demand."""

    facts: PlanFacts
    _made: dict[PlanKind, PlanCandidate] = field(default_factory=dict)

    @cached_property
    def models(self) -> list[BranchModel]:
        facts = self.facts
        return [BranchModel(b, facts.conditions, facts.variables) for b in facts.branches]

    @cached_property
    def costs(self) -> OperationCosts:
        return self.facts.costs or measure_costs()

    def candidate(self, kind: PlanKind) -> PlanCandidate:
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _make(self, kind: PlanKind) -> PlanCandidate:
        estimates = self.facts.estimates
        if kind == "eager":
            return self.fixed(Plan(kind, tuple(map(self._eager_plan, self.models))))
        is_partitioned = self.facts.plan_request.eager is not None
        if kind == "hybrid" and (is_partitioned or estimates is not None):
            return self._hybrid()
        if estimates is None:
            return self.fixed(Plan(kind))
        if kind == "tree":
            return PlanCandidate(Plan(kind), self.shown(Plan(kind)), self._tree_cost(estimates))
        planner = self._planner(kind)
        made = tuple(generate_plans(kind, self.models, estimates, self.costs, planner))
        plan = assemble_plan(kind, made)
        return PlanCandidate(plan, self.shown(plan), _sum_costs([each.cost for each in made]), made)

    def _planner(self, kind: PlanKind) -> PlannerName:
        """The requested planner for the kinds that it makes; others are made to compare with."""
        requested = self.facts.plan_request.planner
        return requested if kind in PLANNERS[requested] else "dp"

    def fixed(self, plan: Plan) -> PlanCandidate:
        """A candidate with a given plan, and its cost."""
        estimates = self.facts.estimates
        cost = None
        if estimates is not None and plan.branches is not None:
            shapes = zip(self.models, plan.branches, strict=True)
            found = [
                plan_cost(model, each.shape, estimates, self.costs)
                for model, each in shapes
                if each.shape is not None
            ]
            cost = _sum_costs(found)
        return PlanCandidate(plan, self.shown(plan), cost)

    def _eager_plan(self, model: BranchModel) -> BranchPlan:
        """The order of the pattern. A stream keeps the partial matches of its prefixes, up to the
        last slot or the first repeated group, so each event extends what came before it."""
        groups = [number for number, slot in enumerate(model.branch.slots) if slot.is_group]
        kept = range(min([model.size - 1, *groups]))
        is_kept = not self.facts.in_batch and self.facts.strategy == "any" and len(kept) > 1
        return BranchPlan(_pattern_order(model), tuple(kept) if is_kept else (), fixed=True)

    def _hybrid(self) -> PlanCandidate:
        plan_request, variables = self.facts.plan_request, self.facts.variables
        estimates = self.facts.estimates or Estimates({})
        groups = [
            groups_of(plan_request, variables, model.branch)
            if plan_request.eager is not None
            else None
            for model in self.models
        ]
        plans = [
            replace(plan_hybrid(model, estimates, self.costs, each), fixed=each is not None)
            for model, each in zip(self.models, groups, strict=True)
        ]
        return self.fixed(Plan("hybrid", tuple(plans)))

    def _tree_cost(self, estimates: Estimates) -> PlanCost:
        chains = [each.shape for each in self.candidate("lazy-chain").generated]
        return tree_cost(self.models, chains, estimates, self.costs)

    def shown(self, plan: Plan) -> str:
        """The plans of the first few branches as text."""
        if plan.branches is None:
            return plan.kind if plan.kind == "tree" else "own counts"
        most = 3
        # Which prefixes "eager" keeps is said elsewhere: it is one order, without a group.
        plans = [
            replace(each, eager=()) if plan.kind == "eager" else each for each in plan.branches
        ]
        texts = [
            format_plan(branch_plan, model.names)
            for model, branch_plan in zip(self.models[:most], plans, strict=False)
        ]
        more = len(self.models) - most
        return " or ".join(texts) + (f" or {more} more" if more > 0 else "")

    def choice_of(
        self, candidate: PlanCandidate, rung: str, reason: str, *, adapts: bool = False
    ) -> PlanChoice:
        cost = None if candidate.cost is None else candidate.cost.pairs
        unit = "" if cost is None else self.facts.unit
        kind = candidate.plan.kind
        is_made = bool(candidate.generated) or candidate.plan.branches is None
        planner = self._planner(kind) if is_made and kind in ADAPTABLE else None
        return PlanChoice(
            candidate.plan, rung, reason, self._order(candidate.plan), candidate.shown, cost, unit,
            seconds=None if candidate.cost is None else candidate.cost.time,
            adapts=adapts, generated=candidate.generated, planner=planner,
        )  # fmt: skip

    def _order(self, plan: Plan) -> tuple[int, ...]:
        first = self.facts.branches[0]
        shape = plan.branches[0].shape if plan.branches else None
        slots = range(len(first.slots)) if shape is None else slots_of(shape)
        return tuple(v for slot in slots for v in first.slots[slot].variables)

    def rejected(self, choice: PlanChoice) -> tuple[RejectedPlan, ...]:
        """The other kinds of plans, fastest first, if there was something to compare."""
        if choice.rung not in COMPARED_RUNGS or self.facts.estimates is None:
            return ()
        kinds: tuple[PlanKind, ...] = ("lazy-chain", "zstream", "tree", "eager", "hybrid")
        others = [self.candidate(kind) for kind in kinds if kind != choice.plan.kind]
        others.sort(key=lambda each: inf if each.cost is None else each.cost.time)
        return tuple(
            RejectedPlan(
                each.plan.kind,
                each.shown,
                None if each.cost is None else each.cost.pairs,
                self._why_not(each, choice),
            )
            for each in others
        )

    def _why_not(self, candidate: PlanCandidate, choice: PlanChoice) -> str:
        kind = candidate.plan.kind
        if kind == "hybrid" and choice.rung != "forced":
            return self._why_no_hybrid(candidate, choice)
        slower = self._slower(candidate, choice)
        if choice.rung == "forced":
            return f"not requested, {slower}"
        if candidate.shown == choice.shown:
            return "the same order"
        if kind == "tree":
            is_faster = candidate.cost is not None and candidate.cost.time < (choice.seconds or 0.0)
            why = "windows differ, but there is hardly any work to save"
            return why if is_faster else f"checks every scope for each partial match, {slower}"
        return f"holds its intermediate results, {slower}" if kind == "zstream" else slower

    def _why_no_hybrid(self, candidate: PlanCandidate, choice: PlanChoice) -> str:
        if not self.facts.in_batch:
            return "each bucket switches to it while its counts say that this is faster"
        if candidate.shown == choice.shown:
            return "the same order"
        slower = self._slower(candidate, choice)
        return f"in a batch nothing is kept and only its joins count, {slower}"

    def _slower(self, candidate: PlanCandidate, choice: PlanChoice) -> str:
        assert candidate.cost is not None
        if not choice.seconds:
            return "with hardly any work expected"
        times = _format_times(candidate.cost.time / choice.seconds)
        return f"expected to take {'' if times == '1' else f'{times} times '}as long"


def _format_share(share: float) -> str:
    """
    >>> _format_share(0.0004), _format_share(0.42)
    ('less than 1%', '42%')
    """
    return f"{share:.0%}" if round(100 * share) else "less than 1%"


def _format_times(times: float) -> str:
    """
    >>> _format_times(1.004), _format_times(3.56), _format_times(1234.4)
    ('1', '3.6', '1,234')
    """
    return f"{times:,.0f}" if times >= 10 else f"{times:.2g}"


def _pattern_order(model: BranchModel) -> Shape:
    return left_deep_shape(range(model.size))


def _sum_costs(costs: Sequence[PlanCost]) -> PlanCost:
    total = PlanCost(0.0, 0.0, 0.0)
    for cost in costs:
        total = total + cost
    return total


# ---- the ladder ----------------------------------------------------------------------------------


def _choose_runs(table: _CandidatePlans) -> PlanChoice | None:
    """Strategies other than skip-till-any take rows as they arrive."""
    if table.facts.strategy == "any":
        return None
    words = {"next": "skip till next match", "strict": "strict"}[table.facts.strategy]
    reason = f"under {words} a run takes rows as they arrive, in the order of the pattern"
    if table.facts.plan_request.kind not in {"auto", "eager"}:
        reason += "; plan= has no effect"
    elif table.facts.plan_request.planner != "dp":
        reason += "; planner= has no effect"
    eager = replace(table.candidate("eager"), cost=None)
    return table.choice_of(eager, "strategy", reason)


def _choose_named(table: _CandidatePlans) -> PlanChoice | None:
    """A requested plan that names its variables."""
    facts = table.facts
    if facts.plan_request.eager is not None:
        return table.choice_of(table.candidate("hybrid"), "forced", "forced by plan=")
    plan = build_named_plan(facts.plan_request, facts.variables, facts.branches)
    if plan is None:
        return None
    return table.choice_of(table.fixed(plan), "forced", "forced by plan=")


def _choose_single(table: _CandidatePlans) -> PlanChoice | None:
    if any(model.size > 1 for model in table.models):
        return None
    return table.choice_of(
        table.candidate("eager"), "one variable", "one variable has only one order"
    )


def _choose_kind(table: _CandidatePlans) -> PlanChoice | None:
    """A requested kind of plan, or a requested planner with the kind that it makes."""
    request = table.facts.plan_request
    kind = _requested_kind(request)
    if kind is None:
        return None
    requested = f"plan={kind!r}" if request.planner == "dp" else f"planner={request.planner!r}"
    reason = f"{requested}, {_describe_shape(table, kind)}"
    adapts = kind in ADAPTING_KINDS or (kind == "hybrid" and not table.facts.in_batch)
    return table.choice_of(table.candidate(kind), "forced", reason, adapts=adapts)


def _requested_kind(request: PlanRequest) -> PlanKind | None:
    if request.kind != "auto":
        return request.kind
    return None if request.planner == "dp" else next(iter(PLANNERS[request.planner]))


def _describe_shape(table: _CandidatePlans, kind: PlanKind) -> str:
    if kind == "eager":
        return "the order of the pattern"
    if kind == "tree":
        return "each partial match chooses for itself"
    if kind == "hybrid" and not table.facts.in_batch:
        return "each bucket divides the variables by its own counts and arrival rates"
    if table.facts.estimates is None:
        return "candidates are counted in each bucket"
    planner = table.facts.plan_request.planner
    return f"{'the cheapest' if planner == 'dp' else 'its plan'} by {table.facts.source}"


def _choose_by_bucket(table: _CandidatePlans) -> PlanChoice | None:
    """Without statistics each bucket counts its own candidates."""
    if table.facts.estimates is not None:
        return None
    reason = "no statistics: each bucket counts its candidates and begins with the fewest"
    return table.choice_of(table.candidate("lazy-chain"), "no statistics", reason, adapts=True)


def _choose_tree(table: _CandidatePlans) -> PlanChoice | None:
    """No single order suits all keys and times."""
    estimates = table.facts.estimates
    one, tree = table.candidate("lazy-chain").cost, table.candidate("tree").cost
    if estimates is None or one is None or tree is None or one.time < NEGLIGIBLE_S:
        return None
    if not tree.time < CLEARLY_CHEAPER * one.time:
        return None
    reason = (
        f"the rarest variable differs between keys or changes over time: by {table.facts.source}, "
        "beginning with the fewest events of each window takes "
        f"{_format_share(tree.time / one.time)} of the best chain's time"
    )
    return table.choice_of(table.candidate("tree"), "rare changes", reason)


def _choose_cheapest(table: _CandidatePlans) -> PlanChoice | None:
    one, tree = table.candidate("lazy-chain"), table.candidate("zstream")
    assert one.cost is not None
    assert tree.cost is not None
    source = table.facts.source
    if tree.cost.time < JOINS_CHEAPER * one.cost.time:
        share = tree.cost.time / one.cost.time
        reason = f"joins take {share:.0%} of the best chain's time, by {source}"
        return table.choice_of(tree, "cheapest", reason, adapts=True)
    return table.choice_of(one, "cheapest", f"fewest partial matches, by {source}", adapts=True)


LADDER: tuple[Callable[[_CandidatePlans], PlanChoice | None], ...] = (
    _choose_runs,
    _choose_named,
    _choose_single,
    _choose_kind,
    _choose_by_bucket,
    _choose_tree,
    _choose_cheapest,
)
COMPARED_RUNGS = frozenset({"rare changes", "cheapest", "forced"})
ADAPTING_KINDS = frozenset({"lazy-chain", "zstream"})


# ---- costs for explain ---------------------------------------------------------------------------


# Why workers do not change these plans.
_WHY_NOT = {
    "tree": "each partial match chooses for itself",
    "eager": "eager keeps the order of the pattern",
    "hybrid": "a hybrid plan keeps its groups",
}


def describe_costs(
    compiled: CompiledPattern, choice: PlanChoice, adaptation: Adaptation
) -> dict[str, Any]:
    """The costs of a choice as plain data: statistics, the joins of each plan with their pairs and
    partial matches, and the invariants that hold while the plan is the best."""
    models = [BranchModel(b, compiled.conditions, compiled.variables) for b in compiled.branches]
    return {
        "statistics": _statistics(compiled, choice),
        "branches": [_branch(compiled, choice, number, m) for number, m in enumerate(models)],
        "invariants": list(_invariants(choice, adaptation, models)),
        "adaptation": _adaptation(choice, adaptation),
        "shares": list(_shared_beginnings(choice, models)),
        "planner": None if choice.planner is None else _describe_planner(choice.planner, models),
    }


def _statistics(compiled: CompiledPattern, choice: PlanChoice) -> dict[str, Any] | None:
    known = choice.estimates
    if known is None:
        return None
    names = [each.name for each in compiled.variables]
    return {
        "source": choice.source,
        "unit": choice.unit,
        "rates": {names[v]: rate for v, rate in sorted(known.rates.items())},
        "selectivities": [
            {"condition": each.text, "selectivity": known.selectivities.get(place)}
            for place, each in enumerate(compiled.conditions)
        ],
        "windows": known.windows,
    }


def _shared_beginnings(choice: PlanChoice, models: Sequence[BranchModel]) -> Iterator[str]:
    """What branches find once, and the orders with which they do. Buckets decide that again, by
    their own counts; in triggers of a stream each case has an order of its own."""
    if choice.rung == "strategy":
        return
    plans: Sequence[BranchPlan] = choice.plan.branches or ()
    if choice.plan.kind == "eager" and not plans:
        plans = [BranchPlan(left_deep_shape(range(model.size))) for model in models]
    elif choice.estimates is not None and choice.planner == "dp" and plans:
        costs = choice.costs or TYPICAL_COSTS
        plans = share_beginnings(models, plans, choice.estimates, costs, least=0.0)
    for each in shared_beginnings(models[: len(plans)], plans):
        first = models[each.branches[0]].names
        *others, last = (
            order_text(plans[number].shape, models[number].names) for number in each.branches
        )
        beginning = "→".join(first[slot] for slot in each.order)
        yield f"{beginning} is found once, for {', '.join(others)} and {last}"


def _branch(
    compiled: CompiledPattern, choice: PlanChoice, number: int, model: BranchModel
) -> dict[str, Any]:
    plan = choice.plan.branches[number] if choice.plan.branches is not None else None
    shape = None if plan is None else plan.shape
    nodes: Sequence[PlanStep] = ()
    if shape is not None and choice.estimates is not None:
        nodes = plan_steps(model, shape, choice.estimates)
    return {
        "variables": list(model.names),
        "shape": None if shape is None else _shape_names(shape, model.names),
        "eager": [model.names[slot] for slot in (() if plan is None else plan.eager)],
        "nodes": [_node(compiled, number, model, node) for node in nodes],
    }


def _node(
    compiled: CompiledPattern, number: int, model: BranchModel, node: PlanStep
) -> dict[str, Any]:
    return {
        "binds": [model.names[slot] for slot in node.binds],
        "key": f"{number}:{','.join(map(str, sorted(node.slots)))}",
        "pairs": node.pairs,
        "partials": node.partials,
        "conditions": [compiled.conditions[place].text for place in node.conditions],
    }


def _shape_names(shape: Shape, names: Sequence[str]) -> Any:
    if isinstance(shape, int):
        return names[shape]
    return [_shape_names(shape[0], names), _shape_names(shape[1], names)]


def _invariants(
    choice: PlanChoice, adaptation: Adaptation, models: Sequence[BranchModel]
) -> Iterator[str]:
    if adaptation.kind != "invariants" or choice.estimates is None:
        return
    for generated, model in zip(choice.generated, models, strict=False):
        for each in select_invariants(generated, adaptation.k, choice.estimates):
            yield each.text(model.names)


_PLANNERS: dict[PlannerName, str] = {
    "dp": "the cheapest under the cost model",
    "greedy": "Algorithm 2, next the slot that multiplies least",
    "zstream": "Algorithm 3, the cheapest tree over neighbours",
    "local-search": "the order of Algorithm 2, improved by exchanges while one helps",
}


def _describe_planner(planner: PlannerName, models: Sequence[BranchModel]) -> str:
    if planner == "dp" and any(model.size > EXACT_SLOTS for model in models):
        return f"dp: greedy orders, improved; it is exact up to {EXACT_SLOTS} variables"
    return f"{planner}: {_PLANNERS[planner]}"


def _adaptation(choice: PlanChoice, adaptation: Adaptation) -> str:
    if choice.planner == "local-search" and adaptation.kind == "invariants":
        return 'no: local search leaves no comparisons to verify; adapt="threshold" plans again'
    if not choice.adapts:
        return "no: " + {
            "strategy": "runs follow the pattern",
            "one variable": "there is only one order",
        }.get(choice.rung, _WHY_NOT.get(choice.plan.kind, "the order was forced"))
    return {
        "off": 'no: adapt="off"',
        "always": "always: a new plan before each chunk of a bucket",
        "threshold": f"threshold, {adaptation.threshold:.0%}: a new plan when a rate or a "
        "selectivity has changed by more",
        "invariants": f"invariants, k={adaptation.k or 'all'}, distance={adaptation.distance}: a "
        "new plan when a comparison that led to it fails",
    }[adaptation.kind]
