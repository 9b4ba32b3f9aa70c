"""What explain and metrics say of remote data, from facts and counts made by hand."""

from __future__ import annotations

from typing import Any

import spark_cep as cep
from spark_cep.explanation import page, text
from spark_cep.explanation.comparison import Analysis, comparison_lines
from spark_cep.explanation.counts import merge_counts, public_counts
from spark_cep.explanation.remotes import (
    BEFORE,
    ENGINE,
    LookupPlace,
    RemoteRead,
    remote_facts,
    remote_rows,
)
from spark_cep.remotes.sources import choose_outside, choose_strategy
from tests.explained import chain, facts


def secret(keys: list[str]) -> dict[str, float]:
    password = "hunter2"
    return dict.fromkeys(keys, float(len(password)))


# a is bound first; 40 of them come in a window.
PLAN = {
    "branches": [{"nodes": [{"binds": ["a"]}, {"binds": ["b"]}]}],
    "statistics": {"rates": {"a": 40.0, "b": 20.0}, "windows": 1.0},
    "unit": "a window",
}


def told() -> list[dict[str, object]]:
    remotes = {
        "limits": cep.Remote.fetch(secret, "double", ttl="5 minutes", on_error="null", retries=1),
    }
    how = choose_strategy("auto", None, "any", "reuse")
    read = RemoteRead("b.amount > remote('limits', a.org)", ("a",), ("a", "b"))
    places = [
        LookupPlace("limits", ENGINE, f"{how.strategy}: {how.why}", how, (read,)),
        LookupPlace("limits", BEFORE, "fetched by a.org"),
    ]
    return remote_facts(remotes, places, PLAN)


def test_the_text_says_where_and_how_each_source_is_looked_up() -> None:
    lines = list(
        text.plan_lines({**facts("eager", ["a", "b"], chain("a", "b")), "remotes": told()})
    )
    start = lines.index("Remote data")
    assert lines[start + 1 :] == [
        "  limits    fetched by secret",
        "            in the engine: hybrid: values are prefetched, and conditions may wait for the "
        "others",
        "            requested for b.amount > remote('limits', a.org): as soon as a is bound, "
        "while most of such keys are needed; else when a and b have met the conditions before it",
        "            expected: at most 40 keys a window",
        "            before matching: fetched by a.org",
        "            cache: least recently used, 64 MB: many partial matches need the same "
        "values, so the most recently used are kept",
        "            calls: up to 1,000 keys per call, 4 at a time, 10 s each",
        "            a failed call: 1 retry, then it gives NULL",
        "            a value is constant for 300 s: then the next trigger fetches it again, so a "
        "match can depend on when its rows arrived; within a batch, and within a trigger, it is "
        "constant",
    ]


def test_what_is_asked_outside_the_engine_only_says_its_strategy_too() -> None:
    place = LookupPlace("limits", BEFORE, "fetched by org", choose_outside("lazy", None))
    facts = remote_facts({"limits": cep.Remote.fetch(secret, "double")}, [place])
    assert [line for _, line in remote_rows(facts)][1:5] == [
        "before matching: fetched by org",
        "requested: four batches ahead of the rows that are handed on",
        "cached: not lazy: all keys of a batch of rows are known at once",
        "cache: least recently used, 64 MB: later rows have the same keys again",
    ]


def test_where_both_ask_the_engines_strategy_is_said() -> None:
    places = [
        LookupPlace("limits", BEFORE, "fetched by org", choose_outside("auto", None)),
        LookupPlace("limits", ENGINE, "hybrid: ...", choose_strategy("auto", None, "any", "reuse")),
    ]
    (facts,) = remote_facts({"limits": cep.Remote.fetch(secret, "double")}, places)
    assert facts["strategy"] == "hybrid"


def test_the_page_says_the_same_and_neither_shows_what_a_function_holds() -> None:
    html = page.render_fragment({**facts("eager", ["a", "b"], chain("a", "b")), "remotes": told()})
    assert "Remote data" in html
    assert "fetched by secret" in html
    assert "hunter2" not in html


def test_a_plan_without_remote_data_says_nothing_of_it() -> None:
    assert "Remote data" not in "\n".join(text.plan_lines(facts("eager", ["a"], "a")))


def requests(strategy: Any, *reads: RemoteRead, plan: Any = PLAN) -> list[tuple[str, float | None]]:
    how = choose_strategy(strategy, None, "any", "reuse")
    place = LookupPlace("limits", ENGINE, "", how, reads)
    (found,) = remote_facts({"limits": cep.Remote.fetch(secret, "double")}, [place], plan)
    return [(each["when"], each["keys"]) for each in found["places"][0]["requests"]]


def test_when_a_source_is_asked_follows_from_strategy_and_order() -> None:
    by_a = RemoteRead("b.x > remote('limits', a.x)", ("a",), ("a", "b"))
    by_b = RemoteRead("b.x > remote('limits', b.y) + a.x", ("b",), ("a", "b"))
    by_both = RemoteRead("remote('limits', a.x, b.x) > 1", ("a", "b"), ("a", "b"))
    together = "when a and b have met the conditions before it"
    assert requests("cached", by_a, by_both) == [(together, 40.0), (together, 800.0)]
    assert requests("post", by_a) == [("when all other conditions have been met", 40.0)]
    ahead, late = requests("hybrid", by_a, by_b)
    assert ahead[0].startswith("as soon as a is bound, while most of such keys are needed; else")
    assert late == (f"{together}, as this order knows their keys only then", 20.0)


def test_what_nothing_is_known_of_is_expected_as_unknown() -> None:
    by_a = RemoteRead("b.x > remote('limits', a.x)", ("a",), ("a", "b"))
    assert requests("cached", by_a, plan={"branches": [], "statistics": None})[0][1] is None


COUNTED = {"calls": 2, "keys": 10, "used": 9, "hits": 30, "misses": 10, "prefetched": 8,
           "prefetched_used": 6, "waited_s": 0.5, "hidden_s": 2.0, "bytes": 100}  # fmt: skip


def test_counts_of_buckets_are_added_up_and_the_most_kept_is_the_largest() -> None:
    more = {"remotes": {"limits": {"calls": 1, "bytes": 50}, "places": {"calls": 3}}}
    found = public_counts(merge_counts([{"remotes": {"limits": COUNTED}}, more, {}]))["remotes"]
    assert (found["limits"]["calls"], found["limits"]["bytes"]) == (3, 100)
    assert found["places"]["calls"] == 3
    assert "remotes" not in public_counts(merge_counts([{}]))


def test_analyze_prints_what_was_counted() -> None:
    counts = {**merge_counts([{"remotes": {"limits": COUNTED}}]), "complete": True}
    plan = {**facts("eager", ["a", "b"], chain("a", "b")), "remotes": told()}
    lines = list(comparison_lines(Analysis(plan, counts, 1.0)))
    assert lines[lines.index("Remote data") + 1 :] == [
        "  limits    2 calls for 10 keys: 9 used, 1 in vain",
        "            expected: at most 40 keys a window, for b.amount > remote('limits', a.org)",
        "            40 lookups, 75 % hits",
        "            8 keys prefetched, 75 % of them used",
        "            waited 500 ms, 2.0 s hidden",
    ]
