"""Batches that wait for a call go in one, and come apart where it fails."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.udfs.remote_spec import Caching, FetchPolicy, RemoteSpec
from spark_cep.udfs.remotes.fetching import FetchFailure, FetchResult, FetchScheduler, KeyBatch
from spark_cep.udfs.remotes.lookup import Lookup

WHY = FetchFailure("away")


class Desk:
    """A scheduler with one slot, and what became of its batches."""

    def __init__(self, **policy: Any) -> None:
        chosen = {"in_flight": 1, "retries": 1, "backoff": 1.0, **policy}
        remote = RemoteSpec(
            "r", dict.fromkeys, (pa.int64(),), pa.int64(), fetch_policy=FetchPolicy(**chosen)
        )
        self.ended: list[FetchResult] = []
        self.scheduler = FetchScheduler(remote, lambda: 0.5, self.ended.append)

    def add(self, number: int, *keys: int, ahead: bool = False) -> None:
        self.scheduler.add(KeyBatch(np.array(keys), list(keys), ahead, number))

    def keys(self, now: float = 0.0) -> list[int] | None:
        """Those of the next call."""
        self.call = self.scheduler.next(now)
        return None if self.call is None else self.call.batch.keys

    def answer(self, now: float = 0.0) -> None:
        assert self.call is not None
        self.scheduler.answered(self.call, {}, now)

    def fail(self, why: FetchFailure = WHY, now: float = 0.0) -> None:
        assert self.call is not None
        self.scheduler.failed(self.call, why, now)


def test_what_waits_goes_in_one_call_up_to_its_size() -> None:
    desk = Desk(batch=5)
    for number, keys in enumerate([(1,), (2, 3), (4, 5, 6), (7,)]):
        desk.add(number, *keys)
    found = []
    while (keys := desk.keys()) is not None:
        found.append(keys)
        desk.answer()
    assert found == [[1, 2, 3], [4, 5, 6, 7]]
    assert [each.batch.elements.tolist() for each in desk.ended] == found
    assert desk.scheduler.is_idle


def test_needs_and_prefetches_do_not_share_a_call() -> None:
    desk = Desk()
    desk.add(0, 1, ahead=True)
    desk.add(1, 2)
    desk.add(2, 3, ahead=True)
    desk.add(3, 4)
    assert desk.keys() == [2, 4]
    desk.answer()
    assert desk.keys() == [1, 3]


def test_a_prefetch_that_became_urgent_is_not_called_twice() -> None:
    desk = Desk()
    for number in range(3):
        desk.add(number, number, ahead=True)
    desk.scheduler.urge([1])
    assert desk.keys() == [1]
    desk.answer()
    assert desk.keys() == [0, 2]
    desk.answer()
    assert desk.keys() is None


def test_a_call_that_fails_is_repeated_batch_by_batch() -> None:
    desk = Desk()
    for number in range(3):
        desk.add(number, number)
    assert desk.keys() == [0, 1, 2]
    desk.fail()
    assert desk.keys(0.5) is None
    for number in range(3):
        assert desk.keys(2.0) == [number]
        (desk.fail if number == 1 else desk.answer)(now=2.0)
    assert [each.batch.number for each in desk.ended if each.failure is not None] == [1]
    assert desk.scheduler.is_idle


def test_a_prefetch_that_becomes_urgent_in_a_shared_call_is_repeated() -> None:
    desk = Desk()
    for number in range(2):
        desk.add(number, number, ahead=True)
    assert desk.keys() == [0, 1]
    desk.scheduler.urge([1])
    desk.fail()
    assert not desk.ended
    assert desk.keys(2.0) == [0]


@pytest.mark.parametrize("ahead", [False, True])
def test_every_batch_of_a_shared_call_ends_once(ahead: bool) -> None:
    desk = Desk()
    for number in range(4):
        desk.add(number, number, ahead=ahead)
    assert desk.keys() == [0, 1, 2, 3]
    desk.fail()
    for number in range(4 * (not ahead)):
        assert desk.keys(9.0) == [number]
        desk.fail(now=9.0)
    assert sorted(each.batch.number for each in desk.ended) == [0, 1, 2, 3]
    assert desk.scheduler.is_idle


def test_a_shared_call_brings_values_to_keys_that_were_renumbered_meanwhile() -> None:
    gates = [threading.Event(), threading.Event()]
    calls: list[list[int]] = []

    def late(keys: list[int]) -> dict[int, int]:
        calls.append(keys)
        gates[len(calls) - 1].wait(20)
        return {key: 10 * key for key in keys}

    remote = RemoteSpec(
        "r", late, (pa.int64(),), pa.int64(), caching=Caching(capacity=1),
        fetch_policy=FetchPolicy(in_flight=1),
    )  # fmt: skip
    lookup = Lookup(remote)
    lookup.ids([pa.array(np.arange(100_000))])
    asked = [lookup.ids([pa.array([key])]) for key in (200_001, 200_002, 200_003)]
    lookup.ask(asked[0])
    while not calls:
        time.sleep(0.001)
    for ids in asked[1:]:
        lookup.ask(ids)
    gates[0].set()
    while len(calls) < 2:
        time.sleep(0.001)
    before = [ids.copy() for ids in asked]
    lookup.forget_keys(asked)
    assert [ids.tolist() for ids in asked] != [ids.tolist() for ids in before]
    gates[1].set()
    for ids, key in zip(asked, (200_001, 200_002, 200_003), strict=True):
        lookup.wait(ids)
        assert lookup.arrow(ids).to_pylist() == [10 * key]
    assert calls == [[200_001], [200_002, 200_003]]
    lookup.close()


def test_without_retries_each_batch_has_a_call_of_its_own() -> None:
    desk = Desk(retries=0)
    for number in range(2):
        desk.add(number, number)
    assert desk.keys() == [0]


def test_a_final_error_of_a_shared_call_ends_only_its_own_batch() -> None:
    desk = Desk()
    for number in range(2):
        desk.add(number, number)
    assert desk.keys() == [0, 1]
    final = FetchFailure("no such table", is_final=True)
    desk.fail(final)
    assert not desk.ended
    assert desk.keys(2.0) == [0]
    desk.fail(final, now=2.0)
    assert desk.keys(2.0) == [1]
    desk.answer(2.0)
    assert [each.failure is not None for each in desk.ended] == [True, False]
