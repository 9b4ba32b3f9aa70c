"""The work that a row makes, against DARLING's Eqs. 5 to 10 as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.costs import OperationCosts
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import BranchPlan, Plan
from spark_cep.udfs.shedding.learning import estimate_loads, estimate_slot_loads
from tests.planning.branches import NAMES, compared, estimates, listed, model, sequence
from tests.settings import shapes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_cep.udfs.program import Shape

AND = frozenset[tuple[int, int]]()
COSTS = OperationCosts(pair=3.0, result=5.0, insert=7.0)


@dataclass(frozen=True)
class Paper:
    """A pure conjunction. `rates`: R * w of each type; `kept`: SEL of each condition, by the two
    types that it compares. Tests of order and window are one more condition of each inner node,
    which keeps everything."""

    shape: Shape
    rates: Sequence[float]
    kept: Mapping[tuple[int, int], float]

    def types(self, node: Shape) -> set[int]:
        return {node} if isinstance(node, int) else self.types(node[0]) | self.types(node[1])

    def nodes(self, node: Shape) -> list[Shape]:
        if isinstance(node, int):
            return [node]
        return [node, *self.nodes(node[0]), *self.nodes(node[1])]

    def conditions(self, node: Shape) -> list[float]:
        """SEL of C_node(N)."""
        if isinstance(node, int):
            return []
        left, right = self.types(node[0]), self.types(node[1])
        return [1.0] + [
            kept for (a, b), kept in self.kept.items()
            if (a in left and b in right) or (a in right and b in left)
        ]  # fmt: skip

    def sel(self, node: Shape) -> float:
        return prod(self.conditions(node))

    def pm(self, node: Shape) -> float:
        """Eq. 10."""
        if isinstance(node, int):
            return self.rates[node] * self.sel(node)
        return self.sel(node) * self.pm(node[0]) * self.pm(node[1])

    def new(self, node: Shape, type_: int) -> float:
        """Eqs. 8 and 9: PM(N, T)."""
        if isinstance(node, int):
            return self.sel(node) * (node == type_)
        on, off = node if type_ in self.types(node[0]) else (node[1], node[0])
        return self.sel(node) * self.new(on, type_) * self.pm(off)

    def peer(self, node: Shape) -> float:
        """Eqs. 5 and 6."""
        for parent in self.nodes(self.shape):
            if not isinstance(parent, int) and node in parent:
                other = parent[1] if parent[0] == node else parent[0]
                return len(self.conditions(parent)) * COSTS.pair * self.pm(other)
        return 0.0

    def z(self, type_: int) -> float:
        """Eq. 7."""
        path = [node for node in self.nodes(self.shape) if type_ in self.types(node)]
        each = COSTS.result + COSTS.insert
        return sum((self.peer(node) + each) * self.new(node, type_) for node in path)


@st.composite
def papers(draw: st.DrawFn) -> Paper:
    size = draw(st.integers(1, 5))
    rates = draw(st.lists(st.floats(0.1, 50), min_size=size, max_size=size))
    pairs = draw(st.sets(st.sampled_from(sorted(sequence(size))))) if size > 1 else set()
    kept = {pair: draw(st.floats(0.01, 1)) for pair in sorted(pairs)}
    return Paper(draw(shapes_of(tuple(range(size)))), rates, kept)


def of_code(paper: Paper) -> dict[int, float]:
    branch = model(len(paper.rates), [compared(*pair) for pair in paper.kept], AND)
    figures = branch.estimator(estimates(paper.rates, *paper.kept.values()))
    return estimate_slot_loads(figures, paper.shape, COSTS)


@settings(deadline=None, derandomize=True, database=None)
@given(papers())
def test_conjunctions_take_what_the_paper_says_in_chains_and_bushy_trees(paper: Paper) -> None:
    found = of_code(paper)
    assert found == pytest.approx({t: paper.z(t) for t in range(len(paper.rates))})


@settings(deadline=None, derandomize=True, database=None)
@given(papers())
def test_each_event_has_its_equal_part_of_a_nodes_partial_matches(paper: Paper) -> None:
    for node in paper.nodes(paper.shape):
        for type_ in paper.types(node):
            assert paper.new(node, type_) == pytest.approx(paper.pm(node) / paper.rates[type_])


def test_the_papers_figure_by_hand() -> None:
    # ((a b) c), 2 of a, 3 of b and 4 of c in a window; half of a b pass, a tenth with c.
    paper = Paper(left_deep_shape([0, 1, 2]), [2.0, 3.0, 4.0], {(0, 1): 0.5, (1, 2): 0.1})
    each = COSTS.result + COSTS.insert
    pair, both = 2 * COSTS.pair, each + 2 * COSTS.pair * 4
    assert of_code(paper) == pytest.approx(
        {
            0: (each + pair * 3) + both * 1.5 + each * 0.6,
            1: (each + pair * 2) + both * 1.0 + each * 0.4,
            2: (each + pair * 3) + each * 0.3,
        }
    )


def test_a_sequence_has_the_share_of_a_conjunction_that_is_in_order() -> None:
    rates, shape = estimates([2, 3]), left_deep_shape([0, 1])
    in_order = estimate_slot_loads(model(2).estimator(rates), shape, COSTS)
    any_order = estimate_slot_loads(model(2, order=AND).estimator(rates), shape, COSTS)
    made = COSTS.result + COSTS.insert
    assert any_order[0] - in_order[0] == pytest.approx(made * 3 / 2)


def test_rare_rows_make_more_work_each() -> None:
    found = estimate_slot_loads(
        model(3).estimator(estimates([100, 10, 1])), left_deep_shape([0, 1, 2]), COSTS
    )
    assert found[0] < found[1] < found[2]


def test_a_list_makes_the_work_of_all_its_lists() -> None:
    shape = left_deep_shape([0, 1])
    plain = estimate_slot_loads(model(2).estimator(estimates([2, 6])), shape, COSTS)
    listed_ = model(2, slots={1: listed(1)}).estimator(estimates([2, 6]))
    assert estimate_slot_loads(listed_, shape, COSTS)[1] > 3 * plain[1]


def test_what_never_comes_makes_no_work_and_too_much_is_a_number() -> None:
    nothing = model(2).estimator(estimates([0, 6]))
    assert estimate_slot_loads(nothing, left_deep_shape([0, 1]), COSTS)[0] == 0
    huge = estimate_slot_loads(
        model(9).estimator(estimates([1e60] * 9)), left_deep_shape(range(9)), COSTS
    )
    assert all(0 < each <= 1e100 for each in huge.values())


@pytest.mark.parametrize("plan", [Plan("eager"), Plan("tree")])
def test_a_plan_without_a_shape_stands_for_the_best_chain(plan: Plan) -> None:
    models, seen = [model(3, [compared(0, 1)])], estimates([50, 20, 1], 0.1)
    shaped = Plan("lazy-chain", (BranchPlan(left_deep_shape([2, 1, 0])),))
    assert estimate_loads(models, plan, seen, COSTS) == estimate_loads(models, shaped, seen, COSTS)


def test_a_variable_in_two_branches_makes_the_work_of_both() -> None:
    one, seen = model(2), estimates([5, 5])
    plan = Plan("lazy-chain", (BranchPlan(left_deep_shape([0, 1])),) * 2)
    alone = estimate_loads([one], plan, seen, COSTS)
    assert estimate_loads([one, one], plan, seen, COSTS) == {v: 2 * alone[v] for v in alone}
    assert [NAMES[v] for v in alone] == ["a", "b"]
