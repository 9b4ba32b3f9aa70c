"""explain as text and as a page, from facts alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from spark_cep.api import explain
from spark_cep.errors import PlanError
from spark_cep.explanation.page import render_page
from spark_cep.explanation.plan import MatchPlan, pattern_parts, pattern_text
from spark_cep.pattern import Pattern, all_of, any_of, no, seq
from spark_cep.spark.metrics import AnswerRecord, keep_record
from spark_cep.spark.report import add_stream_facts
from spark_cep.udfs.program import Adaptation, BranchPlan, Limits, Plan
from tests.cases import Case
from tests.explained import chain, facts
from tests.local import Pipeline, Setting
from tests.rows import programs as rows


def plan(**others: Any) -> MatchPlan:
    shape = chain("c", "b", "a")
    return MatchPlan(facts("lazy-chain", ["a", "b", "c"], shape, **{"shown": "c→b→a", **others}))


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html.removeprefix("<!doctype html>\n"))


def test_text_says_which_plan_why_at_what_cost_and_what_else_there_was() -> None:
    lines = str(plan()).splitlines()
    start = lines.index("  plan      lazy-chain c→b→a")
    assert lines[start : start + 9] == [
        "  plan      lazy-chain c→b→a",
        "  why       cheapest: it has the lowest estimated cost",
        "  costs     ≈ 1.2e6 pairs",
        "  rejected  eager a→b→c, ≈ 4.1e7 pairs (34x): binds a, b early",
        "            tree: needs a scope",
        "  rates     a 10, b 20, c 30 candidates in a window, from a sample of 24,000 rows",
        "  keeps     0.25 of pairs: a.price < b.price",
        "            0.25 of pairs: b.price < c.price",
        "  holds     r(a) < r(c)",
    ]


def test_text_leaves_out_what_is_not_known() -> None:
    bare = dict(plan().facts)
    for name in ("rung", "cost", "statistics", "branches", "invariants", "shown"):
        del bare[name]
    bare["rejected"] = [{"plan": "eager", "reason": "binds a, b early"}]
    lines = str(MatchPlan(bare)).splitlines()
    start = lines.index("  plan      lazy-chain a→b→c")
    assert lines[start + 1 : start + 4] == [
        "  why       it has the lowest estimated cost",
        "  rejected  eager: binds a, b early",
        "Before, in Spark",
    ]


def test_what_is_not_known_of_a_condition_is_said() -> None:
    statistics = {
        **plan().facts["statistics"],
        "selectivities": [{"condition": "a.x < b.x", "selectivity": None}],
    }
    assert "  keeps     unknown: a.x < b.x\n" in str(plan(statistics=statistics))


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ("20", "20, in the unit of ts"),
        ("2.5e3", "2.5e3, in the unit of ts"),
        ("5 events", "5 events"),
        (None, "none"),
    ],
)
def test_a_window_has_a_unit(window: str | None, says: str) -> None:
    assert f"  window    {says}\n" in str(plan(window=window))


def test_a_plan_that_each_bucket_makes_is_called_so() -> None:
    assert "  plan      lazy-chain, by the counts of each bucket\n" in str(plan(shown="own counts"))


def test_the_reason_is_not_said_twice() -> None:
    found = str(plan(rung="forced", reason="forced by plan="))
    assert "  why       forced by plan=\n" in found


def test_costs_say_what_they_are_for() -> None:
    assert "  costs     ≈ 1.2e6 pairs a million rows" in str(plan(unit="a million rows"))
    assert "pairs a million rows, estimated" in plan(unit="a million rows").to_html()
    assert "  costs     ≈ 1.2e6 pairs\n" in str(plan(unit="in all"))


def test_a_page_is_a_whole_document_with_the_fragment_of_notebooks() -> None:
    found = plan()
    html = found.to_html()
    assert html.startswith("<!doctype html>\n<html")
    assert found._repr_html_() in html
    assert parsed(html).find("./head/title") is not None


def test_a_page_has_the_picture_and_every_fact_of_the_text() -> None:
    root = parsed(plan().to_html())
    assert root.find(".//{http://www.w3.org/2000/svg}svg") is not None
    words = " ".join("".join(root.itertext()).split())
    for text in (
        "lazy-chain c→b→a (chosen)", "eager a→b→c", "4.1e7", "34x", "needs a scope",
        "a.price < b.price", "0.25", "r(a) < r(c)", "between advances, by invariants",
        "rows that no variable accepts", "4: two a core", "cheapest",
    ):  # fmt: skip
        assert text in words, text


def test_a_page_needs_nothing_from_outside_and_runs_nothing() -> None:
    html = plan().to_html()
    for word in ("<script", "<style", "<link", "href", "src=", "url(", "@import", "onclick"):
        assert word not in html
    # The only address names the format of the picture; nothing is read from it.
    assert html.count("http") == html.count("http://www.w3.org/2000/svg")


@pytest.mark.parametrize("place", ["pattern", "reason", "window", "adaptation", "slices"])
def test_no_text_becomes_markup(place: str) -> None:
    bad = "<img src=x onerror=alert(1)> & \x00 \udcff"
    html = plan(**{place: bad}).to_html()
    assert "<img" not in html
    assert "<img src=x onerror=alert(1)> & \ufffd \ufffd" in "".join(parsed(html).itertext())


def test_a_page_shows_all_plans_of_a_dataframe() -> None:
    both = render_page([plan().facts, facts("eager", ["x", "y"], chain("x", "y"))])
    assert len(list(parsed(both).iter("{http://www.w3.org/2000/svg}svg"))) == 2


def test_a_plan_survives_a_round_trip_through_plain_data() -> None:
    found = plan()
    assert MatchPlan(found.to_dict()).to_html() == found.to_html()


def test_a_negated_group_is_one_part_with_its_text() -> None:
    root = seq("a", no(seq("x", any_of("y", "z"))), "b").root
    assert pattern_text(root) == "SEQ(a, NOT SEQ(x, OR(y, z)), b)"
    assert pattern_parts(root)["parts"][1] == {
        "kind": "not",
        "text": "SEQ(x, OR(y, z))",
        "variables": ["x", "y", "z"],
    }


def test_the_structure_of_a_pattern_is_plain_data() -> None:
    assert pattern_parts(seq("a", any_of("b{2,4}", all_of("c?", "d"))).root) == {
        "kind": "seq",
        "parts": [
            {"kind": "event", "variable": "a"},
            {
                "kind": "any",
                "parts": [
                    {
                        "kind": "repeat",
                        "parts": [{"kind": "event", "variable": "b"}],
                        "low": 2,
                        "high": 4,
                    },
                    {
                        "kind": "all",
                        "parts": [
                            {"kind": "optional", "parts": [{"kind": "event", "variable": "c"}]},
                            {"kind": "event", "variable": "d"},
                        ],
                    },
                ],
            },
        ],
    }


# ---- streams -----------------------------------------------------------------------------------

AT_ONCE = "at once, in whatever order rows arrive"
BEHIND_LAST = "when the watermark has passed its last row"
WINDOW_BEHIND_LAST = "when the watermark is 10 minutes past its last row"
WINDOW_BEHIND_FIRST = "when the watermark is 10 minutes past its first row"
RUN_ENDED = (
    "when no run from its first row can be extended, "
    "at the latest when the watermark is 10 minutes past it"
)
ONE_WINDOW = "rows until the watermark is 10 minutes past them"
TWO_WINDOWS = "rows until the watermark is twice 10 minutes past them"
FROM_START = (
    "rows of a key from its first undecided start on, until the watermark is 10 minutes past them"
)


def stream_of(
    pattern: Pattern, plan_: Plan | None = None, *, to_hybrid: bool = False, **limits: Any
) -> dict[str, str]:
    program = Pipeline(Case(pattern, []), Setting()).program
    adaptation = Adaptation("invariants" if to_hybrid else "off", to_hybrid=to_hybrid)
    program = replace(
        program, limits=Limits(**limits), plan=plan_ or program.plan, adaptation=adaptation
    )
    window = None if pattern.window is None else "10 minutes"
    found: dict[str, str] = add_stream_facts(plan(window=window), program).to_dict()["stream"]
    return found


@pytest.mark.parametrize(
    ("pattern", "given", "state"),
    [
        (seq("a", "b+", "c?"), AT_ONCE, ONE_WINDOW),
        (all_of("a", any_of("b", "c")), AT_ONCE, ONE_WINDOW),
        (seq("a", "!x", "b"), BEHIND_LAST, ONE_WINDOW),
        (seq("!x", "a", "b"), BEHIND_LAST, ONE_WINDOW),
        (seq("a", "b", "!x"), WINDOW_BEHIND_FIRST, ONE_WINDOW),
        (seq("!y", "a", "b", "!x"), WINDOW_BEHIND_FIRST, TWO_WINDOWS),
        (all_of("a", "b", no("x")), WINDOW_BEHIND_FIRST, TWO_WINDOWS),
        (seq("a", "b").consumption("consume"), BEHIND_LAST, ONE_WINDOW),
        (seq("a", "b", "!x").consumption("consume"), WINDOW_BEHIND_LAST, TWO_WINDOWS),
        (seq("a", "b+").strategy("skip till next match"), RUN_ENDED, FROM_START),
        (seq("a", "b").strategy("strict"), RUN_ENDED, FROM_START),
        (seq("!x", "a", "b").strategy("skip till next match"), RUN_ENDED, TWO_WINDOWS),
        (
            seq("a", "b").strategy("strict").consumption("consume"),
            WINDOW_BEHIND_LAST,
            TWO_WINDOWS,
        ),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_stream_says_when_a_match_is_given_and_what_is_kept(
    pattern: Pattern, given: str, state: str
) -> None:
    found = stream_of(pattern.within(10))
    assert (found["given"], found["state"]) == (given, state)


def test_without_a_window_a_stream_says_what_bounds_its_state() -> None:
    found = stream_of(seq("a", "b"), rows=5000)
    assert found["given"] == AT_ONCE
    assert found["state"] == "all rows; at most 5,000 of a key"
    assert stream_of(seq("a", "b").strategy("strict"), rows=5000) == {
        "given": "when no run from its first row can be extended",
        "state": "rows of a key from its first undecided start on; at most 5,000 of a key",
    }


ABC = seq("a", "b", "c").within(10)
PREFIXES = Plan("eager", (BranchPlan(((0, 1), 2), (0, 1), fixed=True),))
GROUP = Plan("hybrid", (BranchPlan((2, (0, 1)), (0, 1), fixed=True),))
CHAIN = Plan("lazy-chain", (BranchPlan(((0, 1), 2), fixed=True),))
AS_IT_IS = "this plan in every trigger; its rows stand where the order has the last event"


@pytest.mark.parametrize(
    ("given", "kept", "runs"),
    [
        (PREFIXES, "partial matches of a b", AS_IT_IS),
        (GROUP, "partial matches of a b", AS_IT_IS),
        (CHAIN, "no partial matches: they are found again in each trigger", AS_IT_IS),
        (
            Plan("tree"),
            "no partial matches: they are found again in each trigger",
            "each partial match chooses its next variable",
        ),
    ],
)
def test_a_stream_says_which_partial_matches_are_kept_and_what_a_trigger_runs(
    given: Plan, kept: str, runs: str
) -> None:
    found = stream_of(ABC, given)
    assert (found["kept"], found["runs"]) == (kept, runs)


def test_a_stream_whose_plan_is_open_says_what_decides() -> None:
    found = stream_of(ABC, Plan("lazy-chain"), to_hybrid=True)
    assert found["kept"].startswith("no partial matches, until a bucket's counts say")
    assert found["runs"].startswith("the plan, or where it is cheaper an order that begins with")


def test_a_stream_says_why_no_partial_matches_are_kept() -> None:
    found = stream_of(seq("a", "b", "c", "!x").within(10), PREFIXES)
    assert found["kept"].startswith("no partial matches: with a NOT at the end or around all")
    assert "kept" not in stream_of(ABC.strategy("strict"))


def test_a_stream_says_that_matches_may_wait_for_a_not() -> None:
    pattern = seq("a", "!x", "b", "c").within(10)
    waits = "; matches that are not certain yet, where that is a small part of the work"
    assert stream_of(pattern, Plan("lazy-chain"), to_hybrid=True)["kept"].endswith(waits)
    assert not stream_of(pattern, PREFIXES)["kept"].endswith(waits)


def test_a_stream_of_rows_keeps_what_is_not_decided() -> None:
    found = add_stream_facts(plan(), rows.program(rows.concat(rows.v(0), rows.v(1))))
    assert found.facts["stream"] == {
        "given": "when no later row can change it, "
        "at the latest when the watermark is 10 minutes past its first row",
        "state": "rows of undecided searches",
    }


def test_a_stream_of_rows_says_what_it_keeps_of_every_key_for_ever() -> None:
    rises = {1: rows.compare(">", rows.current(), rows.current(shift=-1))}
    before = {1: rows.compare(">", rows.current(), rows.current(shift=-3))}
    both = rows.concat(rows.v(0), rows.v(1))
    for defines, says in ((rises, "last row"), (before, "last 3 rows")):
        state = add_stream_facts(plan(), rows.program(both, defines)).facts["stream"]["state"]
        assert state == (f"rows of undecided searches, and the {says} of every key for ever")


def test_text_and_page_say_when_a_match_of_a_stream_is_given() -> None:
    found = plan(stream={"given": BEHIND_LAST, "state": ONE_WINDOW})
    assert f"  emits     a match {BEHIND_LAST}\n  state     {ONE_WINDOW}\nAfter" in str(found)
    words = "".join(parsed(found.to_html()).itertext())
    assert BEHIND_LAST in words
    assert ONE_WINDOW in words
    assert "  emits " not in str(plan())


def test_a_stream_is_not_run_to_be_measured() -> None:
    class Stream:
        """What explain needs of a DataFrame that match_pattern has returned."""

    df: Any = Stream()
    keep_record(df, AnswerRecord(7, plan(stream={"given": AT_ONCE, "state": ONE_WINDOW}), None, 4))
    with pytest.raises(PlanError, match=r"cep\.streaming\.metrics\(query\)"):
        explain(df, mode="analyze")
