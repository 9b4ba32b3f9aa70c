"""What reaches a source, counted there: how many calls at once, and none after the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from spark_cep.pattern import event, seq
from spark_cep.udfs.errors import CepError, RemoteError, WorkerError
from spark_cep.udfs.execution.job import TriggerInput, pack_rows
from spark_cep.udfs.execution.trigger import TaskTriggers
from spark_cep.udfs.execution.worker import run
from spark_cep.udfs.remote_spec import FetchPolicy, RemoteSpec
from spark_cep.udfs.remotes import lookup as lookups
from spark_cep.udfs.remotes.lookup import Lookup
from spark_cep.udfs.remotes.stage import LookupStage, StageColumn, look_up_batches
from spark_cep.udfs.shedding.pace import note_arrival
from tests.cases import Case
from tests.remotes.simulated import Source, ids_of, looked_up
from tests.remotes.test_remote_streams import stream_of

_tokens = count()


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    lookups.forget_lookups()
    yield
    lookups.forget_lookups()


class CountingSource:
    """Takes `seconds` for a call, and counts."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.fails = False
        self.calls = self.running = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, keys: list[int]) -> dict[int, int]:
        with self._lock:
            self.calls, self.running = self.calls + 1, self.running + 1
            self.most = max(self.most, self.running)
        time.sleep(self.seconds)
        with self._lock:
            self.running -= 1
        if self.fails:
            raise RemoteError("down")
        return {key: key for key in keys}

    def calls_after_end(self) -> int:
        """The calls that begin from now on, until all that was queued would have been called."""
        before = self.calls
        time.sleep(6 * self.seconds)
        return self.calls - before


def remote(source: CountingSource, **options: Any) -> RemoteSpec:
    one = FetchPolicy(batch=1, in_flight=1)
    settings = {"fetch_policy": one, "token": f"ends {next(_tokens)}", **options}
    return RemoteSpec("r", source, (pa.int64(),), pa.int64(), **settings)


# ---- how many calls at once ----------------------------------------------------------------------


def test_a_call_past_its_timeout_keeps_its_slot_until_it_returns() -> None:
    source = CountingSource(0.25)
    policy = FetchPolicy(timeout=0.03, retries=3, backoff=0.001, batch=1, in_flight=4, failures=99)
    lookup = Lookup(remote(source, fetch_policy=policy))
    with pytest.raises(RemoteError, match="TimeoutError"):
        lookup.wait(ids_of(lookup, *range(40)))
    assert source.most == 4


def test_calls_of_an_action_before_count_while_they_run() -> None:
    source = CountingSource(0.1)
    policy = FetchPolicy(batch=1, in_flight=2)
    given = remote(source, fetch_policy=policy)
    for action in range(3):
        (lookup,) = lookups.get_lookups((given,), f"stage {action}")
        lookup.ask(ids_of(lookup, *range(5)))
        time.sleep(0.02)
    lookup.wait(ids_of(lookup, 0, 1))
    assert lookup.arrow(ids_of(lookup, 0, 1)).to_pylist() == [0, 1]
    assert source.most == 2


def test_a_source_that_never_returns_ends_the_query_after_its_attempts() -> None:
    source = Source(delay=1e6)
    policy = FetchPolicy(timeout=1.0, retries=2, backoff=0.1, batch=1, in_flight=1)
    lookup, clock = looked_up(source, fetch_policy=policy)
    with pytest.raises(RemoteError, match="3 attempts: TimeoutError: 1 call has not returned"):
        lookup.wait(ids_of(lookup, 1))
    assert len(source.calls) == 0  # the only call never ended
    assert clock.trying.calls == 1
    assert clock.time == pytest.approx(1.0 + 0.1 + 1.0 + 0.2 + 1.0)


def test_a_slot_that_comes_back_is_used_again() -> None:
    source = Source()
    source.delays = [2.5]
    policy = FetchPolicy(timeout=1.0, retries=5, backoff=0.1, batch=1, in_flight=1)
    lookup, clock = looked_up(source, fetch_policy=policy)
    lookup.wait(ids_of(lookup, 1, 2))
    assert lookup.arrow(ids_of(lookup, 1, 2)).to_pylist() == [10, 20]
    assert clock.most_running == 1
    assert clock.time < 2.5 + 2.0


# ---- nothing after the end -----------------------------------------------------------------------


