"""Linear extensions, against listing all permutations."""

from __future__ import annotations

from itertools import permutations
from math import factorial

from hypothesis import given
from hypothesis import strategies as st

from spark_cep.udfs.planning.combinatorics import LinearExtensions
from tests.planning.branches import orders


@given(st.data())
def test_the_count_is_that_of_the_permutations_that_keep_the_order(data: st.DataObject) -> None:
    order = data.draw(orders(6))
    elements = data.draw(st.sets(st.integers(0, 5)))
    extensions = LinearExtensions(
        [sum(1 << earlier for earlier, later in order if later == i) for i in range(6)]
    )
    allowed = [
        line
        for line in permutations(sorted(elements))
        if not any(
            (later, earlier) in order for i, earlier in enumerate(line) for later in line[i:]
        )
    ]
    assert extensions.count(sum(1 << i for i in elements)) == len(allowed)


def test_many_elements_in_sequence_or_in_no_order_are_no_work() -> None:
    unordered, chain = (
        LinearExtensions([0] * 30),
        LinearExtensions([(1 << i) - 1 for i in range(30)]),
    )
    assert chain.count((1 << 30) - 1) == 1
    assert unordered.count((1 << 20) - 1) == 2_432_902_008_176_640_000
    assert len(chain._counts) + len(unordered._counts) < 120


def test_elements_in_no_order_that_all_follow_others_are_no_work() -> None:
    half = (1 << 12) - 1
    extensions = LinearExtensions([0] * 12 + [half] * 12)
    assert extensions.count((1 << 24) - 1) == factorial(12) ** 2
    assert len(extensions._counts) < 50
