"""A window that is a hundred triggers long: keep rows, keep partial matches, or match it again.

One bucket without Spark: the worker's triggers over a store in memory, so the figures are what a
plan costs and nothing else. All contestants take every trigger in turn. "again" keeps the rows of
the window, matches all of it in each trigger and takes the matches that end in the trigger's rows:
what batches over a sliding window do.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from benchmarks.programs import Prepared, prepare
from benchmarks.reporting import Claim, table
from spark_cep import event, seq
from spark_cep.udfs.canonical import event_program, fingerprint
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.execution.job import StreamJob, TriggerInput, from_blob, to_blob
from spark_cep.udfs.execution.state import make_identity
from spark_cep.udfs.execution.trigger import run_trigger
from spark_cep.udfs.output import EventOutput, Field
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import Adaptation, BranchPlan, Plan
from tests.memory_store import InMemoryStore

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern

SEED = 20_260
TICKS = 1_000  # of event time, a trigger
ABCD = (event("a", "kind = 0"), event("b", "kind = 1"), event("c", "kind = 2"),
        event("d", "kind = 3"))  # fmt: skip
# How near two events are in the plane: no order of the rows finds such pairs.
NEAR = "(a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y) < {}"
LAST = "(d.x - c.x) * (d.x - c.x) + (d.y - c.y) * (d.y - c.y) < {}"
# By how much the automatic choice may be slower than the best of the forced plans.
NOISE = 1.25
NOISE_MS = 1.0


@dataclass(frozen=True)
class Workload:
    """`shares` of the kinds 0 to 3 among `rows` a trigger, with `x` and `y` uniform in 0..1 and
    `k` one of `values`."""

    conditions: tuple[str, ...]
    shares: tuple[float, float, float, float]
    rows: int = 200
    values: int = 1_000

    def pattern(self, triggers: int) -> Pattern:
        return seq(*ABCD).where(*self.conditions).within(triggers * TICKS)

    def columns(self, triggers: int) -> Mapping[str, np.ndarray]:
        random, count = np.random.default_rng(SEED), self.rows * triggers
        return {
            "t": np.sort(random.integers(0, triggers * TICKS, count)),
            "kind": random.choice(4, count, p=self.shares),
            "x": random.random(count),
            "y": random.random(count),
            "k": random.integers(0, self.values, count),
        }


WORKLOADS: Mapping[str, Workload] = {
    "few pairs are near, the last event is frequent": Workload(
        (NEAR.format(0.0002), "b.k = c.k", LAST.format(0.005)), (0.25, 0.25, 0.1, 0.4), 80, 50
    ),
    "three that fit, the last event is frequent": Workload(
        (NEAR.format(0.002), "b.x + c.y < 0.1", "a.y + c.x < 0.3", LAST.format(0.005)),
        (0.15, 0.15, 0.1, 0.6), 80
    ),
    "few pairs are near, the last event is rare": Workload(
        (NEAR.format(0.002), "b.k = c.k", LAST.format(0.05)), (0.33, 0.33, 0.3395, 0.0005), 80, 50
    ),
    "all are tied by an equality": Workload(
        ("a.k = b.k", "b.k = c.k", "c.k = d.k", "a.x < d.x"), (0.25, 0.25, 0.25, 0.25), 200, 3_000
    ),
    "many partial matches, few ends": Workload(
        ("a.x < b.x", "b.x < c.x", "c.x < 0.05 * d.x", "d.y < 0.02"), (0.2, 0.2, 0.2, 0.4), 25
    ),
}  # fmt: skip


class Contestant(Protocol):
    def trigger(self, number: int, rows: pa.Table) -> int:
        """The matches that a trigger's rows end."""
        ...


@dataclass
class Kept:
    """The worker's own triggers under one plan."""

    job: StreamJob
    store: InMemoryStore = field(default_factory=InMemoryStore)
    metrics: dict[str, Any] = field(default_factory=dict)
    swaps: list[str] = field(default_factory=list)

    def trigger(self, number: int, rows: pa.Table) -> int:
        # Before the trigger's rows the watermark is where those of the last one ended.
        arrived = TriggerInput(0, (to_blob(rows),), number * TICKS - 1)
        answers = [from_blob(blob) for blob in run_trigger(self.job, self.store, arrived)]
        self.metrics = json.loads(answers[-1].column("metrics")[-1].as_py())
        self.swaps += [swap["to"] for swap in self.metrics["swaps"]]
        return int(self.metrics["matches"])


