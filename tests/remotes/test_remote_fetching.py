"""The real threads: concurrency, timeouts, ends, forks. Times are small and bounds generous."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.udfs.errors import RemoteError
from spark_cep.udfs.remote_spec import FetchPolicy, RemoteSpec
from spark_cep.udfs.remotes import fetching
from spark_cep.udfs.remotes import lookup as lookups
from spark_cep.udfs.remotes.lookup import Lookup
from tests.remotes.simulated import ids_of


def remote(fetch: Callable[[list[Any]], Any], name: str = "limits", **options: Any) -> RemoteSpec:
    return RemoteSpec(name, fetch, (pa.int64(),), pa.int64(), **{"token": "t", **options})


def tenfold(keys: list[int]) -> dict[int, int]:
    return {key: key * 10 for key in keys}


def slowly(keys: list[int]) -> dict[int, int]:
    time.sleep(0.05)
    return tenfold(keys)


def threads(name: str) -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == f"spark-cep remote {name}"]


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    lookups.forget_lookups()
    yield
    lookups.forget_lookups()


def test_calls_run_beside_each_other_and_beside_matching() -> None:
    lookup = Lookup(remote(slowly, fetch_policy=FetchPolicy(batch=1, in_flight=4)))
    ids = ids_of(lookup, 1, 2, 3, 4)
    began = time.perf_counter()
    lookup.ask(ids)
    assert time.perf_counter() - began < 0.04
    lookup.wait(ids)
    assert time.perf_counter() - began < 0.15
    assert lookup.arrow(ids).to_pylist() == [10, 20, 30, 40]
    assert lookup.arrivals == 4


def test_no_more_calls_run_at_once_than_allowed() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def watched(keys: list[int]) -> dict[int, int]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1
        return tenfold(keys)

    lookup = Lookup(remote(watched, fetch_policy=FetchPolicy(batch=1, in_flight=3)))
    lookup.wait(ids_of(lookup, *range(60)))
    assert most == 3


def test_a_call_that_hangs_holds_up_nothing_but_its_timeout() -> None:
    release = threading.Event()
    calls: list[list[int]] = []

    def hangs_once(keys: list[int]) -> dict[int, int]:
        calls.append(keys)
        if len(calls) == 1:
            release.wait(5)
            return dict.fromkeys(keys, -1)
        return tenfold(keys)

    fetch_policy = FetchPolicy(timeout=0.05, backoff=0.01, in_flight=2)
    lookup = Lookup(remote(hangs_once, fetch_policy=fetch_policy))
    ids = ids_of(lookup, 1)
    lookup.ask(ids)
    deadline = time.perf_counter() + 2
    while not lookup.ready(ids).all() and time.perf_counter() < deadline:
        time.sleep(0.01)  # matching is busy elsewhere: a thread notices the timeout
    assert lookup.arrow(ids).to_pylist() == [10]
    release.set()
    time.sleep(0.02)
    assert lookup.ready(ids).all()
    assert lookup.arrow(ids).to_pylist() == [10]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt()])
def test_whatever_the_function_raises_becomes_a_remote_error(error: BaseException) -> None:
    def fail(keys: list[int]) -> dict[int, int]:
        raise error

    lookup = Lookup(remote(fail, fetch_policy=FetchPolicy(retries=1, backoff=0.001)))
    with pytest.raises(RemoteError, match=f"2 attempts: {type(error).__name__}"):
        lookup.wait(ids_of(lookup, 1))


def test_threads_begin_with_the_first_fetch_and_end_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "IDLE_S", 0.02)
    lookup = Lookup(remote(tenfold, "idle"))
    assert threads("idle") == []
    lookup.wait(ids_of(lookup, 1))
    assert all(thread.daemon for thread in threads("idle"))
    deadline = time.perf_counter() + 2
    while threads("idle") and time.perf_counter() < deadline:
        time.sleep(0.01)
    assert threads("idle") == []
    lookup.wait(ids_of(lookup, 2))


def test_closing_ends_the_threads() -> None:
    lookup = Lookup(remote(tenfold, "closed"))
    lookup.wait(ids_of(lookup, 1))
    lookup.close()
    deadline = time.perf_counter() + 2
    while threads("closed") and time.perf_counter() < deadline:
        time.sleep(0.005)
    assert threads("closed") == []


def test_nothing_is_lost_or_doubled_when_much_arrives_at_once() -> None:
    asked: list[int] = []

    def counted(keys: list[int]) -> dict[int, int]:
        asked.extend(keys)
        return tenfold(keys)

    lookup = Lookup(
        remote(counted, strategy="hybrid", fetch_policy=FetchPolicy(batch=5, in_flight=8))
    )
    generator = np.random.default_rng(0)
    for _ in range(50):
        keys = generator.integers(0, 2000, 100)
        ids = ids_of(lookup, *keys.tolist())
        lookup.ask(ids[:50], ahead=True)
        lookup.ask(ids[50:])
        lookup.wait(ids)
        assert (np.array(lookup.arrow(ids).to_pylist()) == keys * 10).all()
        lookup.settle()
    assert len(asked) == len(set(asked))


def in_child(check: Callable[[], bool]) -> bool:
    """Whether `check` holds in a forked process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads may run: on purpose
        process = os.fork()
    if process == 0:
        ok = False
        try:
            ok = check()
        finally:
            os._exit(0 if ok else 1)
    deadline = time.perf_counter() + 20
    while time.perf_counter() < deadline:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(process, 9)
    os.waitpid(process, 0)
    return False


