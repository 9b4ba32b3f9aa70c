"""One run of a query over a stream that comes faster than it can be matched, on a simulated clock.

    arrivals -> triggers of one bucket: Spark's part, then the worker's own trigger -> matches, when

A trigger begins when the one before has ended and takes all rows that have arrived by then. It
lasts `SPARK_SECONDS`, half before the worker's turn and half after it, and what the worker's
trigger really takes: its processor time, for other programs of the machine shall not count. The
worker's clock is the simulated one, so it sees a machine that has nothing else to do.

Always holds: matches are compared with those of all rows; a run that finds another one raises.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks.programs import Prepared, chain, prepare
from spark_cep.udfs.canonical import event_program, fingerprint
from spark_cep.udfs.execution import state
from spark_cep.udfs.execution.job import NO_WATERMARK, StreamJob, TriggerInput, from_blob, to_blob
from spark_cep.udfs.execution.state import make_identity
from spark_cep.udfs.execution.trigger import run_trigger
from spark_cep.udfs.output import EventOutput, Field
from spark_cep.udfs.program import Adaptation, Plan, Program
from spark_cep.udfs.shedding.pace import SPARK_SECONDS, note_arrival
from spark_cep.udfs.shedding.shedder import forget_shedders, get_shedder
from spark_cep.udfs.shedding.utility import StreamSheddingSpec
from tests.memory_store import InMemoryStore

if TYPE_CHECKING:
    from benchmarks.shed_queries import Query

How = Literal["none", "utility", "keys", "darling", "random"]
POLICIES: tuple[How, ...] = ("utility", "keys", "darling", "random")
PlanKind = Literal["chain", "auto"]
# The paper's latency bound and safety factor.
BOUND, SAFETY = 1.5, 0.8
# More than any trigger takes.
NEVER = 1e6

_MEASURED_BY = "spark_cep.udfs.execution.shedding.perf_counter"
_tokens = itertools.count()


# ---- the work ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """A query's rows as the engine gets them; the first `warm` are there to learn from. `plan`: the
    chain in the query's `order`, or the one that a stream's buckets choose."""

    prepared: Prepared
    warm: int
    order: tuple[int, ...]
    plan: PlanKind = "chain"

    @property
    def rows(self) -> int:
        return int(self.prepared.table.num_rows)

    @cached_property
    def window_rows(self) -> float:
        """Rows of the pattern in a window, on average."""
        times, window = self.prepared.times(), self.prepared.program.window
        assert window is not None
        return float(self.rows * window.size / (times[-1] - times[0]))

    def job(self, how: How, bound: float) -> StreamJob:
        program = self.prepared.program
        if self.plan == "auto":
            auto = Adaptation("invariants", to_tree=True, to_hybrid=True)
            program = replace(program, plan=Plan("lazy-chain"), adaptation=auto)
        else:
            program = replace(program, plan=chain(*self.order))
        schema, order = self.prepared.table.schema, program.orders[0].column
        output = EventOutput("all", order, row=(Field(_place(program.columns), "i"),))
        shed = None if how == "none" else StreamSheddingSpec(None, bound, None, how, SAFETY, 0, 1)
        token = f"{how} {next(_tokens)}"
        return StreamJob(
            program,
            output,
            schema,
            make_identity(fingerprint(event_program(program)), schema, 1),
            token,
            shed,
        )


def _place(columns: Sequence[str]) -> int:
    return list(columns).index(ROW)


ROW = "row"


def work_of(query: Query, warm: float = 0.1, seed: int = 0, plan: PlanKind = "chain") -> Work:
    prepared = prepare(query.pattern(), query.columns(seed))
    numbered = prepared.table.append_column(ROW, pa.array(np.arange(prepared.table.num_rows)))
    program = replace(prepared.program, columns=(*prepared.program.columns, ROW))
    return Work(Prepared(program, numbered), round(warm * numbered.num_rows), query.order(), plan)


# ---- arrivals ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peaks:
    """The paper's load: shares of the rows that come `times` as fast as the others, which come
    between them at a base rate and last `seconds` in all."""

    shares: tuple[float, ...] = (0.3, 0.1, 0.2, 0.1)
    times: float = 1000.0
    seconds: float = 40.0

    def arrivals(self, rows: int) -> np.ndarray:
        """Seconds at which rows arrive."""
        calm = (1 - sum(self.shares)) / (len(self.shares) + 1)
        parts = [calm, *(part for share in self.shares for part in (share, calm))]
        ends = np.round(np.cumsum(parts) * rows).astype(np.int64)
        slow = self.seconds / (rows * (1 - sum(self.shares)))
        gaps = np.full(rows, slow)
        for number in range(1, len(parts), 2):
            gaps[ends[number - 1] : ends[number]] = slow / self.times
        return np.cumsum(gaps)


def with_warming(arrivals: np.ndarray, warm: int, seconds: float = 20.0) -> np.ndarray:
    """The warm rows at an even pace before."""
    before = np.linspace(0, seconds, warm, endpoint=False)
    return np.concatenate([before, seconds + arrivals])


# ---- a run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trigger:
    began: float
    seconds: float
    rows: int
    dropped: int
    expected: float


@dataclass(frozen=True)
class Run:
    """`found`: a number for each match, made of its rows; `latency` of each match in seconds, and
    the trigger that brought its `last` row.
    Matches that end in rows to warm up with are not among them."""

    triggers: tuple[Trigger, ...]
    found: np.ndarray = field(repr=False)
    latency: np.ndarray = field(repr=False)
    last: np.ndarray = field(repr=False)
    metrics: tuple[dict[str, Any], ...] = field(repr=False)
    learnings: int = 0

    @property
    def longest(self) -> float:
        return max(each.seconds for each in self.triggers)

    @property
    def mean_latency(self) -> float:
        return float(self.latency.mean()) if len(self.latency) else float("nan")

    @property
    def work_seconds(self) -> float:
        return sum(each.seconds - SPARK_SECONDS for each in self.triggers)

    def last_rows_in_peaks(self, seconds: float) -> np.ndarray:
        """Of each match whether the trigger that brought its last row took longer."""
        return np.array([each.seconds > seconds for each in self.triggers])[self.last]

    def share_of(self, full: Run) -> float:
        """Of the matches of all rows those that were found."""
        if not np.isin(self.found, full.found).all():
            raise AssertionError("a match was found that all rows do not give")
        if len(np.unique(self.found)) != len(self.found):
            raise AssertionError("a match was found twice")
        return len(self.found) / len(full.found) if len(full.found) else 1.0


class Clock:
    """What the worker takes for the time. While it works, its own processor time goes by."""

    def __init__(self) -> None:
        self.now = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        return self.now + (0.0 if self._since is None else time.process_time() - self._since)

    @contextmanager
    def working(self) -> Iterator[None]:
        self._since = time.process_time()
        yield
        self.now, self._since = self(), None


def run(work: Work, arrivals: np.ndarray, how: How, bound: float = BOUND) -> Run:
    state.forget_states()
    forget_shedders()
    job, clock, store = work.job(how, bound), Clock(), InMemoryStore()
    assert isinstance(job.program, Program)
    shedder = None if job.shed is None else get_shedder(job.token, job.shed, job.program)
    if shedder is not None:
        shedder.clock = clock
    times, table = work.prepared.times(), work.prepared.table
    triggers: list[Trigger] = []
    answers: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    told: list[dict[str, Any]] = []
    taken, horizon = 0, NO_WATERMARK
    while taken < work.rows:
        began = clock.now = max(clock.now, float(arrivals[taken]))
        until = int(np.searchsorted(arrivals, began, side="right"))
        clock.now += SPARK_SECONDS / 2
        piece = note_arrival(clock.now)(table.slice(taken, until - taken))
        arrived = TriggerInput(0, (to_blob(piece),), horizon, number=str(len(triggers)))
        # Seconds of work are processor time, as the clock's are.
        with mock.patch(_MEASURED_BY, time.process_time), clock.working():
            blobs = list(run_trigger(job, store, arrived))
        clock.now += SPARK_SECONDS / 2
        metrics, rows, codes = _read(blobs)
        counted = rows >= work.warm
        answers.append((codes[counted], clock.now - arrivals[rows[counted]], rows[counted]))
        told.append(metrics)
        shed = metrics.get("shed", {})
        dropped = sum(gone for _, gone in shed.values())
        recall, came = metrics.get("shed_recall", {}).get("", (1.0, 1.0))
        triggers.append(Trigger(began, clock.now - began, until - taken, dropped, recall / came))
        taken, horizon = until, int(times[until - 1])
    blobs = list(run_trigger(job, store, TriggerInput(0, (), _end(work), number="last")))
    _, rows, codes = _read(blobs)
    counted = rows >= work.warm
    late = clock.now + SPARK_SECONDS - arrivals[rows[counted]]
    answers.append((codes[counted], late, rows[counted]))
    codes, late, rows = (np.concatenate(each) for each in zip(*answers, strict=True))
    ends = np.cumsum([each.rows for each in triggers])
    return Run(
        tuple(triggers),
        codes,
        late,
        np.searchsorted(ends, rows, side="right"),
        tuple(told),
        0 if shedder is None else shedder.learnings,
    )


def _end(work: Work) -> int:
    """Behind all windows."""
    window = work.prepared.program.window
    assert window is not None
    return int(work.prepared.times()[-1] + 2 * window.size)


_MIX = np.uint64(0x9E3779B97F4A7C15)


def _read(blobs: Sequence[bytes]) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """The metrics, and for each match its latest row and a number made of all its rows."""
    found = pa.concat_tables([from_blob(blob) for blob in blobs])
    metrics = json.loads(found.column("metrics")[-1].as_py())
    found = found.slice(0, found.num_rows - 1)
    number, variable, row = (
        found.column(name).to_numpy().astype(np.int64)
        for name in ("match_number", "variable", "f0")
    )
    if not len(number):
        return metrics, number, number.astype(np.uint64)
    # The rows of a match follow each other.
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    mixed = (
        row.astype(np.uint64) * np.uint64(64) + variable.astype(np.uint64) + np.uint64(1)
    ) * _MIX
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return metrics, np.maximum.reduceat(row, starts), np.add.reduceat(mixed, starts)
