"""The choice of a plan, and what is said about it; wrong plans, statistics and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import spark_cep as cep
from spark_cep import Limits, Pattern, Statistics, adapt, all_of, any_of, event, no, plans, seq
from spark_cep.errors import PatternError, PlanError
from spark_cep.planner.choice import PlanFacts, choose_plan, describe_costs
from spark_cep.planner.named_plans import check_plan_request
from spark_cep.planner.statistics import check_statistics, with_statistics
from spark_cep.plans import PlanRequest
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.program import Adaptation, BranchPlan, Estimates
from tests.compiling import compiled

if TYPE_CHECKING:
    from spark_cep.events.compiled import CompiledPattern

A, B, C, D = (event(name, f"name = '{name}'") for name in "abcd")
RISING = seq(A, B, C).where("a.price < b.price", "b.price < c.price").within("10 s")


def facts_of(
    pattern: Pattern,
    rates: Mapping[str, float] | None = None,
    plan_request: PlanRequest | None = None,
    **changes: Any,
) -> PlanFacts:
    compiled = compiled_of(pattern)
    estimates = None
    if rates is not None:
        ids = {each.name: number for number, each in enumerate(compiled.variables)}
        estimates = Estimates({ids[name]: rate for name, rate in rates.items()}, windows=100)
    facts = PlanFacts(
        compiled.variables, compiled.strategy, plan_request or PlanRequest("auto"),
        compiled.branches, compiled.conditions, estimates, "a sample", "in all",
        costs=TYPICAL_COSTS,
    )  # fmt: skip
    return replace(facts, **changes)


def compiled_of(pattern: Pattern) -> CompiledPattern:
    return compiled(pattern).compiled


def names(facts: PlanFacts, order: tuple[int, ...]) -> str:
    return "".join(facts.variables[v].name for v in order)


# ---- the ladder --------------------------------------------------------------------------------


def test_a_chain_begins_with_the_rarest_and_goes_on_where_a_condition_helps() -> None:
    facts = facts_of(RISING, {"a": 20, "b": 20, "c": 1})
    choice = choose_plan(facts)
    assert (choice.rung, choice.plan.kind, choice.shown) == ("cheapest", "lazy-chain", "c→b→a")
    assert choice.reason == "fewest partial matches, by a sample"
    assert names(facts, choice.order) == "cba"
    assert choice.plan.branches == (BranchPlan(((2, 1), 0)),)
    assert choice.adapts


def test_plans_with_names_are_fixed_and_kinds_are_not() -> None:
    for request in (plans.chain("a", "c", "b"), plans.join("a", ("b", "c")), plans.eager()):
        (branch,) = choose_plan(facts_of(RISING, None, request)).plan.branches or ()
        assert branch.fixed
    groups = plans.hybrid(eager=["a", "b"], lazy=["c"])
    (branch,) = choose_plan(facts_of(RISING, None, groups)).plan.branches or ()
    assert branch == BranchPlan((2, (0, 1)), (0, 1), fixed=True)
    for request in (plans.lazy_chain(), plans.zstream(), plans.hybrid()):
        rates = {"a": 20.0, "b": 20.0, "c": 1.0}
        (branch,) = choose_plan(facts_of(RISING, rates, request)).plan.branches or ()
        assert not branch.fixed


def test_eager_keeps_its_prefixes_on_a_stream_up_to_a_repeated_group() -> None:
    def kept(pattern: Pattern, *, in_batch: bool = False) -> tuple[int, ...]:
        facts = facts_of(pattern, None, plans.eager(), in_batch=in_batch)
        choice = choose_plan(facts)
        assert "|" not in choice.shown
        (branch,) = choice.plan.branches or ()
        return branch.eager

    assert kept(seq("a", "b", "c", "d")) == (0, 1, 2)
    assert kept(seq("a", "b", "c", "d"), in_batch=True) == ()
    assert kept(seq("a", "b")) == ()
    assert kept(seq("a", "b", seq("c", "d").times("+"), "e")) == (0, 1)
    assert kept(seq("a", "b", "c").strategy("strict")) == ()


def test_every_plan_that_is_not_taken_keeps_its_cost_and_its_reason() -> None:
    choice = choose_plan(facts_of(RISING, {"a": 20, "b": 20, "c": 1}))
    assert {each.plan for each in choice.rejected} == {"zstream", "tree", "eager", "hybrid"}
    costs = [each.cost for each in choice.rejected]
    assert all(cost is not None and cost > 0 for cost in costs)
    assert costs == sorted(costs)  # type: ignore[type-var]
    eager = next(each for each in choice.rejected if each.plan == "eager")
    assert eager.shown == "a→b→c"
    assert eager.reason.startswith("expected to take ")
    assert choice.cost is not None
    assert eager.cost is not None
    assert eager.cost > 3 * choice.cost


def test_where_nothing_is_expected_to_cost_anything_a_chain_is_taken() -> None:
    choice = choose_plan(facts_of(RISING, {"a": 20, "b": 20, "c": 0}))
    assert (choice.rung, choice.plan.kind, choice.shown) == ("cheapest", "lazy-chain", "c→b→a")


def test_a_join_tree_is_taken_where_two_joins_save_what_a_chain_repeats() -> None:
    pattern = seq(A, B, C, D).where("a.price < b.price", "c.price < d.price").within("10 s")
    facts = facts_of(pattern, {"a": 30, "b": 30, "c": 30, "d": 30})
    assert facts.estimates is not None
    selective = replace(facts.estimates, selectivities={0: 0.05, 1: 0.05})
    choice = choose_plan(replace(facts, estimates=selective))
    assert (choice.rung, choice.plan.kind) == ("cheapest", "zstream")
    assert choice.shown in {"((a b) (c d))", "((c d) (a b))"}
    assert "of the best chain's time" in choice.reason


def test_where_what_is_rare_changes_each_partial_match_chooses() -> None:
    facts = facts_of(RISING, {"a": 10, "b": 20, "c": 10})
    assert facts.estimates is not None
    places = ({0: 1.0, 1: 20.0, 2: 19.0}, {0: 19.0, 1: 20.0, 2: 1.0})
    scattered = replace(facts.estimates, places=places, windows=100_000.0)
    choice = choose_plan(replace(facts, estimates=scattered))
    assert (choice.rung, choice.plan.kind, choice.plan.branches) == ("rare changes", "tree", None)
    assert "of the best chain's time" in choice.reason
    assert not choice.adapts


def test_a_pattern_with_hardly_any_work_is_left_to_a_chain() -> None:
    facts = facts_of(RISING, {"a": 10, "b": 20, "c": 10})
    assert facts.estimates is not None
    places = ({0: 1.0, 1: 20.0, 2: 19.0}, {0: 19.0, 1: 20.0, 2: 1.0})
    little = replace(facts.estimates, places=places, windows=1.0)
    assert choose_plan(replace(facts, estimates=little)).rung == "cheapest"


def test_without_statistics_each_bucket_counts_for_itself() -> None:
    choice = choose_plan(facts_of(RISING))
    assert (choice.rung, choice.plan.kind, choice.plan.branches) == (
        "no statistics", "lazy-chain", None,
    )  # fmt: skip
    assert choice.rejected == ()
    assert choice.cost is None


def test_one_variable_has_one_order() -> None:
    assert choose_plan(facts_of(seq(A).within("3 s"), {"a": 5})).rung == "one variable"


@pytest.mark.parametrize("strategy", ["skip till next match", "strict"])
def test_runs_follow_the_pattern_whatever_plan_is_asked_for(strategy: str) -> None:
    pattern = RISING.strategy(strategy)
    facts = facts_of(pattern, plan_request=plans.chain("b", "a", "c"))
    choice = choose_plan(facts)
    assert (choice.rung, choice.plan.kind) == ("strategy", "eager")
    assert names(facts, choice.order) == "abc"
    assert "plan= has no effect" in choice.reason
    assert "plan=" not in choose_plan(facts_of(pattern)).reason


@pytest.mark.parametrize(
    ("plan_request", "shown"),
    [
        (plans.eager(), "a→b→c"),
        (plans.chain("b", "C", "a"), "b→c→a"),
        (plans.join(("a", ("b", "c"))), "(a (b c))"),
        (plans.hybrid(eager=["a", "b"], lazy=["c"]), "a b | c"),
        (plans.tree(), "tree"),
        (plans.lazy_chain(), "c→b→a"),
    ],
)
def test_a_plan_can_be_forced(plan_request: PlanRequest, shown: str) -> None:
    choice = choose_plan(facts_of(RISING, {"a": 20, "b": 20, "c": 1}, plan_request))
    assert (choice.rung, choice.shown) == ("forced", shown)
    assert choice.adapts == (plan_request == plans.lazy_chain())


@pytest.mark.parametrize("kind", ["lazy-chain", "zstream", "hybrid", "tree", "eager"])
def test_a_kind_can_be_forced_without_statistics(kind: str) -> None:
    assert (
        choose_plan(facts_of(RISING, plan_request=plans.read_plan_request(kind))).plan.kind == kind
    )


def test_each_alternative_of_an_or_has_its_own_plan() -> None:
    pattern = (
        any_of(seq(A, B), seq(C, D)).where("a.price < b.price", "c.price < d.price").within("5 s")
    )
    choice = choose_plan(facts_of(pattern, {"a": 9, "b": 1, "c": 1, "d": 9}))
    assert choice.shown == "b→a or c→d"
    assert choice.plan.branches == (BranchPlan((1, 0)), BranchPlan((0, 1)))


def test_a_forced_order_leaves_out_what_a_branch_does_not_fill() -> None:
    pattern = seq(A, B.optional(), C).within("5 s")
    choice = choose_plan(facts_of(pattern, plan_request=plans.join((("c", "b"), "a"))))
    assert choice.plan.branches is not None
    assert {each.shape for each in choice.plan.branches} == {((2, 1), 0), (1, 0)}


def test_notes_stand_in_the_reason() -> None:
    assert choose_plan(facts_of(RISING, notes=("so it is",))).reason.endswith("; so it is")


def test_lists_come_last() -> None:
    pattern = seq(A, event("b", "name = 'b'").times("+"), C).within("10 s")
    facts = facts_of(pattern, {"a": 20, "b": 8, "c": 20})
    assert names(facts, choose_plan(facts).order).endswith("b")


def test_and_and_not_are_planned_too() -> None:
    pattern = (
        all_of(A, B, no(event("y", "name = 'y'")), C).where("a.price < b.price").within("10 s")
    )
    facts = facts_of(pattern, {"a": 9, "b": 2, "c": 1, "y": 4})
    assert names(facts, choose_plan(facts).order)[0] == "c"


# ---- what is said of it ------------------------------------------------------------------------


def test_what_is_expected_of_each_join_is_told() -> None:
    compiled = compiled_of(RISING)
    choice = choose_plan(facts_of(RISING, {"a": 20, "b": 20, "c": 1}))
    told = describe_costs(compiled, choice, Adaptation("invariants"))
    nodes = told["branches"][0]["nodes"]
    assert [node["binds"] for node in nodes] == [["c"], ["b"], ["a"]]
    assert nodes[1]["pairs"] == pytest.approx(100 * 20 * 1)
    assert nodes[1]["conditions"] == ["b.price < c.price"]
    assert told["statistics"]["rates"] == {"a": 20, "b": 20, "c": 1}
    assert told["invariants"][0] == "cost(c→b) < cost(b→c)"
    assert "invariants" in told["adaptation"]


def test_what_branches_find_once_is_told() -> None:
    end = any_of(C, event("d", "name = 'd'"))
    pattern = seq(A, B, end).where("a.price < b.price").within("10 s")
    compiled, rates = compiled_of(pattern), {"a": 20, "b": 20, "c": 40, "d": 40}

    def told(**options: Any) -> list[str]:
        choice = choose_plan(facts_of(pattern, rates, **options))
        shares: list[str] = describe_costs(compiled, choice, Adaptation("off"))["shares"]
        return shares

    once = ["a→b is found once, for a→b→c and a→b→d"]
    assert told() == told(plan_request=plans.read_plan_request("eager")) == once
    assert told(plan_request=plans.chain("c", "d", "b", "a")) == []


# ---- statistics that the user gives ------------------------------------------------------------


def test_given_rates_replace_the_sample_and_pairs_share_their_selectivity() -> None:
    pattern = seq(A, B).where("a.price < b.price", "a.card < b.card").within("5 s")
    given = Statistics({"A": 4, "b": 1}, {("a", "b"): 0.04, ("a", "a"): 0.5})
    facts = with_statistics(facts_of(pattern, {"a": 1, "b": 9}), given)
    assert facts.estimates is not None
    assert facts.estimates.rates == {0: 2.0, 1: 1.0}
    assert facts.estimates.selectivities == pytest.approx({0: 0.2, 1: 0.2})
    assert facts.source == "the rates given"


def test_a_selectivity_of_one_variable_is_of_its_own_condition_or_else_of_its_rate() -> None:
    pattern = seq(A, event("b", "name = 'b'").times("+")).where("b.price > prev(b.price)")
    given = Statistics({"a": 4, "b": 2}, {("a", "a"): 0.5, ("b", "b"): 0.1})
    facts = with_statistics(facts_of(pattern.within("5 s"), {"a": 1, "b": 9}), given)
    assert facts.estimates is not None
    assert facts.estimates.rates == {0: 2.0, 1: 2.0}
    assert facts.estimates.selectivities == {0: 0.1}


def test_a_selectivity_of_variables_that_no_condition_ties_is_said_to_be_unused() -> None:
    facts = with_statistics(
        facts_of(RISING, {"a": 1, "b": 1, "c": 1}), Statistics(selectivities={("a", "c"): 0.1})
    )
    assert facts.notes == (
        "the engine tests no condition between a and c, so their selectivity is unused",
    )


def test_statistics_are_of_variables_that_the_pattern_has() -> None:
    variables = compiled_of(seq(A, B)).variables
    check_statistics(Statistics({"a": 1, "B": 2}, {("A", "b"): 0.5}), variables)
    with pytest.raises(PlanError, match="selectivity for 'x'") as caught:
        check_statistics(Statistics(selectivities={("a", "x"): 0.5}), variables)
    assert caught.value.hint == "the pattern's variables are a, b"
    with pytest.raises(PlanError, match="rate for 'x'"):
        check_statistics(Statistics({"a": 1, "b": 1, "x": 1}), variables)
    three = compiled_of(seq(A, B, C)).variables
    with pytest.raises(PlanError, match="no rate for 'b', 'c'") as caught:
        check_statistics(Statistics({"a": 1}), three)
    assert caught.value.hint is not None
    assert "every positive variable" in caught.value.hint


def test_statistics_say_each_thing_once() -> None:
    variables = compiled_of(seq(A, B)).variables
    with pytest.raises(PlanError, match="two rates for 'a'"):
        check_statistics(Statistics({"a": 1, "A": 2, "b": 1}), variables)
    with pytest.raises(PlanError, match="two selectivities for 'a' and 'b'"):
        check_statistics(Statistics(selectivities={("a", "b"): 0.1, ("B", "a"): 0.2}), variables)


@pytest.mark.parametrize("never", ["a", "b", "c"])
def test_a_rate_of_0_is_the_rarest(never: str) -> None:
    rates = {"a": 3, "b": 2, "c": 5, never: 0}
    facts = with_statistics(facts_of(RISING, {"a": 1, "b": 1, "c": 1}), Statistics(rates))
    choice = choose_plan(facts)
    assert names(facts, choice.order)[0] == never
    assert choice.cost


def test_rates_that_are_all_0_say_nothing() -> None:
    zeros = Statistics({"a": 0, "b": 0, "c": 0})
    facts = with_statistics(facts_of(RISING, {"a": 1, "b": 1, "c": 1}), zeros)
    choice = choose_plan(facts)
    assert choice.rung == "no statistics"
    assert "all given rates are 0" in choice.reason


@pytest.mark.parametrize(
    ("rates", "selectivities", "message"),
    [
        ({"a": -1}, {}, "the rate of 'a' is -1"),
        ({"a": float("nan")}, {}, "the rate of 'a' is nan"),
        ({"a": True}, {}, "the rate of 'a' is True"),
        ({"a": float("inf")}, {}, "the rate of 'a' is inf"),
        ({1: 2}, {}, "rates has the key 1, which is not"),
        ([1, 2], {}, "rates takes a dict, not list"),
        ({}, [("a", "b")], "selectivities takes a dict, not list"),
        ({}, {("a", "b"): 1.5}, "is 1.5"),
        ({}, {"ab": 0.5}, "'ab', which is not a pair"),
    ],
)
def test_statistics_are_numbers_that_can_be(rates: Any, selectivities: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Statistics(rates, selectivities)


# ---- plans that do not fit ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan_request", "message"),
    [
        (plans.chain("a", "b"), "the chain omits c"),
        (plans.chain("a", "b", "c", "a"), "the chain names 'a' twice"),
        (
            plans.chain("a", "b", "c", "z"),
            "the chain names 'z', which is not a variable of the pattern",
        ),
        (plans.chain("a", "y", "b", "c"), "the chain names 'y', which is negated"),
        (plans.join((("a", "b"), "b")), "the join tree names 'b' twice"),
        (plans.join(("a", "b")), "the join tree omits c"),
        (plans.hybrid(eager=["a"], lazy=["b"]), "the hybrid plan omits c"),
        (plans.hybrid(eager=["a", "b"], lazy=["b", "c"]), "the hybrid plan names 'b' twice"),
    ],
)
def test_a_plan_names_every_positive_variable_once(plan_request: PlanRequest, message: str) -> None:
    compiled = compiled_of(seq(A, no(event("y", "name = 'y'")), B, C).within("5 s"))
    with pytest.raises(PlanError, match=message) as caught:
        check_plan_request(plan_request, compiled.variables, compiled.branches)
    assert caught.value.hint is not None
    # What the hint says can be pasted.
    _, _, example = caught.value.hint.partition("for example ")
    pasted = eval(example, {"cep": cep})
    assert pasted.kind == plan_request.kind
    check_plan_request(pasted, compiled.variables, compiled.branches)


def test_a_repeated_group_cannot_be_kept_eagerly() -> None:
    compiled = compiled_of(seq(A, seq(B, C).times("+")).within("5 s"))
    with pytest.raises(PlanError, match="eager variable 'b', which is part of a repeated group"):
        check_plan_request(
            plans.hybrid(eager=["b", "c"], lazy=["a"]), compiled.variables, compiled.branches
        )


@pytest.mark.parametrize("parts", ["ab", ("a", "b", "c"), ("a",), 3])
def test_a_join_is_a_pair(parts: object) -> None:
    if parts == "ab":
        assert plans.join(parts).parts == "ab"
        return
    with pytest.raises(PlanError, match="is not a pair"):
        plans.join(parts)


@pytest.mark.parametrize("plan", ["greedy", 3, None, ["a"]])
def test_what_is_no_plan_is_refused(plan: object) -> None:
    with pytest.raises(PlanError, match="unknown plan") as caught:
        plans.read_plan_request(plan)
    assert caught.value.hint is not None
    assert '"zstream"' in caught.value.hint


def test_a_plan_that_was_not_called_is_named_as_such() -> None:
    with pytest.raises(PlanError, match="not the function that makes it") as caught:
        plans.read_plan_request(plans.tree)
    assert "call the function" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("plan", "planner", "kind", "shown"),
    [
        ("auto", "dp", "lazy-chain", "b→c→a"),
        ("lazy-chain", "dp", "lazy-chain", "b→c→a"),
        ("auto", "greedy", "lazy-chain", "a→b→c"),
        ("lazy-chain", "greedy", "lazy-chain", "a→b→c"),
        ("auto", "local-search", "lazy-chain", "b→c→a"),
        ("auto", "zstream", "zstream", "((b c) a)"),
        ("zstream", "zstream", "zstream", "((b c) a)"),
    ],
)
def test_the_planner_that_is_asked_for_makes_the_plan(
    plan: str, planner: str, kind: str, shown: str
) -> None:
    """a is rarest, but nothing ties it to the others."""
    pattern = seq(A, B, C).where("b.price = c.price").within("10 s")
    facts = facts_of(pattern, {"a": 26, "b": 27, "c": 27})
    assert facts.estimates is not None
    facts = replace(
        facts,
        estimates=replace(facts.estimates, selectivities={0: 0.01}),
        plan_request=plans.read_plan_request(plan, planner),
    )
    choice = choose_plan(facts)
    assert (choice.plan.kind, choice.planner, choice.adapts) == (kind, planner, True)
    assert choice.shown == shown or (planner == "zstream" and choice.shown == "b→c→a")
    told = describe_costs(compiled_of(pattern), choice, Adaptation("invariants"))
    assert told["planner"].startswith(f"{planner}: ")
    is_local = planner == "local-search"
    assert told["adaptation"].startswith("no: local search" if is_local else "invariants")
    if planner != "dp":
        assert choice.rung == "forced"
        assert choice.reason.startswith(f"planner='{planner}', its plan by ")


def test_without_statistics_the_buckets_use_the_planner() -> None:
    request = plans.read_plan_request("auto", "zstream")
    choice = choose_plan(facts_of(RISING, plan_request=request))
    assert (choice.plan.kind, choice.plan.branches, choice.planner) == ("zstream", None, "zstream")


def test_where_nothing_is_decided_there_is_no_planner() -> None:
    for request in (plans.eager(), plans.tree(), plans.chain("a", "b", "c")):
        assert choose_plan(facts_of(RISING, {"a": 1, "b": 1, "c": 1}, request)).planner is None


@pytest.mark.parametrize(
    ("plan", "planner", "message", "hint"),
    [
        ("auto", "gredy", "unknown planner 'gredy'", 'did you mean "greedy"? planner is one of'),
        ("auto", "DP", "unknown planner 'DP'", 'did you mean "dp"?'),
        ("auto", None, "unknown planner None", 'planner is one of "dp", "greedy", "zstream"'),
        (
            "zstream", "greedy", "planner=\"greedy\" makes no plan of the kind 'zstream'",
            'write plan="lazy-chain", or planner="dp" or planner="zstream"',
        ),
        (
            "lazy-chain", "zstream", "makes no plan of the kind 'lazy-chain'",
            'or planner="greedy" or planner="local-search"',
        ),
        ("tree", "local-search", "makes no plan of the kind 'tree'", "or leave planner= out"),
        ("eager", "greedy", "has nothing to decide", "leave planner= out"),
        (plans.chain("a", "b", "c"), "greedy", "has nothing to decide", 'plan="lazy-chain"'),
    ],
)  # fmt: skip
def test_a_planner_that_does_not_fit_is_refused(
    plan: Any, planner: object, message: str, hint: str
) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        plans.read_plan_request(plan, planner)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("plan_request", "adaptation", "says"),
    [
        (plans.read_plan_request("auto"), adapt.off(), 'no: adapt="off"'),
        (
            plans.read_plan_request("auto"),
            adapt.always(),
            "always: a new plan before each chunk",
        ),
        (plans.read_plan_request("zstream"), adapt.threshold(0.5), "threshold, 50%: "),
        (
            plans.read_plan_request("auto"),
            adapt.invariants(None, 0.2),
            "invariants, k=all, distance=0.2: ",
        ),
        (
            plans.read_plan_request("tree"),
            adapt.always(),
            "no: each partial match chooses for itself",
        ),
        (
            plans.read_plan_request("eager"),
            adapt.always(),
            "no: eager keeps the order of the pattern",
        ),
        (plans.read_plan_request("hybrid"), adapt.always(), "no: a hybrid plan keeps its groups"),
        (plans.chain("c", "b", "a"), adapt.always(), "no: the order was forced"),
        (plans.join(("a", ("b", "c"))), adapt.always(), "no: the order was forced"),
    ],
)
def test_explain_says_whether_and_when_the_plan_changes(
    plan_request: PlanRequest, adaptation: Adaptation, says: str
) -> None:
    choice = choose_plan(facts_of(RISING, {"a": 100, "b": 10, "c": 1}, plan_request=plan_request))
    told = describe_costs(compiled_of(RISING), choice, adaptation)["adaptation"]
    assert told.startswith(says)


@pytest.mark.parametrize(
    "call",
    [
        lambda: adapt.threshold(0),
        lambda: adapt.threshold(float("nan")),
        lambda: adapt.threshold(float("inf")),
        lambda: adapt.invariants(distance=float("inf")),
        lambda: adapt.invariants(k=0),
        lambda: adapt.invariants(distance=-0.1),
        lambda: adapt.invariants(distance="far"),  # type: ignore[arg-type]
        lambda: adapt.adaptation("sometimes"),
    ],
)
def test_what_is_no_way_to_adapt_is_refused(call: Any) -> None:
    with pytest.raises(PlanError) as caught:
        call()
    assert caught.value.hint


# ---- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["partial_matches", "matches", "backtracking_steps", "rows", "pairs"]
)
@pytest.mark.parametrize("value", ["lots", -3, 0, 1.5, True])
def test_a_limit_is_a_whole_number_above_0(name: str, value: object) -> None:
    with pytest.raises(PatternError, match=name) as caught:
        Limits(**{name: value})  # type: ignore[arg-type]
    assert "None for no limit" in str(caught.value.hint)


def test_a_limit_may_be_left_away() -> None:
    assert Limits(partial_matches=None, matches=1).partial_matches is None
