"""Beginnings that branches have in common: their pairs once, the answer the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.pattern import (
    AllOf,
    AnyOf,
    Event,
    NoEvent,
    OptionalPart,
    Pattern,
    Repeat,
    Seq,
    Within,
    any_of,
    event,
    no,
    seq,
)
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events import case_orders, sharing
from spark_cep.udfs.events.bucket_plans import estimate_rates
from spark_cep.udfs.events.engine import EventAdvance, EventState, advance_events
from spark_cep.udfs.planning import beginnings as beginnings_module
from spark_cep.udfs.planning.beginnings import (
    CLEAR_GAIN,
    share_beginnings,
    shared_beginnings,
)
from spark_cep.udfs.planning.planner import branch_models, generate_plans
from spark_cep.udfs.planning.shapes import left_deep_shape, order_of
from spark_cep.udfs.program import BranchPlan, Estimates, Plan
from tests.cases import Case
from tests.conditions import cross_conditions, own_conditions
from tests.programs import Prepared, prepare
from tests.random_cases import random_cases
from tests.settings import in_advances, whole
from tests.strategies import rows as drawn_rows
from tests.test_differential import SettingsOf, agree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.pattern import EventPatternNode
    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.planning.cost_model import BranchModel
    from tests.local import Setting

A, B, C, D, E = (event(name, f"kind = {number}") for number, name in enumerate("abcde"))


def rows(size: int, seed: int = 1) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(seed)
    return {
        "t": np.arange(size),
        "kind": drawn.integers(0, 4, size),
        "x": drawn.integers(0, 100, size),
    }


def run(prepared: Prepared, *orders: str, block: int = 1 << 17) -> EventAdvance:
    """One advance with an order for each branch; without, the order of the pattern."""
    program = replace(prepared.program, block_pairs=block)
    if orders:
        names = [variable.name for variable in program.variables]
        plans = [
            BranchPlan(left_deep_shape([place[names.index(n)] for n in order]), fixed=True)
            for order, branch in zip(orders, program.branches, strict=True)
            for place in [{s.variables[0]: i for i, s in enumerate(branch.slots)}]
        ]
        program = replace(program, plan=Plan("lazy-chain", tuple(plans)))
    return advance_events(program, EventState(), prepared.table)


def answer(step: EventAdvance) -> Counter[tuple[tuple[int, ...], ...]]:
    return Counter(
        tuple((v, int(r[n])) for v, r in sorted(found.rows.items()))
        for found in step.matches
        for n in range(len(found))
    )


def pairs_apart(prepared: Prepared, *orders: str) -> int:
    """What the branches take if each walks alone."""
    total = 0
    for number, branch in enumerate(prepared.program.branches):
        alone = replace(prepared, program=replace(prepared.program, branches=(branch,)))
        step = run(alone, *orders[number : number + 1])
        answer(step)
        total += step.metrics.pairs
    return total


# ---- what is shared ----------------------------------------------------------------------------


def test_branches_of_an_or_find_what_they_begin_with_once() -> None:
    selective = "a.x + b.x < 20 AND c.x > b.x + 60 AND d.x > b.x + 60"
    pattern = seq(A, B, any_of(C, D)).where(selective).within(200)
    prepared = prepare(pattern, rows(3_000))
    together, apart = run(prepared, "abc", "abd"), run(prepared, "abc", "bad")
    assert answer(together) == answer(apart) != Counter()
    orders = together.metrics.orders
    assert [*orders] == ["a→b, shared", "[a b]→c", "[a b]→d"]
    assert together.metrics.pairs == sum(orders.values())
    assert apart.metrics.pairs - together.metrics.pairs == orders["a→b, shared"]


def test_an_optional_part_shares_the_beginning_and_longer_ones_within() -> None:
    pattern = seq(A, B, C.optional(), D.optional()).within(20)
    prepared = prepare(pattern, rows(300))
    step = run(prepared)
    assert sum(answer(step).values()) == 3_582
    assert [order for order in step.metrics.orders if "shared" in order] == [
        "a→b, shared", "[a b]→c, shared",
    ]  # fmt: skip
    assert step.metrics.pairs < pairs_apart(prepared)


def test_blocks_of_any_size_give_the_same() -> None:
    pattern = seq(A, B, any_of(C, D)).where("a.x < b.x AND b.x < c.x").within(30)
    prepared = prepare(pattern, rows(300))
    one, many = run(prepared), run(prepared, block=16)
    assert answer(one) == answer(many)
    assert one.metrics.orders == many.metrics.orders
    assert one.metrics.nodes == many.metrics.nodes


def test_beginnings_whose_nots_differ_are_not_shared() -> None:
    """With c, the NOT lies between a and c; without, between a and b."""
    x = event("x", "kind = 3 AND x < 50")
    given = rows(300)
    nots = prepare(seq(A, no(x), C.optional(), B, D).within(20), given)
    step = run(nots, "abcd", "abd")
    assert answer(step) == answer(run(nots, "dcba", "abd")) != Counter()
    assert not any("shared" in order for order in step.metrics.orders)
    plain = prepare(seq(A, C.optional(), B, D).within(20), given)
    step = run(plain, "abcd", "abd")
    assert answer(step) == answer(run(plain, "dcba", "abd")) != Counter()
    assert "a→b, shared" in step.metrics.orders


# ---- the answer --------------------------------------------------------------------------------


@st.composite
def beginnings(draw: st.DrawFn) -> Case:
    """Two or three parts, a NOT perhaps, and then an OR or optional parts."""
    a, b, c, d, e = (Event(name, draw(own_conditions())) for name in "abcde")
    parts: list[EventPatternNode] = [a, draw(st.sampled_from([b, Repeat(b, 1, 2)]))]
    if draw(st.booleans()):
        parts.insert(1, NoEvent(Event("x", draw(own_conditions()))))
    ends: list[list[EventPatternNode]] = [
        [AnyOf((c, d))],
        [AnyOf((c, Seq((d, e))))],
        [OptionalPart(c), OptionalPart(d)],
        [Repeat(c, 0, 2), d],
        [c, AnyOf((d, e))],
    ]
    parts += draw(st.sampled_from(ends))
    root = draw(st.sampled_from([Seq, Seq, AllOf]))(tuple(parts))
    pattern = Pattern(root, draw(cross_conditions(root)), Within(draw(st.integers(2, 7))), "any")
    return Case(pattern, draw(drawn_rows()), ("t",), ())


def in_pattern_order(settings_of: SettingsOf) -> SettingsOf:
    """All branches in the order of the pattern, so that they begin alike."""
    order = Plan("eager")
    return lambda case: settings_of(case).map(
        lambda setting: replace(setting, plan=order, later_plan=None)
    )


@pytest.mark.parametrize("settings_of", [whole, in_advances], ids=["whole", "in advances"])
def test_branches_that_begin_alike_give_the_answer(settings_of: SettingsOf) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shared = _count_shared(patch)
        agree(100, beginnings(), in_pattern_order(settings_of))
    assert sum(shared) > 100


def test_orders_that_were_given_a_common_beginning_give_the_answer() -> None:
    """Wherever sharing saves anything, however little there is to do."""
    changed = []

    def always(*given: Any) -> Sequence[BranchPlan]:
        found = share_beginnings(*given, least=0.0)
        changed.append(found != given[1])
        return found

    def chosen(case: Case) -> st.SearchStrategy[Setting]:
        plan = Plan("lazy-chain")
        return whole(case).map(lambda setting: replace(setting, plan=plan))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beginnings_module, "CLEAR_GAIN", 1.0)
        patch.setattr(case_orders, "share_beginnings", always)
        shared = _count_shared(patch)
        agree(100, beginnings(), chosen)
    assert sum(shared) > 100
    assert sum(changed) > 5


def _count_shared(patch: pytest.MonkeyPatch) -> list[int]:
    """The partial matches of common beginnings, set by set."""
    counts: list[int] = []
    extend = sharing.BranchRun.extend

    def counted(run: sharing.BranchRun, *given: Any) -> Any:
        for each in extend(run, *given):
            counts.append(len(each.partials))
            yield each

    patch.setattr(sharing.BranchRun, "extend", counted)
    return counts


# ---- orders that share -------------------------------------------------------------------------


def planned(prepared: Prepared, selectivities: dict[int, float]) -> EventAdvance:
    """One advance with the cheapest order of each branch."""
    program = replace(
        prepared.program, plan=Plan("lazy-chain"), estimates=Estimates({}, selectivities)
    )

    def planner(matching: AdvanceContext) -> Sequence[BranchPlan]:
        estimates = estimate_rates(matching, selectivities)
        made = generate_plans("lazy-chain", branch_models(program), estimates, TYPICAL_COSTS)
        return [BranchPlan(each.shape) for each in made]

    return advance_events(program, EventState(), prepared.table, planner=planner)


def test_branches_begin_alike_where_that_takes_less_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each branch alone begins with another pair, which keeps a little less than a and b do."""
    conditions = "a.x + b.x < 13 AND c.x > b.x + 87 AND a.x < d.x - 87"
    prepared = prepare(seq(A, B, any_of(C, D)).where(conditions).within(400), rows(20_000))
    shares = {0: 0.0091, 1: 0.0078, 2: 0.0078}
    together = planned(prepared, shares)
    found = answer(together)
    monkeypatch.setattr(case_orders, "share_beginnings", lambda models, plans, *_: plans)
    apart = planned(prepared, shares)
    assert answer(apart) == found != Counter()
    assert not any("shared" in order for order in apart.metrics.orders)
    assert any("shared" in order for order in together.metrics.orders)
    assert together.metrics.pairs < 0.75 * apart.metrics.pairs


