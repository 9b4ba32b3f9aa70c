"""Counts of buckets put together, and measured beside estimated."""

from __future__ import annotations

from typing import Any

from spark_cep.explanation.comparison import (
    Analysis,
    build_tables,
    comparison_lines,
    estimate_scale,
)
from spark_cep.explanation.counts import merge_counts, parse_counts, public_counts
from spark_cep.udfs.output import ENGINE_METRICS, PLANNING_METRICS
from tests.explained import branch, chain, facts

SWAP = {
    "from": "c→b→a",
    "to": "b→c→a",
    "because": "r(c) < r(b) is no longer true: 30 and 20",
    "event_time": "2026-01-05 09:00:00",
}
BUCKET = {
    "rows": 100,
    "pairs": 600,
    "partial_matches": 60,
    "peak_partial_matches": 7,
    "matches": 5,
    "stretches": 10,
    "plan_checks": 4,
    "planning_us": 1_000,
    "matching_us": 99_000,
    "conditions": {"0": [200, 50]},
    "candidates": {"0": 100, "1": 30},
    "nodes": {"0:0,1": [400, 40], "0:1,2": [9, 3]},
    "swaps": [SWAP],
}
PLAN = facts("lazy-chain", ["a", "b", "c"], chain("b", "a", "c"))


def analysis(*buckets: dict[str, Any], complete: bool = True) -> Analysis:
    return Analysis(PLAN, {**merge_counts(buckets), "buckets": 4, "complete": complete}, 2.31)


def test_numbers_and_pairs_add_up_and_peaks_are_the_largest() -> None:
    other = {"pairs": 4, "peak_partial_matches": 9, "nodes": {"0:0,1": [1, 2], "1:0": [5, 5]}}
    found = merge_counts([BUCKET, other])
    assert (found["pairs"], found["peak_partial_matches"]) == (604, 9)
    assert found["nodes"] == {"0:0,1": [401, 42], "0:1,2": [9, 3], "1:0": [5, 5]}
    assert found["candidates"] == {"0": 100, "1": 30}


def test_a_bucket_that_says_nothing_counts_nothing() -> None:
    assert merge_counts([BUCKET, parse_counts("{}")]) == merge_counts([BUCKET])
    assert set(merge_counts([])) == {
        *ENGINE_METRICS,
        *PLANNING_METRICS,
        "conditions",
        "candidates",
        "nodes",
        "orders",
        "swaps",
    }


def test_merged_counts_merge_again() -> None:
    one, two = merge_counts([BUCKET]), merge_counts([BUCKET, {"pairs": 1}])
    assert merge_counts([one, two]) == merge_counts([BUCKET, BUCKET, {"pairs": 1}])


def test_swaps_stand_in_the_order_of_event_time() -> None:
    early = {**SWAP, "event_time": "2026-01-05 08:00:00"}
    assert merge_counts([BUCKET, {"swaps": [early]}])["swaps"] == [early, SWAP]


def test_event_times_that_are_numbers_stand_in_their_order() -> None:
    found = merge_counts(
        [{"swaps": [{**SWAP, "event_time": time}]} for time in ("10", "9", "-2.5")]
    )
    assert [swap["event_time"] for swap in found["swaps"]] == ["-2.5", "9", "10"]


def test_keys_stand_in_the_order_of_their_numbers() -> None:
    found = merge_counts(
        [{"candidates": {"10": 1, "9": 1}, "nodes": {"0:10": [1, 1], "0:9": [1, 1]}}]
    )
    assert list(found["candidates"]) == ["9", "10"]
    assert list(found["nodes"]) == ["0:9", "0:10"]


def test_metrics_show_numbers_only() -> None:
    found = public_counts(merge_counts([BUCKET, BUCKET]))
    assert found["plan_swaps"] == 2
    assert found["stretches"] == 20
    assert {type(value) for value in found.values()} == {int}


