"""The brute-force reference, held to section 2 of the semantics page by hand-checked cases.

Rows are written as kind and time, "a1 b2", with a value after a colon ("b2:7", "b2:_" is NULL)
and a partition key after an at sign ("b2@k"). A variable takes the rows of the kind that it is
named after. A match is written as its rows in the order of the pattern: "a1 b2,b3 - []" fills a
list with two rows, leaves a part unfilled, and matches a list as empty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from spark_cep.pattern import Pattern, all_of, any_of, event, iter_events, no, seq
from tests.reference.assignments import TooMany
from tests.reference.matcher import matches, without_marks

if TYPE_CHECKING:
    from tests.reference.expressions import Value

ROW = re.compile(r"(?P<kind>[a-z]+)(?P<t>\d+|_)(?::(?P<x>-?\d+|_))?(?:@(?P<k>\w+))?")


def rows_of(text: str) -> list[dict[str, Value]]:
    found = [ROW.fullmatch(token) for token in text.split()]
    return [
        {"kind": row["kind"], "t": _number(row["t"]), "x": _number(row["x"]), "k": row["k"]}
        for row in found
        if row is not None
    ]


def _number(text: str | None) -> int | None:
    return None if text in {None, "_"} else int(text or 0)


def found(
    pattern: Pattern,
    text: str,
    *,
    order_by: tuple[str, ...] = ("t",),
    partition_by: tuple[str, ...] = (),
    steps: int = 50_000,
) -> set[str]:
    """The matches of a pattern each of whose variables takes the rows of its own kind."""
    kinds = [f"{e.name}.kind = '{e.name[0]}'" for e, _ in iter_events(pattern.root)]
    answer = matches(
        pattern.where(*kinds),
        rows_of(text),
        order_by=order_by,
        partition_by=partition_by,
        steps=steps,
    )
    tokens = text.split()

    def shown(rows: int | tuple[int, ...] | None) -> str:
        if rows is None:
            return "-"
        return tokens[rows] if isinstance(rows, int) else ",".join(tokens[r] for r in rows) or "[]"

    return {" ".join(shown(rows) for _, rows in match) for match in answer}


def until_next(pattern: Pattern) -> Pattern:
    return pattern.strategy("skip till next match")


def strictly(pattern: Pattern) -> Pattern:
    return pattern.strategy("strict")


# ---- rows, keys, order -------------------------------------------------------------------------


def test_rows_of_different_keys_never_meet_and_null_is_a_key() -> None:
    rows = "a1@k a1 b2@k b2 b3@m"
    assert found(seq("a", "b"), rows, partition_by=("k",)) == {"a1@k b2@k", "a1 b2"}


def test_nan_keys_are_equal_and_so_are_the_zeros() -> None:
    nan = float("nan")
    rows = [{"t": time, "k": key} for time, key in enumerate([nan, nan, 0.0, -0.0])]
    answer = matches(seq("a", "b"), rows, order_by=("t",), partition_by=("k",))
    assert answer == {(("a", 0), ("b", 1)), (("a", 2), ("b", 3))}


def test_a_row_without_an_event_time_is_not_there() -> None:
    assert found(seq("a", "b"), "a1 a_ b_ b2") == {"a1 b2"}
    assert found(seq("a", "b").within(events=2), "a1 x_ b2") == {"a1 b2"}
    assert found(strictly(seq("a", "b")), "a1 x_ b2") == {"a1 b2"}


def test_a_second_order_column_breaks_ties_its_way() -> None:
    assert found(seq("a", "b"), "a1:1 b1:2", order_by=("t", "x")) == {"a1:1 b1:2"}
    assert found(seq("a", "b"), "a1:1 b1:2", order_by=("t", "x DESC")) == set()
    assert found(seq("a", "b"), "a1:1 b1:_", order_by=("t", "x")) == set()
    assert found(seq("a", "b"), "a1:1 b1:_", order_by=("t", "x NULLS LAST")) == {"a1:1 b1:_"}


# ---- SEQ, AND, OR ------------------------------------------------------------------------------


def test_seq_wants_strictly_growing_order_keys() -> None:
    assert found(seq("a", "b"), "b1 a2 b2 b3") == {"a2 b3"}


def test_every_event_of_a_part_is_before_every_event_of_the_next() -> None:
    pattern = seq(all_of("a", "b"), all_of("c", "d"))
    assert found(pattern, "b1 a2 d3 c4") == {"a2 b1 c4 d3"}
    assert found(pattern, "b1 d2 a3 c4") == set()


def test_and_takes_any_order_and_tied_rows() -> None:
    assert found(all_of("a", "b"), "b1 a1 b2") == {"a1 b1", "a1 b2"}


def test_a_row_fills_at_most_one_variable() -> None:
    assert found(all_of("a", "a2"), "a1") == set()
    assert found(all_of("a", "a2"), "a1 a3") == {"a1 a3", "a3 a1"}


def test_or_gives_a_match_of_each_part_and_says_which() -> None:
    assert found(any_of("a", seq("b", "c")), "a1 b2 c3") == {"a1 - -", "- b2 c3"}


# ---- conditions --------------------------------------------------------------------------------


def test_null_and_false_reject() -> None:
    pattern = seq("a", "b").where("a.x < b.x")
    assert found(pattern, "a1:1 b2:_ b3:0 b4:2") == {"a1:1 b4:2"}


def test_a_bare_column_is_the_events_own() -> None:
    pattern = seq("a", event("b", "x > a.x AND x < 9"))
    assert found(pattern, "a1:1 b2:1 b3:2 b4:9") == {"a1:1 b3:2"}


def test_a_division_by_zero_rejects_like_null() -> None:
    pattern = seq("a", "b").where("a.x / b.x = 2 OR a.x = 1")
    assert found(pattern, "a1:4 b2:0 b3:2") == {"a1:4 b3:2"}
    assert found(pattern, "a1:1 b2:0 b3:2") == {"a1:1 b3:2"}


def test_a_conjunct_with_an_unfilled_variable_is_not_tested() -> None:
    pattern = seq("a", "b?", "c").where("a.x < b.x", "b.x < c.x")
    assert found(pattern, "a1:5 b2:6 c3:4") == {"a1:5 - c3:4"}
    assert found(any_of("a", "b").where("a.x = b.x"), "a1:1 b2:2") == {"a1:1 -", "- b2:2"}
    assert found(seq("a", "b*").where("count(b) = 0"), "a1") == {"a1 []"}


# ---- WITHIN ------------------------------------------------------------------------------------


def test_within_is_inclusive_and_spans_the_whole_match() -> None:
    assert found(seq("a", "b", "c").within(3), "a1 b2 c4 c5") == {"a1 b2 c4"}


def test_within_events_counts_every_row_ties_included() -> None:
    assert found(seq("a", "b").within(events=3), "a1 x2 b3 b4") == {"a1 b3"}
    assert found(seq("a", "b").within(events=3), "x1 a1 b3") == {"a1 b3"}
    assert found(seq("a", "b").within(events=3), "x1 a1 b3 x3") == set()


# ---- Kleene and optional -----------------------------------------------------------------------


def test_every_sub_list_is_a_match() -> None:
    assert found(seq("a", "b+"), "a1 b2 b3") == {"a1 b2", "a1 b3", "a1 b2,b3"}


def test_a_list_has_between_low_and_high_elements() -> None:
    rows = "b1 b2 b3"
    assert found(event("b{2}"), rows) == {"b1,b2", "b1,b3", "b2,b3"}
    assert found(event("b{2,}"), rows) == {"b1,b2", "b1,b3", "b2,b3", "b1,b2,b3"}
    assert found(event("b{,1}"), rows) == {"b1", "b2", "b3"}


def test_tied_rows_are_never_elements_of_one_list() -> None:
    assert found(event("b+"), "b1:1 b1:2") == {"b1:1", "b1:2"}


def test_star_and_optional_also_match_nothing() -> None:
    assert found(seq("a", "b*", "c?"), "a1 b2 c3") == {
        "a1 [] -",
        "a1 b2 -",
        "a1 [] c3",
        "a1 b2 c3",
    }


def test_a_match_has_at_least_one_event() -> None:
    assert found(seq("a?", "b*"), "c1") == set()
    assert found(seq("a?", "b*"), "a1") == {"a1 []"}


def test_a_condition_holds_for_each_element() -> None:
    pattern = seq("a", "b+").where("b.x > a.x")
    assert found(pattern, "a1:1 b2:2 b3:1 b4:3") == {"a1:1 b2:2", "a1:1 b4:3", "a1:1 b2:2,b4:3"}


def test_prev_is_not_tested_on_the_first_element() -> None:
    pattern = event("b+").where("b.x > prev(b.x)")
    assert found(pattern, "b1:1 b2:3 b3:2") == {"b1:1", "b2:3", "b3:2", "b1:1,b2:3", "b1:1,b3:2"}


@pytest.mark.parametrize(
    ("condition", "lists"),
    [
        ("first(b.x) = 3 AND last(b.x) = 2", {"b2:3,b4:2", "b2:3,b3:_,b4:2"}),
        ("last(b.x) IS NULL AND first(b.x) = 1", {"b1:1,b3:_", "b1:1,b2:3,b3:_"}),
        ("count(b) = 3 AND count(b.x) = 2", {"b1:1,b2:3,b3:_", "b1:1,b3:_,b4:2", "b2:3,b3:_,b4:2"}),
        ("sum(b.x) = 6", {"b1:1,b2:3,b4:2", "b1:1,b2:3,b3:_,b4:2"}),
        ("avg(b.x) = 2.5", {"b2:3,b4:2", "b2:3,b3:_,b4:2"}),
        ("min(b.x) = 1 AND max(b.x) = 2", {"b1:1,b4:2", "b1:1,b3:_,b4:2"}),
        ("sum(b.x) IS NULL", {"b3:_"}),
    ],
)
def test_folds_range_over_the_whole_list(condition: str, lists: set[str]) -> None:
    pattern = event("b+").where(*condition.split(" AND "))
    assert found(pattern, "b1:1 b2:3 b3:_ b4:2") == lists


def test_two_lists_are_compared_pair_by_pair() -> None:
    pattern = seq("a+", "b+").where("a.x < b.x")
    assert found(pattern, "a1:1 a2:5 b3:2") == {"a1:1 b3:2"}


def test_a_group_repeats_in_sequence_with_one_entry_an_iteration() -> None:
    pattern = seq("a", "b").times("{2}")
    assert found(pattern, "a1 b2 a3 b4") == {"a1,a3 b2,b4"}
    assert found(pattern, "a1 a2 b3 b4") == set()
    assert found(seq("c", seq("a", "b").times("*")), "c1 a2 b3") == {"c1 [] []", "c1 a2 b3"}


def test_variables_of_one_group_are_compared_within_their_iteration() -> None:
    pattern = seq("a", "b").times("{2}").where("a.x < b.x")
    assert found(pattern, "a1:1 b2:2 a3:5 b4:6") == {"a1:1,a3:5 b2:2,b4:6"}
    assert found(pattern, "a1:1 b2:2 a3:7 b4:6") == set()


def test_prev_in_a_group_is_the_iteration_before() -> None:
    pattern = seq("a", "b").times("{2}").where("a.x = prev(b.x)")
    assert found(pattern, "a1:1 b2:2 a3:2 b4:6") == {"a1:1,a3:2 b2:2,b4:6"}
    assert found(pattern, "a1:1 b2:2 a3:3 b4:6") == set()


def test_a_group_variable_and_another_are_compared_for_each_element() -> None:
    pattern = seq("c", seq("a", "b").times("+")).where("b.x > c.x")
    assert found(pattern, "c1:4 a2:0 b3:5 a4:0 b5:3") == {"c1:4 a2:0 b3:5"}


# ---- NOT ---------------------------------------------------------------------------------------


def test_not_between_two_parts_is_strict_on_both_sides() -> None:
    assert found(seq("a", "!x", "b"), "a1 x1 b2 b3 x3") == {"a1 b2", "a1 b3"}
    assert found(seq("a", "!x", "b"), "a1 x2 b3") == set()


def test_not_looks_past_unfilled_parts() -> None:
    pattern = seq("a", "b?", "!x", "c?", "d")
    assert found(pattern, "a1 x2 b3 d4") == {"a1 b3 - d4"}
    assert found(pattern, "a1 b2 c3 x4 d5") == {"a1 b2 c3 d5", "a1 - c3 d5"}


def test_not_at_the_start_is_bounded_by_the_window_before_the_latest_event() -> None:
    pattern = seq("!x", "a", "b").within(3)
    assert found(pattern, "x1 a2 b4") == set()
    assert found(pattern, "x1 a2 b5") == {"a2 b5"}
    assert found(pattern, "x2 a2 b4") == {"a2 b4"}


def test_not_at_the_end_is_bounded_by_the_window_after_the_earliest_event() -> None:
    pattern = seq("a", "b", "!x").within(3)
    assert found(pattern, "a1 b2 x4") == set()
    assert found(pattern, "a1 b2 x5") == {"a1 b2"}
    assert found(pattern, "a1 b2 x2") == {"a1 b2"}


def test_not_at_an_edge_compares_event_time_where_w_bounds_it_and_the_order_key_at_its_part() -> (
    None
):
    pattern = seq("a", "!x").within(3)
    assert found(pattern, "a1:1 x1:2", order_by=("t", "x")) == set()
    assert found(pattern, "x1:0 a1:1", order_by=("t", "x")) == {"a1:1"}
    assert found(pattern, "a1:1 x4:2", order_by=("t", "x")) == set()
    assert found(seq("!x", "a").within(3), "x1:0 a4:1", order_by=("t", "x")) == set()
    assert found(seq("!x", "a").within(3), "a4:1 x4:2", order_by=("t", "x")) == {"a4:1"}


def test_not_in_and_is_bounded_on_both_sides() -> None:
    pattern = all_of("a", "b", "!x").within(3)
    for time, blocks in ((1, False), (2, True), (4, True), (6, True), (7, False)):
        assert found(pattern, f"a3 b5 x{time}") == (set() if blocks else {"a3 b5"})


def test_a_seq_inside_and_judges_its_not_by_itself() -> None:
    pattern = all_of(seq("!x", "a"), "b").within(5)
    assert found(pattern, "b1 x2 a3") == set()
    assert found(pattern, "b1 a3 x4") == {"a3 b1"}


def test_a_seq_inside_seq_is_flattened_before_its_not_is_placed() -> None:
    assert found(seq("a", seq("!x", "b")), "a1 x2 b3") == set()
    assert found(seq("a", any_of(seq("!x", "b"), "c")), "a1 x2 b3 c4") == {"a1 - c4"}
    assert found(seq("a", seq("b", "!x").optional(), "c"), "a1 b2 x3 c4") == {"a1 - c4"}


def test_not_has_conditions_of_its_own_and_with_positive_variables() -> None:
    pattern = seq("a", event("x", "x > a.x AND x < 9").times("?"), "b")
    negated = seq("a", no(event("x", "x > a.x AND x < 9")), "b")
    assert found(negated, "a1:3 x2:3 b3") == {"a1:3 b3"}
    assert found(negated, "a1:3 x2:4 b3") == set()
    assert found(negated, "a1:3 x2:9 b3") == {"a1:3 b3"}
    assert "a1:3 x2:4 b3" in found(pattern, "a1:3 x2:4 b3")


def test_not_blocks_over_a_list_only_if_its_conditions_hold_for_every_element() -> None:
    pattern = seq("b{2}", "!x", "c").where("x.x > b.x")
    assert found(pattern, "b1:1 b2:5 x3:3 c4") == {"b1:1,b2:5 c4"}
    assert found(pattern, "b1:1 b2:5 x3:6 c4") == set()


def test_a_condition_of_not_with_an_unfilled_variable_is_not_tested() -> None:
    pattern = seq("a?", "b", "!x", "c").where("x.x > a.x")
    assert found(pattern, "a1:5 b2 x3:3 c4") == {"a1:5 b2 c4"}


def test_the_rows_of_a_match_never_block_it() -> None:
    pattern = all_of("a", "b", "!a3").within(5)
    assert found(pattern, "a1 b2") == {"a1 b2"}


def test_not_inside_a_group_sees_its_own_iteration() -> None:
    pattern = seq("a", "!x", "b").times("{2}").where("x.x > a.x")
    assert found(pattern, "a1:1 b2 a3:5 x4:3 b5") == {"a1:1,a3:5 b2,b5"}
    assert found(pattern, "a1:1 b2 a3:2 x4:3 b5") == set()


# ---- skip-till-next-match ----------------------------------------------------------------------


def test_next_takes_the_first_row_that_an_open_variable_accepts() -> None:
    assert found(until_next(seq("a", "b")), "a1 x2 b3 b4") == {"a1 b3"}
    assert found(until_next(seq("a", "b").where("b.x > a.x")), "a1:1 b2:1 b3:2 b4:3") == {
        "a1:1 b3:2"
    }


def test_a_run_starts_at_every_row_that_can_start() -> None:
    assert found(until_next(seq("a", "b")), "a1 a2 b3") == {"a1 b3", "a2 b3"}
    assert found(until_next(seq("a?", "b")), "a1 b2 b3") == {"a1 b2", "- b2", "- b3"}


def test_a_run_never_gives_a_row_back() -> None:
    pattern = until_next(seq("a", "b", "c").where("b.x < c.x"))
    assert found(pattern, "a1 b2:9 b3:1 c4:5") == set()


def test_a_run_holds_every_qualifying_element_and_only_the_longest_is_reported() -> None:
    assert found(until_next(seq("a", "b+", "c")), "a1 b2 b3 c4 b5 c6") == {"a1 b2,b3 c4"}
    assert found(until_next(seq("a", "b+")), "a1 b2 b3") == {"a1 b2,b3"}


def test_the_longest_is_that_of_the_matches_that_break_no_rule() -> None:
    pattern = until_next(seq("a", "b+", "!x").within(9))
    assert found(pattern, "a1 b2 b3 x4") == set()
    assert found(until_next(seq("a", "b+").where("sum(b.x) < 3")), "a1 b2:1 b3:1 b4:1") == {
        "a1 b2:1,b3:1"
    }


def test_an_optional_part_is_filled_when_it_can_be() -> None:
    pattern = until_next(seq("a", "b?", "c"))
    assert found(pattern, "a1 b2 c3") == {"a1 b2 c3"}
    assert found(pattern, "a1 c2 b3 c4") == {"a1 - c2"}
    assert found(until_next(seq("a", "b*")), "a1") == {"a1 []"}


def test_the_run_splits_over_tied_rows_and_over_variables() -> None:
    assert found(until_next(seq("a", "b")), "a1 b2:1 b2:2 b3") == {"a1 b2:1", "a1 b2:2"}
    pattern = until_next(seq("a", "b+", "b2"))
    assert found(pattern, "a1 b2 b3") == {"a1 b2 b3"}
    assert found(until_next(seq("a", any_of("b", "b2"))), "a1 b2 b3") == {"a1 b2 -", "a1 - b2"}


def test_a_tied_row_is_open_to_another_part_of_and_but_not_to_a_later_part_of_seq() -> None:
    assert found(until_next(all_of("a", "b")), "a1 b1 b2") == {"a1 b1"}
    assert found(until_next(seq("a", "b")), "a1 b1 b2") == {"a1 b2"}


def test_the_open_variables_of_and_are_all_that_are_unfilled() -> None:
    assert found(until_next(all_of("a", "b", "c")), "b1 x2 c3 a4 a5") == {"a4 b1 c3"}


def test_a_fold_is_tested_when_the_run_leaves_the_list() -> None:
    pattern = until_next(seq("a", "b+", "c").where("count(b) >= 2"))
    assert found(pattern, "a1 b2 c3 b4 c5") == {"a1 b2,b4 c5"}
    pattern = until_next(seq("a", "b{2}", "c").where("sum(b.x) < c.x"))
    assert found(pattern, "a1 b2:1 b3:1 c4:1 c5:3") == {"a1 b2:1,b3:1 c5:3"}


def test_a_list_of_an_and_is_left_when_it_is_full_and_another_part_goes_on() -> None:
    pattern = until_next(all_of("b{2}", "c").where("sum(b.x) < c.x"))
    assert found(pattern, "b1:1 b2:1 c3:1 c4:3") == {"b1:1,b2:1 c4:3"}
    assert found(pattern, "b1:1 c2:1 b3:1 c4:3") == set()
    growing = until_next(all_of("b+", "c").where("sum(b.x) < c.x"))
    assert found(growing, "b1:1 b2:1 c3:1 c4:3") == set()


def test_next_respects_the_window_from_its_earliest_row() -> None:
    assert found(until_next(seq("a", "b+").within(2)), "a1 b2 b3 b4") == {"a1 b2,b3"}
    assert found(until_next(seq("a", "b+").within(events=3)), "a1 b2 x3 b4") == {"a1 b2"}


# ---- strict ------------------------------------------------------------------------------------


def test_strict_events_have_no_other_order_key_between_them() -> None:
    assert found(strictly(seq("a", "b")), "a1 x2 b3 a4 b5") == {"a4 b5"}
    assert found(strictly(seq("a", "b")), "a1 x1 b2 x2") == {"a1 b2"}


def test_strict_keeps_a_list_together() -> None:
    assert found(strictly(seq("a", "b+", "c")), "a1 b2 b3 c4 a5 b6 x7 c8") == {"a1 b2,b3 c4"}


# ---- consumption -------------------------------------------------------------------------------


def test_consume_takes_matches_by_latest_then_earliest_event() -> None:
    pattern = seq("a", "b").consumption("consume")
    assert found(pattern, "a1 a2 b3 b4") == {"a1 b3", "a2 b4"}


def test_consume_goes_on_by_the_order_keys_in_pattern_order() -> None:
    pattern = seq("a", "b", "c").consumption("consume")
    assert found(pattern, "a1 b2 b3 c4") == {"a1 b2 c4"}


def test_consume_works_on_the_answer_of_the_strategy() -> None:
    pattern = until_next(seq("a", "b+")).consumption("consume")
    assert found(pattern, "a1 a2 b3 b4") == {"a1 b3,b4"}


# ---- identity ----------------------------------------------------------------------------------


def test_rows_with_equal_values_are_different_events() -> None:
    rows = [{"t": 1, "x": 1}, {"t": 1, "x": 1}]
    assert matches(event("a"), rows, order_by=("t",)) == {(("a", 0),), (("a", 1),)}


def test_an_assignment_of_rows_that_can_be_read_in_two_ways_is_one_match() -> None:
    answer = matches(all_of("a", any_of("b*", "c*")), [{"t": 1}], order_by=("t",))
    assert without_marks(answer) == [(("a", 0), ("b", None), ("c", None))]


def test_what_is_too_large_for_brute_force_says_so() -> None:
    with pytest.raises(TooMany):
        found(event("b+"), " ".join(f"b{time}" for time in range(12)), steps=1000)