def test_a_branch_with_a_better_order_of_its_own_keeps_it() -> None:
    """The pair of b and c keeps next to nothing, that of a and b nearly all."""
    conditions = "a.x + b.x < 190 AND c.x > b.x + 97 AND a.x < d.x - 97"
    prepared = prepare(seq(A, B, any_of(C, D)).where(conditions).within(400), rows(20_000))
    step = planned(prepared, {0: 0.99, 1: 0.0005, 2: 0.0005})
    answer(step)
    assert not any("shared" in order for order in step.metrics.orders)


@random_cases(60)
@given(st.data())
def test_orders_that_share_take_no_more_time_in_all(data: st.DataObject) -> None:
    """Under the cost model, whatever the statistics; the beginnings told are those of the plans."""
    ends = [any_of(C, D), any_of(C, seq(D, E)), seq(C.optional(), D.optional())]
    conditions = "a.x < b.x AND b.x < c.x AND a.x < d.x AND c.x = a.x AND d.x = b.x"
    pattern = seq(A, B, data.draw(st.sampled_from(ends))).where(conditions).within(100)
    program = prepare(pattern, rows(10)).program
    models = branch_models(program)
    share = st.sampled_from([0.001, 0.01, 0.1, 0.5, 1.0])
    rates = {v: data.draw(st.sampled_from([1.0, 5.0, 50.0])) for v in range(5)}
    kept = {place: data.draw(share) for place in range(len(program.conditions))}
    estimates = Estimates(rates, kept, windows=1e6)
    made = generate_plans("lazy-chain", models, estimates, TYPICAL_COSTS)
    plans = [BranchPlan(each.shape) for each in made]
    found = share_beginnings(models, plans, estimates, TYPICAL_COSTS)
    before, after = (seconds_of(models, each, estimates) for each in (plans, found))
    assert after <= before
    if found != plans:
        assert after < CLEAR_GAIN * before
        assert list(shared_beginnings(models, found))


def seconds_of(
    models: Sequence[BranchModel], plans: Sequence[BranchPlan], estimates: Estimates
) -> float:
    """The joins of all branches, those of one beginning once."""
    joins: dict[tuple[tuple[int, ...], ...], float] = {}
    for model, plan in zip(models, plans, strict=True):
        assert plan.shape is not None
        order = order_of(plan.shape)
        assert order is not None
        slots, times = model.branch.slots, model.estimator(estimates).times(TYPICAL_COSTS)
        for length in range(1, len(order)):
            left = sum(1 << slot for slot in order[:length])
            names = tuple(slots[slot].variables for slot in order[: length + 1])
            joins[names] = times.join(left, 1 << order[length])
    return sum(joins.values())