def test_measured_stands_beside_estimated() -> None:
    lines = list(comparison_lines(analysis(BUCKET)))
    assert lines == [
        "Match #7: SEQ(a, b, c)",
        "  plan      lazy-chain a→b→c",
        "  ran       in 2.3 s over 4 buckets",
        "  engine    99 ms matching, 1.0 ms planning (1.0 %), 4 checks of the plan, "
        "all buckets together",
        "Work                                  estimated     measured",
        "  rows                                        -          100",
        "  windows of keys                             -           10",
        "  pairs                                   1.2e6          600  0.0005x",
        "  partial matches                           300           60  0.2x",
        "  most partial matches at one time            -            7",
        "  matches                                   300            5  0.017x",
        "Candidates",
        "  a                                         600          100  0.17x",
        "  b                                       1,200           30  0.025x",
        "Selectivity of a condition",
        "  a.price < c.price                           -         0.25",
        "Pairs of a join",
        "  a b                                     2,000          400  0.2x",
        "  a b c                                   3,000            -",
        "  b c                                         -            9",
        "Partial matches of a join",
        "  a b                                       200           40  0.2x",
        "  a b c                                     300            -",
        "  b c                                         -            3",
        "Plan swaps: 1",
        "  c→b→a to b→c→a, at 2026-01-05 09:00:00",
        "    r(c) < r(b) is no longer true: 30 and 20",
    ]


def test_estimates_for_a_million_rows_are_scaled_by_the_candidates_there_were() -> None:
    plan = facts("lazy-chain", ["a", "b"], chain("b", "a"), unit="a million rows")
    # Expected are 60 windows with 10 of a and 20 of b in each, 1,800 in a million rows.
    counts = merge_counts([{"candidates": {"0": 500, "1": 400}, "pairs": 7}])
    assert estimate_scale(plan, counts) == 0.5
    work, candidates, shares, *_ = (
        {row.label: row for row in table.rows} for table in build_tables(plan, counts)
    )
    assert (work["pairs"].estimated, work["pairs"].measured) == (600_000, 7)
    assert (candidates["a"].estimated, candidates["a"].measured) == (300, 500)
    assert (candidates["b"].estimated, candidates["b"].measured) == (600, 400)
    assert shares["a.price < b.price"].estimated == 0.25
    lines = list(comparison_lines(Analysis(plan, {**counts, "complete": True}, 1.0)))
    assert "  estimates for a million rows, times 0.5 to agree in the number of candidates" in lines


def test_estimates_that_cannot_be_scaled_are_not_compared() -> None:
    plan = facts("lazy-chain", ["a", "b"], chain("b", "a"), unit="a window", statistics=None)
    assert estimate_scale(plan, merge_counts([])) is None
    found = {row.label: row for table in build_tables(plan, merge_counts([])) for row in table.rows}
    assert found["pairs"].estimated is None


def test_steps_of_no_plan_are_named_and_the_costly_ones_shown() -> None:
    plan = facts("tree", ["a", "b", "c"])
    nodes = {"0:0,1": [5, 1], "0:1,2": [9, 2], "0:0,1,2": [7, 3]}
    found = {
        table.title: table.rows for table in build_tables(plan, merge_counts([{"nodes": nodes}]))
    }
    assert [(row.label, row.measured) for row in found["Pairs of a join"]] == [
        ("b c", 9), ("a b c", 7), ("a b", 5),
    ]  # fmt: skip


def test_an_estimated_selectivity_stands_beside_the_measured_one() -> None:
    plan = facts("lazy-chain", ["a", "b"], chain("b", "a"))
    found = {table.title: table.rows for table in build_tables(plan, merge_counts([BUCKET]))}
    (row,) = found["Selectivity of a condition"]
    assert (row.label, row.estimated, row.measured) == ("a.price < b.price", 0.25, 0.25)


def test_a_condition_that_was_never_tested_has_no_share() -> None:
    found = {table.title: table.rows for table in build_tables(PLAN, merge_counts([]))}
    assert [row.measured for row in found["Selectivity of a condition"]] == [None]
    assert found["Candidates"] == ()


