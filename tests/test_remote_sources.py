"""`cep.Remote`, `cep.cache`, `remotes=`: what is said where they are made, and what is chosen."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import spark_cep as cep
from spark_cep.errors import PatternError
from spark_cep.remotes.sources import (
    check_remotes,
    check_remotes_used,
    choose_outside,
    choose_strategy,
    make_remote_spec,
    select_used_remotes,
)
from spark_cep.udfs.remote_spec import Caching

LOCK = threading.Lock()


def fetch(keys: list[Any]) -> dict[Any, Any]:
    return dict.fromkeys(keys)


def error(make: Any) -> PatternError:
    with pytest.raises(PatternError) as caught:
        make()
    return caught.value


class Frame:
    """As much of a DataFrame as a remote table is asked for before it meets another."""

    isStreaming = False
    sparkSession = mapInArrow = None

    def __init__(self, *columns: str) -> None:
        self.columns = list(columns)


# ---- tables ------------------------------------------------------------------------------------


def test_a_tables_columns_are_spelled_as_the_table_has_them() -> None:
    remote = cep.Remote.table(Frame("Org", "limit", "Day"), ["org", "day"], "LIMIT")  # type: ignore[arg-type]
    assert repr(remote) == "cep.Remote.table(key=['Org', 'Day'], value='limit')"


@pytest.mark.parametrize(
    ("columns", "arguments", "message", "hint"),
    [
        (("org",), ("org",), "has no column besides its key", "add the column"),
        (("org", "max"), ("rog", "max"), "has no column rog", "did you mean org?"),
        (("org", "max"), ("org", "min_"), "has no column min_", "its columns are org, max"),
        (("org", "max"), ([], "max"), "has no key", "Remote.table(df"),
        (("org", "max"), (["org", "ORG"], "max"), "names a column twice", "Remote.table(df"),
        (("org", "max"), (3, "max"), "key takes the name of a column", "Remote.table(df"),
        (("org", "a", "A"), ("org", "á"), "has no column á", "its columns are"),
    ],
)
def test_a_table_that_cannot_be_looked_up_is_refused(
    columns: Any, arguments: Any, message: str, hint: str
) -> None:
    found = error(lambda: cep.Remote.table(Frame(*columns), *arguments))  # type: ignore[arg-type]
    assert message in found.message
    assert hint in str(found.hint)


def test_a_table_is_a_dataframe_and_no_stream() -> None:
    assert "takes a DataFrame, not dict" in error(lambda: cep.Remote.table({}, "a")).message  # type: ignore[arg-type]
    stream: Any = Frame("a", "b")
    stream.isStreaming = True
    assert "cannot be a stream" in error(lambda: cep.Remote.table(stream, "a")).message


# ---- fetches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"value_type": " "}, "value_type is ' '", "a type of Spark SQL"),
        ({"value_type": 3}, "value_type is 3", "a type of Spark SQL"),
        ({"strategy": "hybird"}, "strategy is 'hybird'", 'did you mean "hybrid"?'),
        ({"cache": "64 MB"}, "'64 MB' is not a cache", "cep.cache.lru"),
        ({"timeout": -1}, "timeout is -1", "a time above 0"),
        ({"timeout": "soon"}, "timeout is 'soon'", "10 seconds"),
        ({"ttl": 0}, "ttl is 0", "a time above 0"),
        ({"retries": -1}, "retries is -1", "0 or more"),
        ({"batch_size": 0}, "batch_size is 0", "1 or more"),
        ({"max_in_flight": True}, "max_in_flight is True", "1 or more"),
        ({"on_error": "ignore"}, "on_error is 'ignore'", '"null"'),
        ({"prefetch_budget": 0.5}, "prefetch_budget is 0.5", "1 or more"),
        ({"prefetch_budget": float("inf")}, "prefetch_budget is inf", "1 or more"),
        ({"prefetch_budget": True}, "prefetch_budget is True", "1 or more"),
        ({"prefetch_budget": "2"}, "prefetch_budget is '2'", "1 or more"),
        ({"max_wait": "soon"}, "max_wait is 'soon'", "a time above 0"),
        ({"max_wait": 0}, "max_wait is 0", "a time above 0"),
        ({"show_errors": "yes"}, "show_errors is 'yes'", "True or False"),
        ({"part_of": 3}, "part_of takes a function, not int", "Remote.fetch"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options: Any, message: str, hint: str) -> None:
    found = error(lambda: cep.Remote.fetch(fetch, **({"value_type": "double"} | options)))
    assert message in found.message
    assert hint in str(found.hint)


def test_times_are_texts_durations_or_seconds() -> None:
    for given in ("1500 milliseconds", timedelta(milliseconds=1500), 1.5):
        source: Any = cep.Remote.fetch(fetch, "double", timeout=given).source  # type: ignore[arg-type]
        assert source.fetch_policy.timeout == 1.5


def test_the_bounds_of_a_source_reach_the_workers() -> None:
    options: dict[str, Any] = {"prefetch_budget": 2, "max_wait": "200 ms", "show_errors": True}
    made = {
        "fetch": cep.Remote.fetch(fetch, "double", **options),
        "redis": cep.Remote.redis("redis://cache", "l:{}", value_type="double", **options),
        "sql": cep.Remote.sql(
            "sqlite:///limits.db", "l", key="k", value="v", value_type="double", **options
        ),
        "http": cep.Remote.http("http://cache/{}", value_type="double", **options),
    }
    how = choose_strategy("auto", None, "any", "reuse")
    types = ((pa.string(),), pa.float64())
    for name, remote in made.items():
        spec = make_remote_spec(remote, name, types, how, "token")
        assert (spec.prefetch_budget, spec.max_wait, spec.show_errors) == (2.0, 0.2, True), name
    plain = make_remote_spec(cep.Remote.fetch(fetch, "double"), "limits", types, how, "token")
    assert (plain.prefetch_budget, plain.max_wait, plain.show_errors) == (1.3, None, False)


def test_what_cannot_travel_is_named_before_any_job() -> None:
    connection = threading.Lock()

    def asks(keys: list[Any]) -> dict[Any, Any]:
        with connection:
            return {}

    found = error(lambda: cep.Remote.fetch(asks, "double"))
    assert found.message == (
        "fn cannot be sent to the workers: connection (a lock) cannot be pickled"
    )
    assert "inside the function" in str(found.hint)


def test_nothing_of_a_function_is_in_the_repr() -> None:
    secret = "hunter2"
    remote = cep.Remote.fetch(lambda keys: {k: secret for k in keys}, "double")
    assert repr(remote) == "cep.Remote fetched by <lambda> giving double"
    assert secret not in repr(remote.source)


# ---- caches ------------------------------------------------------------------------------------


def test_sizes_of_caches_are_texts_or_bytes() -> None:
    assert cep.cache.lru("1.5 KB").capacity == 1536
    assert cep.cache.lru(10).capacity == 10
    for size in ("64 MB", "64MiB", "64 mb", "64m", " 64 M ", "65536 KiB", "65536k", "0.0625 GB"):
        assert cep.cache.lru(size).capacity == 64 << 20, size
    assert cep.cache.lru("100 B").capacity == 100
    found = cep.cache.cost_based("2gib", fetch_weight=1, cache_weight=0)
    assert found == Caching("cost", 2 << 30, 1.0, 0.0)
    wrong = (
        "",
        "0 MB",
        "-1",
        "64 parsecs",
        "64i",
        "64 iB",
        "64 Mi",
        "64 Mib/s",
        "64",
        "0.5 B",
        "1e999 B",
    )
    for size in (*wrong, 0, True, 1.5, None):
        assert "is not a cache size" in error(lambda size=size: cep.cache.lru(size)).message
    found_ = error(lambda: cep.cache.cost_based(fetch_weight=1.5))
    assert "fetch_weight is 1.5" in found_.message


# ---- remotes= ----------------------------------------------------------------------------------


def test_remotes_are_sources_by_names_that_differ() -> None:
    remote = cep.Remote.fetch(fetch, "double")
    assert check_remotes({"limits": remote}) == {"limits": remote}
    assert check_remotes(None) == {}
    for wrong, message in (
        ([remote], "takes a dict"),
        ({"a b": remote}, "'a b' cannot be the name"),
        ({3: remote}, "3 cannot be the name"),
        ({"a": fetch}, "the remote 'a' is a function"),
        ({"a": remote, "A": remote}, "'a' and 'A' have the same name"),
    ):
        assert message in error(lambda wrong=wrong: check_remotes(wrong)).message


def test_a_source_that_nothing_asks_is_a_slip() -> None:
    remote = cep.Remote.fetch(fetch, "double")
    given = {"limits": remote, "places": remote}
    check_remotes_used(given, ["a.x > remote('LIMITS', a.k)", "remote( 'places' , a.k) = 1", None])
    found = error(
        lambda: check_remotes_used(given, ["a.x > remote('limits', a.k)", "'remote' = 'places'"])
    )
    assert "uses the remote 'places'" in found.message
    check_remotes_used(given, ["a.x > remote(a.k)"])


def test_sql_hands_on_the_sources_that_a_clause_names() -> None:
    remote = cep.Remote.fetch(fetch, "double")
    given = {"limits": remote, "places": remote}
    pattern = cep.seq("a", "b").where("a.x > remote('limits', a.k)")
    assert (
        select_used_remotes(given, pattern, {"measures": {"p": "remote('Places', a.k)"}}) == given
    )
    assert select_used_remotes(given, pattern, {}) == {"limits": remote}
    rows = cep.row_pattern("a b", define={"b": "remote('places', k) = 1"})
    assert select_used_remotes(given, rows, {"measures": None}) == {"places": remote}
    assert select_used_remotes(given, cep.seq("a"), {}) is None
    misspelled = cep.seq("a", "b").where("a.x > remote('limit', a.k)")
    assert select_used_remotes(given, misspelled, {}) == given


# ---- the choice --------------------------------------------------------------------------------


SELECTIONS: tuple[tuple[Any, Any], ...] = (
    ("any", "reuse"), ("any", "consume"), ("next", "reuse"), ("next", "consume"),
    ("strict", "reuse"), ("strict", "consume"),
)  # fmt: skip


@pytest.mark.parametrize(("selection", "consumption"), SELECTIONS)
def test_auto_prefetches_and_postpones_and_caches_by_the_selection(
    selection: Any, consumption: Any
) -> None:
    found = choose_strategy("auto", None, selection, consumption)
    is_greedy = (selection, consumption) == ("any", "reuse")
    assert found.strategy == "hybrid"
    assert found.caching.policy == ("lru" if is_greedy else "cost")


@pytest.mark.parametrize("plan_request", ["blocking", "cached", "post", "prefetch", "lazy"])
@pytest.mark.parametrize(("selection", "consumption"), SELECTIONS)
def test_a_strategy_is_as_requested_but_runs_leave_nothing_for_the_end(
    plan_request: Any, selection: Any, consumption: Any
) -> None:
    found = choose_strategy(plan_request, None, selection, consumption)
    if plan_request == "post" and selection != "any":
        assert found.strategy == "cached"
        assert found.why.startswith("not post: ")
    else:
        assert (found.strategy, found.why) == (plan_request, "as requested")


def test_a_cache_that_was_asked_for_stays() -> None:
    own = cep.cache.lru("1 MB")
    assert choose_strategy("auto", own, "next", "reuse").caching is own
    assert choose_outside("hybrid", own).caching is own


def test_outside_the_engine_nothing_is_guessed() -> None:
    assert choose_outside("hybrid", None).strategy == "cached"
    assert choose_outside("blocking", None).strategy == "blocking"
    assert choose_outside("hybrid", None).why.startswith("not hybrid: ")
    assert not choose_outside("auto", None).why.startswith("not")
