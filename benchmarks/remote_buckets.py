"""Triggers of a stream that look up new keys: many buckets of one task beside one bucket.

    python -m benchmarks.remote_buckets [--triggers N] [--rounds N] [--delay SECONDS]
    python -m benchmarks.remote_buckets --late [--triggers N]

The buckets of a task with all that a worker does for them, without Spark: rows as blobs, matching,
the state in a store. Each bucket has rows of keys of its own in each trigger, and needs the values
of keys that nobody has asked for before. Contestants take turns; the first trigger does not count.

`--late`: a tenth of the keys takes five seconds, and a trigger waits for 100 ms (`max_wait`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import spark_cep as cep
from benchmarks.programs import Prepared, prepare
from benchmarks.reporting import Claim, table
from spark_cep.udfs.canonical import event_program, fingerprint
from spark_cep.udfs.execution import state
from spark_cep.udfs.execution.job import StreamJob, TriggerInput, from_blob, to_blob
from spark_cep.udfs.execution.state import make_identity
from spark_cep.udfs.execution.trigger import TaskTriggers, run_trigger
from spark_cep.udfs.output import EventOutput, Field
from spark_cep.udfs.remote_spec import FetchPolicy, RemoteSpec
from spark_cep.udfs.remotes.lookup import forget_lookups
from tests.memory_store import InMemoryStore

if TYPE_CHECKING:
    from spark_cep.udfs.remote_spec import FetchStrategy

BUCKETS = 32
DELAY_S = 0.05
ROWS = 40
# A bucket's trigger is one window long.
WINDOW = 100
MOST_RATIO = 1.5
# Of the keys, one in so many is late, by so many seconds.
LATE_ONE_IN, LATE_S = 10, 5.0
MAX_WAIT_S, MOST_S = 0.1, 0.25
STRATEGIES: tuple[FetchStrategy, ...] = ("cached", "prefetch", "lazy", "hybrid")
_tokens = count()


@dataclass(frozen=True)
class Line:
    """`milliseconds`: of each trigger that counts. `calls`, `keys`: of a trigger, at the source."""

    strategy: str
    what: str
    milliseconds: tuple[float, ...]
    calls: float
    keys: float

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)


class Service:
    """Answers each call after a delay."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self.calls = self.keys = 0

    def __call__(self, keys: list[int]) -> dict[int, float]:
        self.calls, self.keys = self.calls + 1, self.keys + len(keys)
        time.sleep(self._delay)
        return {key: 0.0 for key in keys}


def prepared(remote: RemoteSpec, buckets: int, triggers: int) -> Prepared:
    """a then b of one bucket's key where the value of a's x, which is new, is not above b's."""
    random = np.random.default_rng(1)
    rows = buckets * triggers * ROWS
    trigger = np.repeat(np.arange(triggers), buckets * ROWS)
    columns = {
        "t": trigger * WINDOW + random.integers(0, WINDOW, rows),
        "k": np.tile(np.repeat(np.arange(buckets), ROWS), triggers),
        "kind": random.integers(0, 4, rows),
        "x": np.arange(rows),
        "y": random.random(rows),
        "trigger": trigger,
    }
    pattern = cep.seq(cep.event("a", "kind = 0"), cep.event("b", "kind = 1 AND trigger >= 0"))
    pattern = pattern.where("remote('r', a.x) <= b.y").within(WINDOW)
    return prepare(pattern, columns, partition_by=["k"], remotes={"r": remote})


def job_of(query: Prepared) -> StreamJob:
    output = EventOutput("all", query.program.orders[0].column, row=(Field(0, "f"),))
    schema = query.table.schema
    whose = make_identity(fingerprint(event_program(query.program)), schema, BUCKETS)
    return StreamJob(query.program, output, schema, whose, f"run {next(_tokens)}")


def inputs(query: Prepared, buckets: int, triggers: int) -> Iterator[list[TriggerInput]]:
    """For each trigger what it brings to each bucket."""
    key = query.table.column(query.program.keys[0]).to_numpy()
    number = query.times() // WINDOW
    for trigger in range(triggers):
        yield [
            TriggerInput(
                bucket,
                (to_blob(query.table.take(pa.array(np.flatnonzero(mine)))),),
                trigger * WINDOW - 1,
                "run",
                str(trigger),
            )
            for bucket in range(buckets)
            for mine in [(key == bucket) & (number == trigger)]
        ]