@dataclass
class Again:
    """The rows of a window, matched anew in every trigger. Before `first` they only gather."""

    prepared: Prepared
    plan: Plan
    first: int
    held: list[pa.Table] = field(default_factory=list)

    def trigger(self, number: int, rows: pa.Table) -> int:
        window = self.prepared.program.window
        assert window is not None
        self.held = [*self.held, rows][-(int(window.size) // TICKS + 1) :]
        if number < self.first:
            return 0
        program = replace(self.prepared.program, plan=self.plan)
        step = advance_events(program, EventState(), pa.concat_tables(self.held))
        is_new = step.events.time >= number * TICKS
        return sum(int(np.count_nonzero(is_new[found.latest])) for found in step.matches)


def grouped(eager: Sequence[int]) -> Plan:
    """Keeps the partial matches of the slots `eager`; the others are looked up from the end.

    >>> grouped((0, 1)).branches
    (BranchPlan(shape=((3, 2), (0, 1)), eager=(0, 1), fixed=True),)
    """
    rest = [slot for slot in (3, 2, 1, 0) if slot not in eager]
    shape = left_deep_shape(rest), left_deep_shape(eager)
    return Plan("hybrid", (BranchPlan(shape, tuple(eager), fixed=True),))


def contestants(prepared: Prepared, first: int) -> dict[str, Contestant]:
    lazy = Plan("lazy-chain", (BranchPlan(left_deep_shape((3, 2, 1, 0)), fixed=True),))
    forced = {"lazy": lazy, "keeps a b": grouped((0, 1)), "keeps a b, a b c": grouped((0, 1, 2))}
    found: dict[str, Contestant] = {"again": Again(prepared, Plan("lazy-chain"), first)}
    for name, plan in forced.items():
        found[name] = Kept(stream_job(prepared, plan, Adaptation(), name))
    auto = Adaptation("invariants", to_tree=True, to_hybrid=True)
    found["auto"] = Kept(stream_job(prepared, Plan("lazy-chain"), auto, "auto"))
    return found


def stream_job(prepared: Prepared, plan: Plan, adaptation: Adaptation, token: str) -> StreamJob:
    program = replace(prepared.program, plan=plan, adaptation=adaptation)
    time_column, schema = program.orders[0].column, prepared.table.schema
    output = EventOutput("all", time_column, row=(Field(time_column, "t"),))
    return StreamJob(
        program,
        output,
        schema,
        make_identity(fingerprint(event_program(program)), schema, 1),
        token,
    )


@dataclass(frozen=True)
class Timed:
    milliseconds: tuple[float, ...]
    matches: int
    kept: int
    swaps: tuple[str, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)


def measure(work: Workload, window: int, triggers: int) -> dict[str, Timed]:
    """`window`: how many triggers one is long; as many pass before the `triggers` that count."""
    columns = work.columns(window + triggers)
    prepared = prepare(work.pattern(window), columns)
    racing = contestants(prepared, window)
    bounds = np.searchsorted(prepared.times(), np.arange(window + triggers + 1) * TICKS)
    milliseconds: dict[str, list[float]] = {name: [] for name in racing}
    matches = dict.fromkeys(racing, 0)
    for number in range(window + triggers):
        rows = prepared.table.slice(bounds[number], bounds[number + 1] - bounds[number])
        for name, one in racing.items():
            started = time.perf_counter()
            found = one.trigger(number, rows)
            if number >= window:
                milliseconds[name].append(1000 * (time.perf_counter() - started))
                matches[name] += found
    return {
        name: Timed(tuple(milliseconds[name]), matches[name], *_told(one))
        for name, one in racing.items()
    }


def _told(one: Contestant) -> tuple[int, tuple[str, ...]]:
    if not isinstance(one, Kept):
        return 0, ()
    return one.metrics["kept_partial_matches"], tuple(one.swaps)


def long_window(
    window: int = 100, triggers: int = 30, works: Mapping[str, Workload] = WORKLOADS
) -> tuple[str, list[Claim], object]:
    """The table, what was claimed, and the figures."""
    measured = {name: measure(work, window, triggers) for name, work in works.items()}
    rows = [
        [work, plan, one.median, f"{timed['again'].median / one.median:.1f}", one.kept, one.matches]
        for work, timed in measured.items()
        for plan, one in timed.items()
    ]
    head = ["pattern", "plan", "ms a trigger", "times as fast", "kept", "matches"]
    claims = [claim for name, timed in measured.items() for claim in _claims(name, timed)]
    figures = {
        name: {plan: vars(one) for plan, one in timed.items()} for name, timed in measured.items()
    }
    return table(head, rows), claims, figures


def _claims(name: str, timed: Mapping[str, Timed]) -> list[Claim]:
    forced = [plan for plan in timed if plan not in {"again", "auto"}]
    best = min(forced, key=lambda plan: timed[plan].median)
    again, auto, least = (timed[plan].median for plan in ("again", "auto", best))
    text = f"{auto:.3g} ms, {best} {least:.3g} ms; {', '.join(timed['auto'].swaps) or 'no swap'}"
    return [
        Claim(f"{name}: all give the same matches", len({o.matches for o in timed.values()}) == 1,
              f"{timed['again'].matches:,}"),
        Claim(f"{name}: {best} beats matching again", least < again, f"{again / least:.1f} times"),
        Claim(f"{name}: auto is near the best", auto <= NOISE * least + NOISE_MS, text),
    ]  # fmt: skip