def test_nothing_is_requested_after_the_end_and_all_of_it_again_when_needed() -> None:
    source = Source()
    lookup, clock = looked_up(
        source, strategy="hybrid", fetch_policy=FetchPolicy(batch=1, in_flight=2)
    )
    lookup.ask(ids_of(lookup, *range(10)))
    lookup.ask(ids_of(lookup, *range(20, 26)), ahead=True)
    clock.advance(0.01)
    lookup.end()
    clock.advance(10)
    assert clock.calls == 2
    assert (lookup.metrics.prefetched, lookup._budget.unneeded) == (0, 0)
    ids = ids_of(lookup, *range(26))
    lookup.wait(ids)
    assert lookup.arrow(ids).to_pylist() == [key * 10 for key in range(26)]
    assert sorted(source.asked_for) == list(range(26))


def test_a_call_that_fails_after_the_end_is_not_repeated() -> None:
    source = Source()
    source.answers = [lambda keys: 1 / 0]  # type: ignore[list-item, return-value]
    lookup, clock = looked_up(source)
    ids = ids_of(lookup, 1)
    lookup.ask(ids)
    lookup.end()
    clock.advance(100)
    assert clock.calls == 1
    lookup.wait(ids)
    assert lookup.arrow(ids).to_pylist() == [10]


def batches(rows: int, size: int = 2) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, size):
        keys = pa.array(range(start, start + size), pa.int64())
        yield pa.RecordBatch.from_arrays([keys, keys], ["p0", "k0_0"])


def stage_of(given: RemoteSpec) -> LookupStage:
    return LookupStage((StageColumn(given, (1,), pa.int64()),), ("p0", "v0", "metrics"))


def test_a_stage_that_is_closed_early_requests_nothing_more() -> None:
    source = CountingSource(0.02)
    given = remote(source)
    (lookup,) = lookups.get_lookups((given,), "stage")
    answer = look_up_batches(stage_of(given), batches(100), (lookup,))
    next(answer)
    answer.close()
    assert source.calls_after_end() == 0


def test_a_stage_whose_input_fails_requests_nothing_more() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(8)
        raise OSError("the JVM is gone")

    source = CountingSource(0.02)
    given = remote(source)
    (lookup,) = lookups.get_lookups((given,), "stage")
    with pytest.raises(OSError, match="gone"):
        list(look_up_batches(stage_of(given), failing(), (lookup,)))
    assert source.calls_after_end() == 0


ROWS = [
    {"t": t, "k": 1, "x": t, "f": 0.0, "kind": "A" if t < 60 else "B", "u": t} for t in range(90)
]


CASE = Case(
    seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).where("a.x <= b.t").within(9),
    ROWS, order_by=("t",), partition_by=("k",),
)  # fmt: skip


def ask_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves keys in the queue that nobody waits for, whatever the strategy."""
    waits = Lookup.wait

    def wait_and_ask_for_more(lookup: Lookup, ids: Any) -> None:
        lookup.ask(ids)
        lookup.ask(ids_of(lookup, *range(1000, 1020)))
        waits(lookup, ids)

    monkeypatch.setattr(Lookup, "wait", wait_and_ask_for_more)


@pytest.mark.parametrize("fails", [False, True])
def test_a_trigger_that_ends_requests_nothing_more(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = CountingSource(0.01)
    stream = stream_of(remote(source, strategy="cached"), CASE)
    ask_for_more(monkeypatch)
    table = stream._table.append_column("bucket", pa.array([0] * len(ROWS), pa.int32()))
    pieces = pack_rows(table.to_batches(), note_arrival(time.time()))
    blobs = tuple(blob.as_py() for batch in pieces for blob in batch.column("blob"))
    source.fails = fails
    triggers = TaskTriggers(stream.job)
    triggers.begin(stream.store, TriggerInput(0, blobs, 0, "stream", "0"))
    if fails:
        with pytest.raises(WorkerError):
            list(triggers.finish(0))
        with suppress(CepError):
            triggers.close()
    else:
        list(triggers.finish(0))
        triggers.close()
    assert source.calls > 0
    assert source.calls_after_end() == 0


@pytest.mark.parametrize("strategy", ["prefetch", "lazy", "hybrid"])
@pytest.mark.parametrize("end", ["closed", "failed", "done"])
def test_a_task_that_ends_requests_nothing_more(
    strategy: Any, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = CountingSource(0.01)
    ask_for_more(monkeypatch)
    stream = stream_of(remote(source, strategy=strategy), CASE)
    job = stream.job
    answer = run(job.program, job.output, iter(stream._table.to_batches()), 0, "stage")
    if end == "closed":
        next(answer)
        answer.close()
    elif end == "failed":
        source.fails = True
        with pytest.raises(WorkerError):
            list(answer)
    else:
        list(answer)
    assert source.calls_after_end() == 0