def test_equal_swaps_of_many_buckets_are_one_line() -> None:
    lines = list(comparison_lines(analysis(BUCKET, BUCKET, BUCKET)))
    assert lines[-3:-1] == [
        "Plan swaps: 3",
        "  c→b→a to b→c→a, 3 times, first at 2026-01-05 09:00:00",
    ]


def test_swaps_that_differ_in_figures_only_are_one_line() -> None:
    why = "cost(a first) = {} is no longer below rate(b) · sel(a.x * 2 < b.x) · 2 = {}"
    swaps = [
        {**SWAP, "because": why.format(one, other), "event_time": str(time)}
        for time, (one, other) in enumerate([("6.8e-06", "1"), ("0.25", "1.2e+03")], start=9)
    ]
    lines = list(comparison_lines(analysis({"swaps": swaps[1:]}, {"swaps": swaps[:1]})))
    assert lines[-6:] == [
        "Plan swaps: 2",
        "  c→b→a to b→c→a, 2 times, first at 9",
        f"    {why.format('6.8e-06', '1')}",
        "  cost(...) is the estimated time of the best such plan for a window, in seconds",
        "  rate(x) is the number of candidates of x in a window",
        "  sel(...) is the selectivity of a condition",
    ]


def test_rows_of_slices_are_said_to_count_twice() -> None:
    plan = facts("lazy-chain", ["a", "b"], chain("b", "a"), slices="16 windows long: hot")
    work = build_tables(plan, merge_counts([BUCKET]))[0]
    assert work.rows[0].label == "rows, counted once for each slice"


def test_a_query_that_no_row_reached_took_no_time_in_the_engine() -> None:
    assert "  engine    no rows reached it" in list(comparison_lines(analysis({"rows": 0})))


def test_no_more_than_ten_ways_to_swap_are_written_out() -> None:
    many = [{**SWAP, "because": f"reason {letter}"} for letter in "abcdefghijklm"]
    lines = list(comparison_lines(analysis({"swaps": many})))
    assert lines[-1] == "  and 3 other changes"


def test_branches_have_joins_of_their_own() -> None:
    pairs = [branch(names, chain(*names)) for names in (["a", "b"], ["c", "d"])]
    plan = facts("lazy-chain", list("abcd"), branches=pairs)
    plan["branches"][1]["nodes"][1] = {**pairs[1]["nodes"][1], "key": "1:0,1"}
    counts = merge_counts([{"nodes": {"1:0,1": [7, 2]}}])
    found = {table.title: table.rows for table in build_tables(plan, counts)}
    assert [(row.label, row.measured) for row in found["Pairs of a join"]] == [
        ("branch 1: a b", None), ("branch 2: c d", 7),
    ]  # fmt: skip


def test_partial_counts_say_so() -> None:
    lines = list(comparison_lines(analysis(BUCKET, complete=False)))
    assert "the answer was read only in part" in lines[3]


def test_an_estimate_of_which_a_part_is_unknown_is_unknown() -> None:
    plan = facts("lazy-chain", ["a", "b"], chain("b", "a"))
    plan["branches"][0]["nodes"][0]["partials"] = None
    found = {row.label: row for table in build_tables(plan, merge_counts([])) for row in table.rows}
    assert found["partial matches"].estimated is None
    assert found["matches"].estimated == 200


def test_a_single_variable_makes_matches_and_no_partial_ones() -> None:
    plan = facts("eager", ["a"], "a")
    found = {row.label: row for table in build_tables(plan, merge_counts([])) for row in table.rows}
    assert found["partial matches"].estimated is None
    assert found["matches"].estimated == 100


def test_spilled_rows_are_counted_where_there_are_some() -> None:
    spilled = {"parts": 3, "spilled_rows": 100, "spilled_bytes": 5000}
    found = merge_counts([BUCKET, {**BUCKET, **spilled}, spilled])
    shown = public_counts(found)
    assert (shown["parts"], shown["spilled_rows"], shown["spilled_bytes"]) == (6, 200, 10_000)
    assert public_counts(found, of_rows=True)["spilled_rows"] == 200
    assert not spilled.keys() & public_counts(merge_counts([BUCKET])).keys()