Trigger = Callable[[StreamJob, list[InMemoryStore], list[TriggerInput]], None]


def together(job: StreamJob, stores: list[InMemoryStore], arrived: list[TriggerInput]) -> None:
    triggers = TaskTriggers(job)
    for store, each in zip(stores, arrived, strict=True):
        triggers.begin(store, each)
    for each in arrived:
        for _ in triggers.finish(each.bucket):
            pass
    triggers.close()


def in_line(job: StreamJob, stores: list[InMemoryStore], arrived: list[TriggerInput]) -> None:
    for store, each in zip(stores, arrived, strict=True):
        for _ in run_trigger(job, store, each):
            pass


def run(
    strategy: FetchStrategy, what: str, buckets: int, trigger: Trigger, size: tuple[int, float]
) -> Line:
    triggers, delay = size
    service = Service(delay)
    remote = RemoteSpec(
        "r", service, (pa.int64(),), pa.float64(), strategy, token=f"run {next(_tokens)}"
    )
    query = prepared(remote, buckets, triggers)
    job, stores = job_of(query), [InMemoryStore() for _ in range(buckets)]
    milliseconds = []
    for arrived in inputs(query, buckets, triggers):
        began = time.perf_counter()
        trigger(job, stores, arrived)
        milliseconds.append((time.perf_counter() - began) * 1e3)
    forget_lookups()
    state.forget_states()
    return Line(
        strategy, what, tuple(milliseconds[1:]), service.calls / triggers, service.keys / triggers
    )


def compare(triggers: int, rounds: int, delay: float) -> list[Line]:
    contestants = {
        "one bucket": partial(run, buckets=1, trigger=together),
        f"{BUCKETS} buckets": partial(run, buckets=BUCKETS, trigger=together),
        f"{BUCKETS} in line": partial(run, buckets=BUCKETS, trigger=in_line),
        f"{BUCKETS}, no delay": partial(run, buckets=BUCKETS, trigger=together),
    }
    lines = []
    for strategy in STRATEGIES:
        found: dict[str, list[Line]] = {name: [] for name in contestants}
        for _ in range(rounds):
            for name, contestant in contestants.items():
                seconds = 0.0 if "no delay" in name else delay
                found[name].append(contestant(strategy, name, size=(triggers, seconds)))
        lines += [
            replace(some[-1], milliseconds=sum((each.milliseconds for each in some), ()))
            for some in found.values()
        ]
    return lines


def report(lines: list[Line]) -> str:
    rows: list[list[Any]] = [
        [each.strategy, each.what, each.median, max(each.milliseconds), each.calls, each.keys]
        for each in lines
    ]
    return table(["strategy", "buckets", "median ms", "most ms", "calls", "keys"], rows)


def claims(lines: list[Line]) -> list[Claim]:
    """What matching takes without any delay is a matter of the rows, not of waiting."""
    made = []
    by_name = {(each.strategy, each.what): each.median for each in lines}
    for strategy in dict.fromkeys(each.strategy for each in lines):
        one, many, line, work = (
            by_name[strategy, name]
            for name in ("one bucket", f"{BUCKETS} buckets", f"{BUCKETS} in line",
                         f"{BUCKETS}, no delay")
        )  # fmt: skip
        waits = (many - work) / one
        made.append(
            Claim(
                f"{strategy}: {BUCKETS} buckets wait at most {MOST_RATIO} times as long as one",
                waits <= MOST_RATIO,
                f"{many:.0f} ms, {work:.0f} of them work; one bucket {one:.0f} ms, in line "
                f"{line:.0f} ms",
            )
        )
    return made


# ---- max_wait ------------------------------------------------------------------------------------


class LateService:
    """Some keys come late."""

    def __call__(self, keys: list[int]) -> dict[int, float]:
        time.sleep(LATE_S if any(key % LATE_ONE_IN == 0 for key in keys) else 0.001)
        return {key: 0.0 for key in keys}


@dataclass(frozen=True)
class LateRun:
    """`milliseconds`: of each trigger, `work`: of those of a run in which nothing is late, and
    `waited`: for how long each waited. `delayed`: rows after each. `given`: how often each match
    was; `wanted`: the matches of the other run."""

    milliseconds: tuple[float, ...]
    work: tuple[float, ...]
    waited: tuple[float, ...]
    delayed: tuple[int, ...]
    given: tuple[int, int]
    wanted: int


