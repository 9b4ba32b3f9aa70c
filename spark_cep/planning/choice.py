"""Choosing a plan: a pure function from facts to a choice that says why.

A ladder of named rungs; the first that has an answer gives it. What was forced comes first, then
what the pattern leaves no choice about, then what nothing is known of; the rest is decided by
cost. Every plan that was not taken keeps its estimated cost and a reason. Whatever is chosen, the
answer is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from spark_cep.planning.forced import forced_plan, groups_of
from spark_cep.udfs.planning.costs import Costs, measured
from spark_cep.udfs.planning.generate import generate, plan_from, show
from spark_cep.udfs.planning.model import BranchModel, Cost, plan_cost
from spark_cep.udfs.planning.partition import hybrid_plan
from spark_cep.udfs.planning.shapes import chain, slots_of
from spark_cep.udfs.planning.tree import tree_cost
from spark_cep.udfs.program import BranchPlan, Estimates, Plan, PlanKind, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_cep.plans import Wish
    from spark_cep.udfs.planning.blocks import Generated
    from spark_cep.udfs.program import Branch, Condition, Strategy, Variable

# Another kind than a chain is taken where it is expected to take less than this share of the
# chain's time: what a join tree finds first has to be held, a chain holds a few blocks.
CLEARLY = 0.8
# A chain that is expected to take less, in seconds a million rows, leaves nothing to save.
LITTLE = 0.01


@dataclass(frozen=True)
class Facts:
    """`estimates`: what is known of the data, in numbers for `unit`; None: nothing. `source` says
    in words where they come from, `notes` what else there is to say."""

    variables: tuple[Variable, ...]
    strategy: Strategy
    wish: Wish
    branches: tuple[Branch, ...]
    conditions: tuple[Condition, ...] = ()
    estimates: Estimates | None = None
    source: str = ""
    unit: str = ""
    notes: tuple[str, ...] = ()
    costs: Costs | None = None
    in_batch: bool = True


@dataclass(frozen=True)
class Rejected:
    plan: str
    shown: str
    cost: float | None
    reason: str


@dataclass(frozen=True)
class Choice:
    """`order`: the variables of the first branch as they are bound, as far as that is known on
    the driver. `cost`: expected pairs, per `unit`. `adapts`: whether workers may change it."""

    plan: Plan
    rung: str
    reason: str
    order: tuple[int, ...]
    shown: str
    cost: float | None = None
    unit: str = ""
    source: str = ""
    seconds: float | None = None
    rejected: tuple[Rejected, ...] = ()
    adapts: bool = False
    estimates: Estimates | None = None
    generated: tuple[Generated, ...] = ()
    costs: Costs | None = None


def choose(facts: Facts) -> Choice:
    """The plan for a pattern."""
    table = _Table(facts)
    choice = next(found for rung in LADDER if (found := rung(table)) is not None)
    reason = "; ".join((choice.reason, *facts.notes))
    rejected = table.rejected(choice)
    costs = table.costs if choice.adapts else None
    return replace(
        choice, reason=reason, rejected=rejected, estimates=facts.estimates, source=facts.source,
        costs=costs,
    )  # fmt: skip


# ---- what there is to choose from --------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """One way to run the pattern. `cost` None where nothing is known."""

    plan: Plan
    shown: str
    cost: Cost | None
    generated: tuple[Generated, ...] = ()


@dataclass
class _Table:
    """The candidates of one choice, made when they are looked at."""

    facts: Facts
    _made: dict[PlanKind, Candidate] = field(default_factory=dict)

    @cached_property
    def models(self) -> list[BranchModel]:
        facts = self.facts
        return [BranchModel(b, facts.conditions, facts.variables) for b in facts.branches]

    @cached_property
    def costs(self) -> Costs:
        return self.facts.costs or measured()

    def candidate(self, kind: PlanKind) -> Candidate:
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _make(self, kind: PlanKind) -> Candidate:
        estimates = self.facts.estimates
        if kind == "eager":
            return self.fixed(Plan(kind, tuple(BranchPlan(_in_order(m)) for m in self.models)))
        if kind == "hybrid":
            return self._hybrid()
        if estimates is None:
            return self.fixed(Plan(kind))
        if kind == "tree":
            return Candidate(Plan(kind), self.shown(Plan(kind)), self._tree_cost(estimates))
        made = tuple(generate(kind, self.models, estimates, self.costs))
        plan = plan_from(kind, made)
        return Candidate(plan, self.shown(plan), _sum([each.cost for each in made]), made)

    def fixed(self, plan: Plan) -> Candidate:
        """A plan that was not generated, with its cost."""
        estimates = self.facts.estimates
        cost = None
        if estimates is not None and plan.branches is not None:
            shapes = zip(self.models, plan.branches, strict=True)
            found = [
                plan_cost(model, each.shape, estimates, self.costs)
                for model, each in shapes
                if each.shape is not None
            ]
            cost = _sum(found)
        return Candidate(plan, self.shown(plan), cost)

    def _hybrid(self) -> Candidate:
        wish, variables = self.facts.wish, self.facts.variables
        estimates = self.facts.estimates or Estimates({})
        groups = [
            groups_of(wish, variables, model.branch) if wish.eager is not None else None
            for model in self.models
        ]
        plans = [
            hybrid_plan(model, estimates, self.costs, each)
            for model, each in zip(self.models, groups, strict=True)
        ]
        return self.fixed(Plan("hybrid", tuple(plans)))

    def _tree_cost(self, estimates: Estimates) -> Cost:
        chains = [each.shape for each in self.candidate("lazy-chain").generated]
        return tree_cost(self.models, chains, estimates, self.costs)

    def shown(self, plan: Plan) -> str:
        """How the plan of each branch is written, the first few of them."""
        if plan.branches is None:
            return plan.kind if plan.kind == "tree" else "own counts"
        most = 3
        texts = [
            show(branch_plan, model.names)
            for model, branch_plan in zip(self.models[:most], plan.branches, strict=False)
        ]
        more = len(self.models) - most
        return " or ".join(texts) + (f" or {more} more" if more > 0 else "")

    def taken(
        self, candidate: Candidate, rung: str, reason: str, *, adapts: bool = False
    ) -> Choice:
        cost = None if candidate.cost is None else candidate.cost.pairs
        unit = "" if cost is None else self.facts.unit
        return Choice(
            candidate.plan, rung, reason, self._order(candidate.plan), candidate.shown, cost, unit,
            seconds=None if candidate.cost is None else candidate.cost.time,
            adapts=adapts, generated=candidate.generated,
        )  # fmt: skip

    def _order(self, plan: Plan) -> tuple[int, ...]:
        first = self.facts.branches[0]
        shape = plan.branches[0].shape if plan.branches else None
        slots = range(len(first.slots)) if shape is None else slots_of(shape)
        return tuple(v for slot in slots for v in first.slots[slot].variables)

    def rejected(self, choice: Choice) -> tuple[Rejected, ...]:
        """The other kinds, fastest first, where there was something to compare."""
        if choice.rung not in COMPARED or self.facts.estimates is None:
            return ()
        kinds: tuple[PlanKind, ...] = ("lazy-chain", "zstream", "tree", "eager", "hybrid")
        others = [self.candidate(kind) for kind in kinds if kind != choice.plan.kind]
        others.sort(key=lambda each: inf if each.cost is None else each.cost.time)
        return tuple(
            Rejected(
                each.plan.kind,
                each.shown,
                None if each.cost is None else each.cost.pairs,
                self._why_not(each, choice),
            )
            for each in others
        )

    def _why_not(self, candidate: Candidate, choice: Choice) -> str:
        kind = candidate.plan.kind
        if kind == "hybrid" and choice.rung != "forced":
            if self.facts.in_batch:
                return "keeps partial matches ready for rows still to come; here all rows are there"
            return "each bucket turns to it while its own counts say that keeping pays"
        slower = self._slower(candidate, choice)
        if choice.rung == "forced":
            return f"not asked for, {slower}"
        if candidate.shown == choice.shown:
            return "the same order"
        if kind == "tree":
            is_faster = candidate.cost is not None and candidate.cost.time < (choice.seconds or 0.0)
            why = "windows differ, but there is hardly any work to save"
            return why if is_faster else f"looks into every scope for each partial match, {slower}"
        return f"holds what it joins first, {slower}" if kind == "zstream" else slower

    def _slower(self, candidate: Candidate, choice: Choice) -> str:
        assert candidate.cost is not None
        if not choice.seconds:
            return "and hardly any work is expected"
        times = candidate.cost.time / choice.seconds
        return f"expected to take {_times(times)} times as long"


def _share(share: float) -> str:
    """
    >>> _share(0.0004), _share(0.42)
    ('less than 1%', '42%')
    """
    return f"{share:.0%}" if round(100 * share) else "less than 1%"


def _times(times: float) -> str:
    """
    >>> _times(1.004), _times(3.56), _times(1234.4)
    ('1', '3.6', '1,234')
    """
    return f"{times:,.0f}" if times >= 10 else f"{times:.2g}"


def _in_order(model: BranchModel) -> Shape:
    return chain(range(model.size))


def _sum(costs: Sequence[Cost]) -> Cost:
    total = Cost(0.0, 0.0, 0.0)
    for cost in costs:
        total = total + cost
    return total


# ---- the ladder --------------------------------------------------------------------------------


def _runs(table: _Table) -> Choice | None:
    """The other strategies take rows as they come."""
    if table.facts.strategy == "any":
        return None
    words = {"next": "skip till next match", "strict": "strict"}[table.facts.strategy]
    reason = f"under {words} a run takes rows as they come, in the order of the pattern"
    if table.facts.wish.kind not in {"auto", "eager"}:
        reason += ", whatever plan= says"
    eager = replace(table.candidate("eager"), cost=None)
    return table.taken(eager, "strategy", reason)


def _named(table: _Table) -> Choice | None:
    """A plan that names its variables."""
    facts = table.facts
    if facts.wish.eager is not None:
        return table.taken(table.candidate("hybrid"), "forced", "forced by plan=")
    plan = forced_plan(facts.wish, facts.variables, facts.branches)
    if plan is None:
        return None
    return table.taken(table.fixed(plan), "forced", "forced by plan=")


def _single(table: _Table) -> Choice | None:
    if any(model.size > 1 for model in table.models):
        return None
    return table.taken(table.candidate("eager"), "one variable", "one variable has one order")


def _kind(table: _Table) -> Choice | None:
    """A kind of plan, its shape by cost."""
    kind = table.facts.wish.kind
    if kind == "auto":
        return None
    reason = f"plan={kind!r}, {_shaped(table, kind)}"
    return table.taken(table.candidate(kind), "forced", reason, adapts=kind in ADAPTING)


def _shaped(table: _Table, kind: PlanKind) -> str:
    if kind == "eager":
        return "the order of the pattern"
    if kind == "tree":
        return "each partial match chooses for itself"
    if table.facts.estimates is None:
        return "candidates are counted in each bucket"
    return f"the cheapest by {table.facts.source}"


def _unknown(table: _Table) -> Choice | None:
    """Nothing is known before the data is there; then each bucket knows its counts."""
    if table.facts.estimates is not None:
        return None
    reason = "nothing is known of the data: each bucket counts its candidates, the fewest first"
    return table.taken(table.candidate("lazy-chain"), "no statistics", reason, adapts=True)


def _scattered(table: _Table) -> Choice | None:
    """No order is good everywhere."""
    estimates = table.facts.estimates
    one, tree = table.candidate("lazy-chain").cost, table.candidate("tree").cost
    if estimates is None or one is None or tree is None or one.time < LITTLE:
        return None
    if not tree.time < CLEARLY * one.time:
        return None
    reason = (
        f"what is rare changes from key to key or with time: by {table.facts.source}, beginning "
        f"where each window has fewest events takes {_share(tree.time / one.time)} of the best "
        "chain's time"
    )
    return table.taken(table.candidate("tree"), "rare changes", reason)


def _cheapest(table: _Table) -> Choice | None:
    one, tree = table.candidate("lazy-chain"), table.candidate("zstream")
    assert one.cost is not None
    assert tree.cost is not None
    source = table.facts.source
    if tree.cost.time < CLEARLY * one.cost.time:
        share = tree.cost.time / one.cost.time
        reason = f"joins take {share:.0%} of the best chain's time, by {source}"
        return table.taken(tree, "cheapest", reason, adapts=True)
    return table.taken(one, "cheapest", f"fewest partial matches, by {source}", adapts=True)


LADDER: tuple[Callable[[_Table], Choice | None], ...] = (
    _runs,
    _named,
    _single,
    _kind,
    _unknown,
    _scattered,
    _cheapest,
)
COMPARED = frozenset({"rare changes", "cheapest", "forced"})
ADAPTING = frozenset({"lazy-chain", "zstream"})
