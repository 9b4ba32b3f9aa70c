"""Buckets of a task in turns: all of them ask before the first one waits, and each gives what it
gives alone."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.pattern import event, seq
from spark_cep.udfs import task_clock
from spark_cep.udfs.coroutines import Cancelled, Coroutine, Wait, pass_turn, run_to_end
from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.execution import state
from spark_cep.udfs.execution.job import NO_WATERMARK, TriggerInput, from_blob, pack_rows
from spark_cep.udfs.execution.trigger import TaskTriggers, run_trigger, takes_turns
from spark_cep.udfs.expressions import BIGINT, Call, RemoteCall
from spark_cep.udfs.program import Plan
from spark_cep.udfs.remote_spec import FetchPolicy, RemoteSpec
from spark_cep.udfs.remotes import lookup as lookups
from tests.cases import Case
from tests.memory_store import InMemoryStore
from tests.remotes.looked_up import STRATEGIES
from tests.streaming.triggers import Stream

_tokens = count()
BUCKETS = 6


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    state.forget_states()
    yield
    lookups.forget_lookups()
    state.forget_states()


# ---- coroutines ----------------------------------------------------------------------------------


class Bell:
    """A source with a result for each time that somebody blocks for one."""

    def __init__(self) -> None:
        self.rung = 0

    def wait_for_result(self, seconds: float | None = None) -> None:
        self.rung += 1


def waiting(bell: Bell, times: int, log: list[str], name: str) -> Generator[str, None, str]:
    log.append(f"{name} begins")
    yield f"{name} 1"
    assert pass_turn(Wait(bell, lambda: bell.rung >= times))
    log.append(f"{name} goes on")
    yield f"{name} 2"
    return name


def test_the_others_go_on_while_one_waits() -> None:
    log: list[str] = []
    bell = Bell()
    made = [waiting(bell, 3, log, "slow"), waiting(bell, 1, log, "soon")]
    both = [Coroutine(each, most=10) for each in made]
    given = list(run_to_end(both[0], both))
    assert log == ["slow begins", "soon begins", "soon goes on", "slow goes on"]
    assert given == ["slow 1", "slow 2"]
    assert both[0].result() == "slow"
    assert both[1].is_done
    assert list(run_to_end(both[1], both)) == ["soon 1", "soon 2"]


def test_what_nobody_takes_stays_within_its_bound() -> None:
    made: list[int] = []

    def work() -> Generator[int, None, None]:
        for number in range(10):
            made.append(number)
            yield number

    full = Coroutine(work(), most=3)
    for _ in range(5):
        if full.can_go_on():
            full.resume()
    assert made == [0, 1, 2]
    assert list(run_to_end(full, [full])) == list(range(10))


def test_outside_of_a_coroutine_nobody_takes_the_turn() -> None:
    assert not pass_turn(Wait(Bell(), lambda: True))


def test_an_error_is_raised_where_the_result_is_taken() -> None:
    def work() -> Generator[int, None, None]:
        yield 1
        raise ValueError("wrong")

    broken = Coroutine(work(), most=5)
    broken.resume()
    with pytest.raises(ValueError, match="wrong"):
        list(run_to_end(broken, [broken]))


def test_what_is_cancelled_ends_and_releases_what_it_holds() -> None:
    ended: list[str] = []

    def work() -> Generator[int, None, None]:
        try:
            pass_turn(Wait(Bell(), lambda: False))
            yield 1
        finally:
            ended.append("here")

    before = threading.active_count()
    begun, fresh = Coroutine(work()), Coroutine(work())
    begun.resume()
    begun.cancel()
    fresh.cancel()
    assert ended == ["here"]
    assert begun.is_done
    assert fresh.is_done
    with pytest.raises(Cancelled):
        begun.result()
    time.sleep(0.05)
    assert threading.active_count() <= before


def test_the_clock_of_a_task_leaves_out_the_turns_of_others() -> None:
    seconds: list[float] = []

    def idle(bell: Bell) -> Generator[int, None, None]:
        began = task_clock.running_seconds()
        pass_turn(Wait(bell, lambda: bell.rung > 0))
        seconds.append(task_clock.running_seconds() - began)
        yield 1

    def busy() -> Generator[int, None, None]:
        time.sleep(0.2)
        yield 1

    both: list[Coroutine[int, None]] = [Coroutine(idle(Bell())), Coroutine(busy())]
    list(run_to_end(both[0], both))
    assert seconds[0] < 0.1


# ---- the buckets of a task -----------------------------------------------------------------------


class Task:
    """So many buckets, each with the rows of keys of its own: a then b with a looked-up value of
    a's x, which always holds."""

    def __init__(self, fetch: Callable[..., Any], strategy: Any = "cached", **more: Any) -> None:
        rows = [
            {"t": t, "k": k, "x": 100 * k + t, "f": 0.0, "kind": "AB"[t % 2], "u": 100 * k + t}
            for k in range(BUCKETS)
            for t in range(8)
        ]
        pattern = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"))
        case = Case(
            pattern.where("a.x <= b.t").within(3), rows, order_by=("t",), partition_by=("k",)
        )
        self.stream = Stream(case, Plan("eager"))
        program = self.stream.job.program
        (condition,) = program.conditions
        compared = condition.expression
        assert isinstance(compared, Call)
        cell, other = compared.arguments
        call = RemoteCall(0, (cell,), BIGINT)
        expression = replace(compared, arguments=(call, other))
        remote = RemoteSpec(
            "r", fetch, (pa.int64(),), pa.int64(), strategy, token=f"turns {next(_tokens)}", **more
        )
        changed = replace(
            program, conditions=(replace(condition, expression=expression),), remotes=(remote,)
        )
        self.job = replace(self.stream.job, program=changed)
        self.stores = [InMemoryStore() for _ in range(BUCKETS)]

    def arrived(self, bucket: int, trigger: int) -> TriggerInput:
        """Two rows of each key in a trigger."""
        table = self.stream._table
        ids = np.arange(8 * bucket + 2 * trigger, 8 * bucket + 2 * trigger + 2)
        table = table.take(pa.array(ids)).append_column("b", pa.array(np.zeros(2, np.int32)))
        pieces = pack_rows(table.to_batches())
        blobs = tuple(b.as_py() for batch in pieces for b in batch.column("blob"))
        return TriggerInput(bucket, blobs, NO_WATERMARK, "turns", str(trigger))

    def read(self, blobs: list[bytes]) -> Counter[Any]:
        found = pa.concat_tables([from_blob(blob) for blob in blobs])
        return self.stream._read(found.slice(0, found.num_rows - 1))

    def in_turns(self, trigger: int, triggers: TaskTriggers | None = None) -> list[Counter[Any]]:
        triggers = triggers or TaskTriggers(self.job)
        for bucket, store in enumerate(self.stores):
            triggers.begin(store, self.arrived(bucket, trigger))
        given = [self.read(list(triggers.finish(bucket))) for bucket in range(BUCKETS)]
        triggers.close()
        return given

    def alone(self, trigger: int) -> list[Counter[Any]]:
        return [
            self.read(list(run_trigger(self.job, store, self.arrived(bucket, trigger))))
            for bucket, store in enumerate(self.stores)
        ]