def test_a_forked_process_fetches_what_was_under_way_by_itself() -> None:
    lookup = Lookup(remote(slowly, fetch_policy=FetchPolicy(batch=1, in_flight=1)))
    ids = ids_of(lookup, 1, 2, 3)
    lookup.ask(ids)

    def check() -> bool:
        lookup.wait(ids)
        return bool(lookup.arrow(ids).to_pylist() == [10, 20, 30])

    assert in_child(check)
    lookup.wait(ids)
    assert lookup.arrow(ids).to_pylist() == [10, 20, 30]


def test_a_forked_process_knows_no_lookups() -> None:
    lookups.get_lookups([remote(tenfold)], "stage 1")
    assert in_child(lambda: not lookups._cached_lookups)
    assert lookups._cached_lookups


def test_a_lookup_is_kept_for_its_query_and_scope_only() -> None:
    (first,) = lookups.get_lookups([remote(tenfold)], "stage 1")
    assert lookups.get_lookups([remote(slowly)], "stage 1") == (first,)
    (other_query,) = lookups.get_lookups([remote(tenfold, token="u")], "stage 1")
    (other_action,) = lookups.get_lookups([remote(tenfold)], "stage 2")
    assert len({id(first), id(other_query), id(other_action)}) == 3
    assert lookups.get_lookups([remote(tenfold)], "stage 1") != (first,)


def test_lookups_are_told_when_another_trigger_begins() -> None:
    source = remote(tenfold, ttl=0.0)
    (lookup,) = lookups.get_lookups([source], "query q", "1")
    lookup.wait(ids_of(lookup, 1))
    assert lookups.get_lookups([source], "query q", "1") == (lookup,)
    assert lookup.ready(ids_of(lookup, 1)).all()
    assert lookups.get_lookups([source], "query q", "2") == (lookup,)
    assert not lookup.ready(ids_of(lookup, 1)).any()


def test_only_a_few_lookups_are_kept() -> None:
    remotes = [remote(tenfold, token=str(n)) for n in range(lookups.MOST_LOOKUPS + 5)]
    for each in remotes:
        lookups.get_lookups([each], "stage")
    assert len(lookups._cached_lookups) == lookups.MOST_LOOKUPS
    assert len(lookups.get_lookups(remotes, "stage")) == lookups.MOST_LOOKUPS + 5