def run_late(triggers: int, buckets: int = 4, pause: float = 0.15) -> LateRun:
    """One key a call, so that a late one holds up no other."""
    policy = FetchPolicy(batch=1, in_flight=2_000, timeout=60.0)
    late = RemoteSpec(
        "r", LateService(), (pa.int64(),), pa.float64(), "hybrid", token=f"run {next(_tokens)}",
        max_wait=MAX_WAIT_S, fetch_policy=policy,
    )  # fmt: skip
    soon = replace(late, fetch=Service(0.0), max_wait=None, token=f"run {next(_tokens)}")
    found = [_matches_of(each, triggers, buckets, pause) for each in (soon, late)]
    (wanted, work, _, _), (given, milliseconds, waited, delayed) = found
    assert set(given) == set(wanted), "other matches than without max_wait"
    return LateRun(
        tuple(milliseconds), tuple(work), tuple(waited), tuple(delayed),
        (min(given.values()), max(given.values())), len(wanted),
    )  # fmt: skip


def _matches_of(
    remote: RemoteSpec, triggers: int, buckets: int, pause: float
) -> tuple[Counter[Any], list[float], list[float], list[int]]:
    query = prepared(remote, buckets, triggers)
    job, stores = job_of(query), [InMemoryStore() for _ in range(buckets)]
    given: Counter[Any] = Counter()
    milliseconds, waited, delayed = [], [], []
    arrivals = list(inputs(query, buckets, triggers))
    end = 0
    while arrivals or (delayed and delayed[-1]):
        if arrivals:
            arrived = arrivals.pop(0)
        else:
            end += 1
            arrived = [
                TriggerInput(bucket, (), triggers * WINDOW, "run", f"end {end}")
                for bucket in range(buckets)
            ]
        began = time.perf_counter()
        task = TaskTriggers(job)
        for store, each in zip(stores, arrived, strict=True):
            task.begin(store, each)
        answers = [list(task.finish(each.bucket)) for each in arrived]
        task.close()
        milliseconds.append((time.perf_counter() - began) * 1e3)
        delayed.append(0)
        waited.append(0.0)
        for blobs in answers:
            found = pa.concat_tables([from_blob(blob) for blob in blobs])
            given.update(_read(found.slice(0, found.num_rows - 1)))
            counts = json.loads(found.column("metrics")[-1].as_py())
            delayed[-1] += counts["delayed_rows"]
            waited[-1] += counts["remotes"]["r"]["waited_s"] * 1e3
        time.sleep(pause if remote.max_wait is not None else 0.0)
    forget_lookups()
    state.forget_states()
    return given, milliseconds, waited, delayed


def _read(found: pa.Table) -> Counter[Any]:
    """The matches by the x of their rows, which are all different."""
    matches: dict[int, list[Any]] = {}
    columns = (found.column(name).to_pylist() for name in ("match_number", "variable", "f0"))
    for number, variable, value in zip(*columns, strict=True):
        matches.setdefault(number, []).append((variable, value))
    return Counter(tuple(sorted(match)) for match in matches.values())


def late_claims(ran: LateRun) -> list[Claim]:
    most = max(ran.milliseconds[1:])
    return [
        Claim(
            f"no trigger takes more than {MOST_S * 1e3:.0f} ms",
            most <= MOST_S * 1e3,
            f"{most:.0f} ms; up to {max(ran.work[1:]):.0f} ms where nothing is late; up to "
            f"{max(ran.delayed)} rows delayed",
        ),
        Claim(
            f"no trigger waits for more than {MAX_WAIT_S * 1e3:.0f} ms",
            max(ran.waited) <= MAX_WAIT_S * 1e3 + 10,
            f"{max(ran.waited):.0f} ms",
        ),
        Claim(
            "every match comes exactly once",
            ran.given == (1, 1),
            f"{ran.wanted} matches, each {ran.given[0]} to {ran.given[1]} times",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triggers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--delay", type=float, default=DELAY_S)
    parser.add_argument("--late", action="store_true")
    given = parser.parse_args()
    if given.late:
        for claim in late_claims(run_late(given.triggers)):
            print(claim.line())
        return
    lines = compare(given.triggers, given.rounds, given.delay)
    print(report(lines))
    for claim in claims(lines):
        print(claim.line())


if __name__ == "__main__":
    main()