def small(keys: list[int]) -> dict[int, int]:
    return {key: -1 for key in keys}


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s != "blocking"])
def test_each_bucket_gives_what_it_gives_alone(strategy: Any) -> None:
    def late(keys: list[int]) -> dict[int, int]:
        time.sleep(0.001 * (keys[0] % 7))
        return small(keys)

    wanted, found = Task(small, strategy), Task(late, strategy)
    assert takes_turns(found.job)
    given = []
    for trigger in range(4):
        state.forget_states()
        given.append([sum(each.values()) for each in found.in_turns(trigger)])
        state.forget_states()
        assert given[-1] == [sum(each.values()) for each in wanted.alone(trigger)]
    assert min(min(each) for each in given) >= 1


def test_all_buckets_ask_before_the_first_one_waits() -> None:
    every = threading.Barrier(BUCKETS)

    def together(keys: list[int]) -> dict[int, int]:
        every.wait(20)
        return small(keys)

    task = Task(together, fetch_policy=FetchPolicy(in_flight=BUCKETS, retries=0))
    for trigger in range(3):
        assert all(task.in_turns(trigger))


def test_an_error_of_one_bucket_leaves_the_others_as_they_are() -> None:
    def failing(keys: list[int]) -> dict[int, int]:
        if 200 in keys:
            raise ValueError("no such key")
        return small(keys)

    task = Task(failing, fetch_policy=FetchPolicy(in_flight=BUCKETS, retries=0))
    triggers = TaskTriggers(task.job)
    for bucket, store in enumerate(task.stores):
        triggers.begin(store, task.arrived(bucket, 0))
    assert all(task.read(list(triggers.finish(bucket))) for bucket in (0, 1, 5))
    with pytest.raises(WorkerError, match="could not fetch"):
        list(triggers.finish(2))
    with pytest.raises(CepError, match="not finished"):
        triggers.close()


def test_a_value_that_is_evicted_by_another_bucket_is_fetched_again() -> None:
    from spark_cep.udfs.remote_spec import Caching

    task = Task(small, caching=Caching(capacity=1))
    for trigger in range(3):
        assert all(task.in_turns(trigger))


def test_blocking_and_local_sources_take_no_turns() -> None:
    assert not takes_turns(Task(small, "blocking").job)
    assert not takes_turns(Task(small, is_local=True).job)
