"""What patterns from SASE text match: by the brute-force reference and by the engine, on rows small
enough to check by hand. A row is (t, kind, x); `u` numbers the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from spark_cep import sase
from tests.cases import Case
from tests.local import Setting, answer
from tests.reference.matcher import Match, matches, without_marks

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern

Rows = Sequence[tuple[int, str, int]]


def found(pattern: Pattern, rows: Rows) -> list[Match]:
    """The answer, the same from both; x stands in `k` as well, as an attribute to be SAME."""
    table = [
        {"t": t, "u": place, "k": x, "x": x, "f": float(x), "kind": kind}
        for place, (t, kind, x) in enumerate(rows)
    ]
    case = Case(pattern, table, partition_by=())
    expected = matches(pattern, table, order_by=case.order_by)
    assert sorted(map(str, answer(case, Setting()))) == sorted(map(str, expected))
    return sorted(without_marks(expected), key=str)


def test_the_first_figure_finds_rising_prices_in_order() -> None:
    pattern = sase(
        """
        PATTERN SEQ(E a, E b, E c)
        WHERE (a.kind = MSFT) AND (b.kind=GOOG) AND (c.kind = AAPL)
        AND (a.x < b.x) AND (b.x<c.x) WITHIN 10
        """,
        symbols={"E": None},
    )
    rows = [
        (1, "MSFT", 3),
        (2, "MSFT", 8),
        (3, "GOOG", 7),
        (4, "GOOG", 13),
        (5, "AAPL", 9),
        (20, "AAPL", 99),
    ]
    assert found(pattern, rows) == [(("a", 0), ("b", 2), ("c", 4))]


def test_same_holds_in_either_branch_of_an_or() -> None:
    pattern = sase(
        "SEQ(T t1, (SEQ(D d, T t2) OR SEQ(L l, T t3))) WHERE SAME[k] WITHIN 10", type_column="kind"
    )
    rows = [
        (1, "T", 7),
        (2, "D", 7),
        (3, "L", 7),
        (4, "L", 8),
        (5, "T", 7),
        (6, "T", 8),
    ]
    assert found(pattern, rows) == [
        (("t1", 0), ("d", 1), ("t2", 4), ("l", None), ("t3", None)),
        (("t1", 0), ("d", None), ("t2", None), ("l", 2), ("t3", 4)),
    ]


def test_same_across_sides_of_an_or_ties_each_side_by_itself() -> None:
    pattern = sase("SEQ(A a, B b) OR SEQ(C c, D d) WHERE SAME[k]", type_column="kind")
    rows = [(1, "A", 1), (2, "B", 2), (3, "C", 2), (4, "D", 2), (5, "B", 1)]
    assert found(pattern, rows) == [
        (("a", 0), ("b", 4), ("c", None), ("d", None)),
        (("a", None), ("b", None), ("c", 2), ("d", 3)),
    ]


def test_same_holds_within_and_across_the_rounds_of_a_group() -> None:
    pattern = sase("SEQ((A a, B b)+) WHERE SAME[k] WITHIN 10", type_column="kind")
    rows = [(1, "A", 1), (2, "B", 1), (3, "A", 1), (4, "B", 2), (5, "B", 1)]
    assert found(pattern, rows) == [
        (("a", (0, 2)), ("b", (1, 4))),
        (("a", (0,)), ("b", (1,))),
        (("a", (0,)), ("b", (4,))),
        (("a", (2,)), ("b", (4,))),
    ]


def test_rows_of_another_key_do_not_block() -> None:
    pattern = sase("SEQ(A a, ~X x, B b) WHERE SAME[k] WITHIN 10", type_column="kind")
    rows = [(1, "A", 1), (2, "A", 2), (3, "X", 2), (4, "B", 1), (5, "B", 2)]
    assert found(pattern, rows) == [(("a", 0), ("b", 3))]


def test_a_family_rises_from_member_to_member() -> None:
    pattern = sase(
        "SEQ(S_1, ..., S_n) WHERE ∀i ∈ {2, n}: S_i.x > S_{i-1}.x * C",
        type_column="kind",
        symbols={"n": 3, "C": 2, "S": ["P", "Q", "R"]},
    )
    rows = [(1, "P", 1), (2, "Q", 2), (3, "Q", 3), (4, "R", 7), (5, "R", 6)]
    assert found(pattern, rows) == [(("S_1", 0), ("S_2", 2), ("S_3", 3))]


def test_a_negated_member_of_a_family_blocks_where_its_conditions_hold() -> None:
    text = (
        "SEQ(S_1, ..., NEG(S_j), ..., S_n) WHERE S_j.x < X "
        "AND ∀i ∈ {2, n}: S_i.x > S_{i-1}.x WITHIN 10"
    )
    pattern = sase(text, type_column="kind", symbols={"n": 3, "j": 2, "X": 5})
    blocked = [(1, "S_1", 1), (2, "S_2", 3), (3, "S_3", 4)]
    assert found(pattern, blocked) == []
    for x in (6, 1):  # not below X; not rising from S_1
        free = [(1, "S_1", 1), (2, "S_2", x), (3, "S_3", 9)]
        assert found(pattern, free) == [(("S_1", 0), ("S_3", 2))]


def test_an_indexed_list_is_compared_element_by_element() -> None:
    pattern = sase(
        """
        SEQ(A+ a[], B b)
        WHERE skip_till_next_match(a[], b) { a[1].x > 1 AND a[i].x > a[i-1].x AND b.x < a[a.LEN].x }
        """,
        type_column="kind",
    )
    rows = [(1, "A", 1), (2, "A", 2), (3, "A", 5), (4, "B", 4)]
    assert found(pattern, rows) == [(("a", (1, 2)), ("b", 3)), (("a", (2,)), ("b", 3))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2 events", []), ("3 events", [(("A", 0), ("B", 2))]), ("3", [(("A", 0), ("B", 2))])],
)
def test_a_window_counts_rows_or_time(text: str, expected: list[Match]) -> None:
    pattern = sase(f"PATTERN A; B WITHIN {text}", type_column="kind")
    assert found(pattern, [(1, "A", 1), (2, "X", 1), (4, "B", 1)]) == expected
