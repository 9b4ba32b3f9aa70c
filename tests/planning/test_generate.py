"""The door: programs to models, plans to text."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_cep.udfs.costs import measure_costs
from spark_cep.udfs.expressions import BIGINT
from spark_cep.udfs.planning.planner import (
    ADAPTABLE,
    assemble_plan,
    branch_models,
    format_plan,
    generate_plans,
)
from spark_cep.udfs.program import (
    Branch,
    BranchPlan,
    Order,
    Plan,
    PlanKind,
    Program,
    Slot,
    Tree,
    Variable,
)
from tests.planning.branches import EVEN, compared, estimates, model, sequence


def test_each_branch_of_a_program_has_a_model() -> None:
    variables = tuple(Variable(name) for name in "abc")
    first = Branch((Slot((0,)), Slot((1,))), sequence(2))
    second = Branch((Slot((0,)), Slot((2,))), sequence(2))
    program = Program(
        columns=("t", "mask", "x"), keys=(), orders=(Order(0, BIGINT),), mask=1,
        variables=variables, conditions=(compared(0, 1), compared(0, 2)), tree=Tree("event", 0),
        branches=(first, second), plan=Plan("lazy-chain"),
    )  # fmt: skip
    made = branch_models(program)
    assert [each.names for each in made] == [("a", "b"), ("a", "c")]
    assert [[a.index for a in each.condition_models] for each in made] == [[0], [1]]


@pytest.mark.parametrize("kind", ADAPTABLE)
def test_a_plan_has_the_shapes_that_were_generated(kind: PlanKind) -> None:
    branches = [model(2), model(3)]
    generated = generate_plans(kind, branches, estimates([3, 2, 1]), EVEN)
    plan = assemble_plan(kind, generated)
    assert plan.kind == kind
    assert plan.branches == tuple(BranchPlan(each.shape) for each in generated)
    assert format_plan(plan, [each.names for each in branches]).startswith(
        "b→a or " if kind == "lazy-chain" else "b→a or c→b→a"
    )


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (((2, 1), 0), "c→b→a"),
        (0, "a"),
        (BranchPlan((0, (1, 2))), "(a (b c))"),
        (((0, 1), (2, 3)), "((a b) (c d))"),
        (BranchPlan(((3, (1, 2)), 0), (1, 2)), "b c | d→a"),
        (BranchPlan(((3, 1), 0), (1,)), "b | d→a"),
        (BranchPlan(((0, 1), 2), (0, 1, 2)), "a→b→c"),
        (BranchPlan(None), "{a, b, c, d}"),
    ],
)
def test_plans_are_shown_in_a_line(plan: object, text: str) -> None:
    names = "abcd"[: 3 if text == "a→b→c" else 4]
    assert format_plan(plan, names) == text  # type: ignore[arg-type]


def test_a_plan_that_each_bucket_makes_is_shown_by_its_kind() -> None:
    assert format_plan(Plan("tree"), []) == "tree"


def test_costs_are_measured_once_and_are_those_of_a_real_machine() -> None:
    found = measure_costs()
    assert measure_costs() is found
    for seconds in (found.pair, found.result, found.insert):
        assert 1e-11 < seconds < 1e-5


def test_the_cost_model_and_the_algorithms_of_the_papers_need_no_numpy() -> None:
    code = (
        "import sys, spark_cep.udfs.planning.apam, spark_cep.udfs.planning.zstream, "
        "spark_cep.udfs.planning.local_search; print('numpy' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    assert run.stdout.strip() == "False"
