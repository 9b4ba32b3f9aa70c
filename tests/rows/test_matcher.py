"""What the matcher answers, on rows small enough to check by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_cep.udfs.errors import CepError, LimitError, PatternError, WorkerError, parse_error
from spark_cep.udfs.execution.row_engine import compile_row_program
from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Constant
from spark_cep.udfs.program import Limits, Order, Window
from spark_cep.udfs.row_program import Aggregate, Classifier, MatchNumber, RowPatternNode, Skip
from tests.rows.programs import (
    INT,
    STRING,
    S,
    T,
    X,
    alternate,
    answer,
    answer_and_metrics,
    compare,
    concat,
    current,
    exclude,
    expected,
    first,
    last,
    number,
    permute,
    plus,
    program,
    repeat,
    rows_of,
    star,
    v,
)

A, B, C, D = range(4)
FALSE = Constant(False, BOOL)
LABEL = Classifier(INT)
UP = compare(">", current(), current(shift=-1))
DOWN = compare("<", current(), current(shift=-1))
EMPTY = RowPatternNode("empty")


def labels(case, *values):  # type: ignore[no-untyped-def]
    """(time, variable) of each row of the answer."""
    found = answer(replace(case, measures=(LABEL,)), rows_of(*values))
    return [(time, None if label is None else "ABCD"[label]) for _, time, label in found]


def text(case, *values):  # type: ignore[no-untyped-def]
    """The variables of the matched rows in order, matches apart."""
    case = replace(case, measures=(MatchNumber(BIGINT), LABEL))
    found: dict[int, str] = {}
    for _, _, match, label in answer(case, rows_of(*values)):
        found[match] = found.get(match, "") + ("" if label is None else "ABCD"[label])
    return list(found.values())


# ---- preference --------------------------------------------------------------------------------


def test_a_v_shape_is_found_from_its_first_row_on() -> None:
    case = program(concat(v(A), plus(v(B)), plus(v(C))), {B: DOWN, C: UP})
    assert text(case, 90, 80, 70, 80, 90, 50, 40, 60) == ["ABBCC", "ABC"]


def test_the_first_alternative_is_preferred_to_a_longer_one() -> None:
    case = program(alternate(v(A), concat(v(B), v(C))))
    assert text(case, 1, 2) == ["A", "A"]


def test_alternatives_of_each_iteration_are_preferred_in_order_and_not_by_length() -> None:
    # The standard's example: AA, AB, A, BA, BB, B.
    case = program(repeat(alternate(v(A), v(B)), 1, 2), {A: compare("=", current(), number(1))})
    assert text(case, 1, 2) == ["AB"]
    assert text(replace(case, pattern=repeat(alternate(v(A), v(B)), 1, 2, greedy=False)), 1, 2) == [
        "A",
        "B",
    ]


def test_a_reluctant_quantifier_takes_as_few_rows_as_it_can() -> None:
    case = program(
        concat(repeat(v(A), 0, None, greedy=False), v(B)), {B: compare("=", current(), number(3))}
    )
    assert text(case, 1, 2, 3, 3) == ["AAB", "B"]


def test_permute_prefers_the_order_of_the_text() -> None:
    case = program(permute(v(A), v(B), v(C)), {A: compare(">", current(), number(1))})
    assert text(case, 1, 5, 6) == ["BAC"]
    assert text(case, 5, 1, 6) == ["ABC"]


def test_permute_of_many_variables_has_a_state_for_each_set_and_not_for_each_order() -> None:
    parts = [repeat(v(i % 4), 1, 1) for i in range(12)]
    case = program(permute(*parts), {A: FALSE})
    assert text(case, *range(12)) == []


def test_anchors_hold_at_the_ends_of_the_partition_only() -> None:
    case = program(concat(RowPatternNode("start"), v(A), plus(v(B)), RowPatternNode("end")))
    assert text(case, 1, 2, 3) == ["ABB"]
    assert text(program(concat(v(A), RowPatternNode("start"), v(B))), 1, 2, 3) == []
    assert labels(program(concat(v(A), RowPatternNode("end"))), 1, 2, 3) == [(2, "A")]


# ---- iterations that match nothing ---------------------------------------------------------------


def test_an_empty_iteration_ends_the_repetition_once_the_lower_bound_is_met() -> None:
    # The standard's example: (A??)* B prefers the empty iteration, and then only B may follow.
    pattern = concat(star(repeat(v(A), 0, 1, greedy=False)), v(B))
    assert text(program(pattern), 1, 2) == ["B", "B"]


def test_empty_iterations_may_fill_the_lower_bound() -> None:
    pattern = repeat(repeat(v(A), 0, 1), 2, 3)
    case = program(pattern, {A: compare("=", current(), number(1))})
    assert text(case, 1, 1, 0, 1) == ["AA", "", "A"]


@pytest.mark.parametrize("empty", [EMPTY, RowPatternNode("start"), RowPatternNode("end")])
def test_a_repetition_of_nothing_ends(empty: RowPatternNode) -> None:
    case = program(alternate(star(empty), v(B)))
    assert labels(case, 1, 2) == [(0, None), (1, None)]


def test_nested_repetitions_that_may_be_empty_end() -> None:
    pattern = star(star(concat(star(v(A)), star(v(B)))))
    case = program(
        pattern, {A: compare("=", current(), number(1)), B: compare("=", current(), number(2))}
    )
    assert text(case, 1, 2, 1, 3, 2) == ["ABA", "", "B"]


# ---- where it goes on, and what is shown ---------------------------------------------------------


def test_after_a_match_search_goes_on_where_skip_says() -> None:
    case = program(concat(v(A), plus(v(B)), plus(v(C))), {B: DOWN, C: UP})
    rows = (90, 80, 70, 80, 70, 80)
    assert labels(replace(case, skip=Skip("next row")), *rows)[4:7] == [
        (1, "A"),
        (2, "B"),
        (3, "C"),
    ]
    to_c = replace(case, skip=Skip("first", frozenset([C])))
    assert labels(to_c, *rows)[4:] == [(3, "A"), (4, "B"), (5, "C")]
    to_b = replace(case, skip=Skip("last", frozenset([B])))
    assert labels(to_b, *rows)[4] == (3, "A")


def test_skipping_to_a_variable_without_a_row_is_an_error_that_names_the_key() -> None:
    case = program(concat(v(A), repeat(v(B), 0, 1)), {B: FALSE}, skip=Skip("first", frozenset([B])))
    with pytest.raises(WorkerError, match=r"\[7\].*TO FIRST B has nowhere to go") as raised:
        answer(case, rows_of(1, 2, key=7))
    error = parse_error(str(raised.value))
    assert isinstance(error, CepError)
    assert error.details["key"] == [7]


def test_skipping_to_the_first_row_of_the_match_is_an_error() -> None:
    case = program(plus(v(A)), skip=Skip("first", frozenset([A])))
    with pytest.raises(WorkerError, match="would go to the first row"):
        answer(case, rows_of(1, 2))


def test_a_skip_to_a_variable_does_not_concern_empty_matches() -> None:
    case = program(star(v(A)), {A: FALSE}, skip=Skip("first", frozenset([A])))
    assert labels(case, 1, 2) == [(0, None), (1, None)]


def test_modes_differ_in_empty_matches_and_unmatched_rows() -> None:
    case = program(star(v(B)), {B: compare(">", current(), number(1))})
    assert labels(case, 1, 2, 2, 1) == [(0, None), (1, "B"), (2, "B"), (3, None)]
    assert labels(replace(case, rows="all omit empty"), 1, 2, 1) == [(1, "B")]
    unmatched = replace(case, pattern=concat(v(B), v(B)), rows="all with unmatched")
    assert labels(unmatched, 1, 2, 2, 1) == [(0, None), (1, "B"), (2, "B"), (3, None)]
    assert labels(replace(case, rows="one"), 1, 2, 2, 1) == [(0, None), (1, "B"), (3, None)]


def test_a_row_of_an_earlier_match_is_not_unmatched() -> None:
    case = program(concat(v(A), repeat(v(B), 2, 2)), {B: DOWN}, rows="all with unmatched",
                   skip=Skip("next row"), measures=(MatchNumber(BIGINT),))  # fmt: skip
    found = [(time, match) for _, time, match in answer(case, rows_of(100, 100, 90, 80, 70, 100))]
    assert found == [(0, None), (1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (4, 2), (5, None)]


def test_an_empty_match_counts_nothing_and_an_unmatched_row_says_nothing() -> None:
    measures = (MatchNumber(BIGINT), Aggregate("count", None, BIGINT), Aggregate("list", X, BIGINT))
    case = program(star(v(B)), {B: FALSE}, measures=measures)
    assert answer(case, rows_of(5)) == [(1, 0, 1, 0, [])]
    case = replace(case, pattern=v(B), rows="all with unmatched")
    assert answer(case, rows_of(5)) == [(1, 0, None, None, None)]


def test_excluded_rows_are_not_shown_but_counted() -> None:
    case = program(concat(v(A), exclude(plus(v(B))), plus(v(C))), {B: DOWN, C: UP},
                   measures=(Aggregate("count", None, BIGINT), last(None)))  # fmt: skip
    assert answer(case, rows_of(90, 80, 70, 80)) == [(1, 0, 1, 90), (1, 3, 4, 80)]


# ---- what is read ------------------------------------------------------------------------------


def test_neighbours_are_read_beyond_the_match_but_not_beyond_the_partition() -> None:
    measures = tuple(last([B], shift=shift) for shift in (-3, 1, 2))
    same = compare("=", current(), current(shift=-1))
    case = program(concat(v(A), v(B)), {B: same}, rows="one", measures=measures)
    assert answer(case, rows_of(10, 20, 30, 30, 40)) == [(1, 2, 10, 40, None)]


def test_partitions_are_apart_and_rows_are_sorted_in_them() -> None:
    case = program(concat(v(A), plus(v(B))), {B: UP}, measures=(LABEL,))
    rows = [
        (2, 1, 5, None, None),
        (1, 3, 9, None, None),
        (2, 0, 4, None, None),
        (1, 2, 8, None, None),
    ]
    assert answer(case, rows) == [(1, 2, 0), (1, 3, 1), (2, 0, 0), (2, 1, 1)]


def test_ties_keep_the_order_of_arrival() -> None:
    case = program(plus(v(A)), measures=(current(),))
    rows = [(1, t, x, None, None) for x, t in enumerate([1, 0, 1, 0, 1, 1, 0, 0] * 40)]
    found = [x for _, _, x in answer(case, rows)]
    assert found == [x for _, x in sorted((t, x) for _, t, x, _, _ in rows)]


def test_several_order_columns_descending_and_nulls_last() -> None:
    orders = (Order(S, STRING, descending=True, nulls_first=False), Order(X, BIGINT))
    case = program(plus(v(A)), orders=orders, measures=(current(S), current()))
    rows = [(1, 0, x, s, None) for x, s in [(2, "a"), (1, None), (1, "b"), (None, "a"), (1, "a")]]
    found = [(s, x) for _, _, s, x in answer(case, rows)]
    assert found == [("b", 1), ("a", None), ("a", 1), ("a", 2), (None, 1)]


def test_without_keys_and_order_rows_stay_as_they_come() -> None:
    case = program(plus(v(A)), keys=(), orders=(), measures=(current(),))
    rows = [(k, 0, x, None, None) for x, k in enumerate([2, 1, 2, 1])]
    assert [x for _, _, x in answer(case, rows)] == [0, 1, 2, 3]


def test_a_condition_may_count_what_is_bound_so_far() -> None:
    total = Aggregate("sum", X, BIGINT, frozenset([A]))
    case = program(plus(v(A)), {A: compare("<=", total, number(10))})
    assert labels(case, 4, 5, 2, 9, 1, 1) == [(i, "A") for i in range(6)]
    case = replace(case, measures=(MatchNumber(BIGINT),))
    assert [m for _, _, m in answer(case, rows_of(4, 5, 2, 9, 1, 1))] == [1, 1, 2, 3, 3, 4]


def test_the_row_under_test_counts_only_for_its_own_variable() -> None:
    # avg(B.x) before any B is NULL: not true.
    mean = Aggregate("avg", X, replace(BIGINT, kind="float"), frozenset([B]))
    five = Constant(5.0, replace(BIGINT, kind="float"))
    case = program(star(alternate(v(A), v(B))), {A: compare("=", mean, five)})
    assert text(case, 4, 6, 0) == ["BBA"]


def test_conditions_read_classifiers_and_the_match_number() -> None:
    before = Classifier(INT, "current", shift=-1)
    case = program(star(alternate(v(A), v(B))), {A: compare("=", before, Constant(B, INT))})
    assert text(case, 1, 1, 1, 1) == ["BABA"]
    case = program(
        repeat(alternate(v(A), v(B)), 2, 2), {A: compare(">", MatchNumber(BIGINT), number(1))}
    )
    assert text(case, 1, 1, 1, 1) == ["BB", "AA"]


def test_an_aggregate_may_have_an_argument_over_the_match() -> None:
    argument = Call("+", (current(), MatchNumber(BIGINT)), BIGINT)
    most = Aggregate("max", None, BIGINT, argument=argument)
    case = program(star(alternate(v(A), v(B))), {A: compare(">", most, number(5))})
    found, metrics = answer_and_metrics(replace(case, measures=(LABEL,)), rows_of(1, 2, 5, 1))
    assert [label for _, _, label in found] == [B, B, A, A]
    assert metrics["asked"] == 4


# ---- WITHIN, limits, metrics ---------------------------------------------------------------------


def test_within_bounds_the_time_from_the_first_row_inclusively() -> None:
    case = program(plus(v(A)), within=Window("time", 2))
    assert text(case, 0, 0, 0, 0) == ["AAA", "A"]


def test_rows_without_a_time_are_ignored_and_counted_where_there_is_a_within() -> None:
    case = program(plus(v(A)), within=Window("time", 2), measures=(current(),))
    rows = [(1, None, 7, None, None), (1, 1, 8, None, None)]
    found, metrics = answer_and_metrics(case, rows)
    assert found == [(1, 1, 8)]
    assert metrics["ignored_rows"] == 1


def test_too_many_steps_are_an_error_that_names_the_key_and_the_way_out() -> None:
    pattern = concat(plus(v(A)), plus(v(B)), v(C))
    case = program(pattern, {C: FALSE}, limits=Limits(backtracking_steps=50))
    with pytest.raises(WorkerError, match=r"partition key \[3\] took more than 50 steps") as raised:
        answer(case, rows_of(*range(100), key=3))
    error = parse_error(str(raised.value))
    assert isinstance(error, LimitError)
    assert error.details["limit"] == "backtracking_steps"
    assert "WITHIN" in (error.hint or "")


def test_the_bucket_reports_what_it_did() -> None:
    case = program(star(v(B)), {B: compare(">", current(), number(1))}, rows="all with unmatched")
    _, metrics = answer_and_metrics(case, rows_of(1, 2, 2))
    assert metrics["rows"] == 3
    assert (metrics["matches"], metrics["empty_matches"], metrics["unmatched_rows"]) == (2, 1, 0)
    assert metrics["partitions"] == 1
    assert metrics["steps"] > 0


def test_a_program_that_is_too_large_is_refused_on_the_driver() -> None:
    nested = repeat(repeat(repeat(v(A), 100, 100), 100, 100), 100, 100)
    for case, message in (
        (program(nested), "repetition counts multiply"),
        (program(permute(*[v(A)] * 30)), "PERMUTE of 30 parts"),
        (program(v(A), within=Window("events", 3)), "count events"),
    ):
        with pytest.raises(PatternError, match=message):
            compile_row_program(case)
    compile_row_program(program(nested.parts[0]))


def test_more_variables_than_bits() -> None:
    from spark_cep.udfs.row_program import RowVariable

    defines = [compare("=", current(), number(i)) for i in range(100)]
    variables = tuple(RowVariable(f"v{i}", define) for i, define in enumerate(defines))
    case = program(concat(*map(v, range(100))), variables=variables, measures=(LABEL,))
    assert [label for _, _, label in answer(case, rows_of(*range(100)))] == list(range(100))
    shuffled = rows_of(*range(63), 70, *range(64, 100))
    assert answer(case, shuffled) == []


def test_the_reference_agrees_with_the_cases_of_this_page() -> None:
    measures = (LABEL, first([B]), last([A], T), Aggregate("list", None, INT))
    case = program(concat(v(A), plus(v(B)), plus(v(C))), {B: DOWN, C: UP}, measures=measures)
    rows = rows_of(90, 80, 70, 80, 90, 50, 40, 60)
    assert answer(case, rows) == expected(case, rows)


def test_distinct_aggregates_of_several_sets_count_apart() -> None:
    def values(variables: list[int], name: str) -> Aggregate:
        return Aggregate(name, X, BIGINT, frozenset(variables), distinct=True)  # type: ignore[arg-type]

    both = Call("+", (values([A, B], "count"), values([B], "count")), BIGINT)
    case = program(concat(v(A), star(v(B))), {B: compare("<=", both, number(3))})
    assert text(case, 1, 1, 1, 2, 1, 3) == ["ABB", "AB", "A"]
    totals = Call("+", (values([B], "sum"), values([B], "count")), BIGINT)
    case = program(concat(v(A), star(v(B))), {B: compare("<=", totals, number(4))})
    assert text(case, 9, 3, 3, 1) == ["ABB", "A"]
