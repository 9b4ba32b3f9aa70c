"""Remote data in real time: every strategy against the same query with its values joined.

    python -m benchmarks.remote_delays [sleeping http redis spark] [--rounds N] [--quick]
        [--json FILE]

The first three run the engine on one bucket, without Spark; `spark` the whole call. The floor is
the do-nothing baseline: the values are a column of the rows, nothing is looked up. Contestants
take turns; benchmarks/results.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

import spark_cep as cep
from benchmarks.programs import Prepared, prepare
from benchmarks.remote_runs import NAMES, STRATEGIES
from benchmarks.remote_services import ACCOUNTS, Sleeping, http_server, limit, redis_server
from benchmarks.reporting import Claim, table
from benchmarks.timing import Timed, take_turns
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.program import Plan
from spark_cep.udfs.remote_spec import FetchPolicy, RemoteSpec
from spark_cep.udfs.remotes.lookup import Lookup

if TYPE_CHECKING:
    from benchmarks.remote_runs import Strategy

DELAYS_S = (0.001, 0.010, 0.050)
SYMBOLS = 50
WINDOW = 41 * SYMBOLS
# Keys of a batch: so few that there are more batches than calls in flight, and fetching everything
# takes 25 delays at least.
BATCH = 100
# In the order of the pattern, as the paper's automaton: the limit is needed when b is bound, and
# its condition can wait until c is.
PLAN: Literal["eager"] = "eager"
TIE = 0.05
FLOOR = "joined"
REMOTE = "remote('limits', a.account)"


@dataclass(frozen=True)
class Line:
    """One contestant at one source: `what` is a strategy, or the floor."""

    source: str
    what: str
    seconds: tuple[float, ...]
    median: float
    matches: int
    counts: Mapping[str, float]


@dataclass(frozen=True)
class Size:
    rows: int
    rounds: int
    delays: Sequence[float] = DELAYS_S


# ---- the pattern and its rows ------------------------------------------------------------------


def pattern(value: str) -> cep.Pattern:
    """Rising prices of a symbol, beyond the limit of the account that began. `value`: the limit,
    looked up or a column."""
    variables = [cep.event(name, f"kind = {kind}") for kind, name in enumerate("abc")]
    conditions = ("a.price < b.price", f"b.price > {value}", "b.price < c.price")
    return cep.seq(*variables).where(*conditions).within(WINDOW)


def ticks(rows: int) -> dict[str, np.ndarray]:
    """Types 20:20:1, as in the other benchmarks, each by some account."""
    random = np.random.default_rng(1)
    accounts = random.integers(0, ACCOUNTS, rows)
    return {
        "t": np.arange(rows),
        "symbol": random.integers(0, SYMBOLS, rows),
        "kind": random.choice(3, rows, p=[20 / 41, 20 / 41, 1 / 41]),
        "price": random.random(rows),
        "account": accounts,
        "cap": np.array([limit(account) for account in range(ACCOUNTS)])[accounts],
    }


# ---- the engine alone --------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """The query with its values joined, and with them looked up."""

    joined: Prepared
    remote: Prepared

    def floor(self) -> tuple[int, dict[str, float]]:
        return _matched(self.joined, ()), {}

    def run(self, strategy: Strategy) -> tuple[int, dict[str, float]]:
        """With a lookup that knows nothing yet, as in a new query."""
        (source,) = self.remote.program.remotes
        source = replace(source, strategy=strategy)
        program = replace(self.remote.program, remotes=(source,))
        lookup = Lookup(source)
        try:
            matches = _matched(replace(self.remote, program=program), (lookup,))
            return matches, lookup.metrics.to_dict()
        finally:
            lookup.close()


def _matched(prepared: Prepared, lookups: tuple[Lookup, ...]) -> int:
    step = advance_events(prepared.program, EventState(), prepared.table, lookups=lookups)
    return sum(len(found.latest) for found in step.matches)


def work(fetch: Callable[..., Any], size: Size) -> Work:
    columns = ticks(size.rows)
    fetch_policy = FetchPolicy(batch=BATCH)
    source = RemoteSpec("limits", fetch, (pa.int64(),), pa.float64(), fetch_policy=fetch_policy)
    joined = prepare(pattern("a.cap"), columns, partition_by=["symbol"])
    asked = prepare(pattern(REMOTE), columns, partition_by=["symbol"], remotes={"limits": source})
    return Work(_planned(joined), _planned(asked))


def _planned(prepared: Prepared) -> Prepared:
    return replace(prepared, program=replace(prepared.program, plan=Plan(PLAN)))


def engine_alone(source: str, fetch: Callable[..., Any], size: Size) -> list[Line]:
    prepared = work(fetch, size)
    contestants: dict[str, Callable[[], object]] = {FLOOR: prepared.floor}
    contestants |= {name: partial(prepared.run, name) for name in STRATEGIES}
    return _lines(source, take_turns(contestants, rounds=size.rounds))


def _lines(source: str, timed: Mapping[str, Timed]) -> list[Line]:
    lines = []
    for what, one in timed.items():
        matches, counts = one.result  # type: ignore[misc]
        lines.append(Line(source, what, one.seconds, one.median, matches, counts))
    found = {line.what: line.matches for line in lines}
    if len(set(found.values())) > 1:
        raise AssertionError(f"the strategies do not agree on the matches: {found}")
    return lines


def sleeping(size: Size) -> list[Line]:
    """A function that sleeps."""
    return [
        line
        for delay in size.delays
        for line in engine_alone(f"sleeps {1e3 * delay:g} ms", Sleeping(delay), size)
    ]


def over_http(size: Size) -> list[Line]:
    """A local HTTP server that takes its time."""
    lines = []
    for delay in size.delays:
        with http_server(delay) as url:
            fetch = _reading(cep.Remote.http(url, value_type="double", method="POST"))
            lines += engine_alone(f"HTTP, {1e3 * delay:g} ms", fetch, size)
    return lines


def from_redis(size: Size) -> list[Line]:
    """A local Redis, without delay."""
    with redis_server() as url:
        fetch = _reading(cep.Remote.redis(url, "limit:{}", value_type="double"))
        return engine_alone("Redis", fetch, size)


def _reading(remote: cep.Remote) -> Callable[..., Any]:
    """What the workers would get of a ready source."""
    reading: Callable[..., Any] = remote.source.fn.reading  # type: ignore[union-attr]
    return reading(pa.float64(), 1)


# ---- with Spark --------------------------------------------------------------------------------


def with_spark(size: Size) -> list[Line]:
    """The whole call, for one delay of the function and for Redis."""
    from benchmarks.session import start  # noqa: PLC0415 - only this part needs Spark

    spark = start()
    try:
        frame = spark.createDataFrame(pa.table(ticks(size.rows)))
        frame = frame.repartition(2).cache()
        frame.count()
        lines = []
        for name, source in _sources(size):
            with source as make:
                contestants: dict[str, Callable[[], object]] = {
                    FLOOR: partial(_answer, frame, pattern("a.cap"), None)
                }
                for strategy in STRATEGIES:
                    contestants[strategy] = partial(_answer, frame, pattern(REMOTE), make(strategy))
                lines += _lines(name, take_turns(contestants, rounds=size.rounds))
        return lines
    finally:
        spark.stop()


def _answer(frame: Any, wanted: cep.Pattern, remote: cep.Remote | None) -> tuple[int, Any]:
    matches = cep.match_pattern(
        frame,
        wanted,
        partition_by="symbol",
        order_by="t",
        measures={"gain": "c.price - a.price"},
        plan=PLAN,
        remotes=None if remote is None else {"limits": remote},
    )
    return matches.count(), {}


@contextmanager
def _sleeping_source(delay: float) -> Iterator[Callable[[Strategy], cep.Remote]]:
    yield lambda strategy: cep.Remote.fetch(
        Sleeping(delay), "double", strategy=strategy, batch_size=BATCH
    )


@contextmanager
def _redis_source() -> Iterator[Callable[[Strategy], cep.Remote]]:
    with redis_server() as url:
        yield lambda strategy: cep.Remote.redis(
            url, "limit:{}", value_type="double", strategy=strategy, batch_size=BATCH
        )


def _sources(size: Size) -> Iterator[tuple[str, Any]]:
    for delay in size.delays:
        yield f"Spark, sleeps {1e3 * delay:g} ms", _sleeping_source(delay)
    yield "Spark, Redis", _redis_source()


# ---- tables and claims -------------------------------------------------------------------------


def report(lines: Sequence[Line]) -> str:
    """Medians as times of the floor; what was fetched by BL2 and by Hybrid."""
    rows: list[list[object]] = []
    for source, of in _by_source(lines).items():
        floor = of[FLOOR].median
        hybrid = of["hybrid"]
        rows.append(
            [source, hybrid.matches, floor]
            + [of[name].median / floor for name in STRATEGIES]
            + [of[name].median / hybrid.median for name in ("blocking", "cached")]
            + [_calls(of[name]) for name in ("blocking", "cached", "hybrid")]
        )
    head = ["source", "matches", f"{FLOOR}, s", *(f"{NAMES[n]} / {FLOOR}" for n in STRATEGIES)]
    head += ["BL1 / Hybrid", "BL2 / Hybrid", "calls of BL1", "of BL2", "of Hybrid"]
    return table(head, rows)


def _calls(line: Line) -> str:
    return f"{line.counts['calls']:,}" if "calls" in line.counts else ""


def _by_source(lines: Sequence[Line]) -> dict[str, dict[str, Line]]:
    found: dict[str, dict[str, Line]] = {}
    for line in lines:
        found.setdefault(line.source, {})[line.what] = line
    return found


def claims(lines: Sequence[Line]) -> list[Claim]:
    said = []
    for source, of in _by_source(lines).items():
        best = min(STRATEGIES, key=lambda name: of[name].median)
        ratio = of["hybrid"].median / of[best].median
        text = f"{source}: Hybrid is first, ties within {TIE:.0%}"
        said.append(Claim(text, ratio <= 1 + TIE, f"{ratio:.2f}x of {NAMES[best]}"))
    return said


WORKLOADS: Mapping[str, Callable[[Size], list[Line]]] = {
    "sleeping": sleeping,
    "http": over_http,
    "redis": from_redis,
    "spark": with_spark,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description="Times the strategies for remote data.")
    arguments.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], metavar="WORKLOAD")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--quick", action="store_true", help="few rows, one delay, one round")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = arguments.parse_args()
    size = Size(8_000, 1, (0.005,)) if given.quick else Size(400_000, given.rounds)
    lines: list[Line] = []
    for name in given.workloads or WORKLOADS:
        print(f"{name}: {WORKLOADS[name].__doc__}", file=sys.stderr, flush=True)
        lines += WORKLOADS[name](size)
    print(report(lines))
    print("\n" + "\n".join(claim.line() for claim in claims(lines)))
    if given.json:
        given.json.write_text(json.dumps([asdict(line) for line in lines]))


if __name__ == "__main__":
    main()
