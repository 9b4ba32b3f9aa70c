"""One run of a query over a stream that comes faster than it can be matched, on a simulated clock.

    arrivals -> triggers of one bucket: Spark's part, then the worker's own trigger -> matches, when

A trigger begins when the one before has ended and takes all rows that have arrived by then. It
lasts `SPARK_SECONDS`, half before the worker's turn and half after it, and what the worker's
trigger really takes, by a timer: its processor time, for other programs of the machine shall not
count, or the time on the wall. The worker's clock is the simulated one.

Always holds: matches are compared with those of all rows; a run that finds another one raises.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks.programs import Prepared, chain, prepare
from spark_cep import shed
from spark_cep.udfs.canonical import event_program, fingerprint
from spark_cep.udfs.execution import state
from spark_cep.udfs.execution.job import NO_WATERMARK, StreamJob, TriggerInput, from_blob, to_blob
from spark_cep.udfs.execution.state import make_identity
from spark_cep.udfs.execution.trigger import run_trigger
from spark_cep.udfs.output import EventOutput, Field
from spark_cep.udfs.program import Adaptation, Limits, Plan, Program
from spark_cep.udfs.shedding.pace import SPARK_SECONDS, note_arrival
from spark_cep.udfs.shedding.shedder import forget_shedders, get_shedder
from spark_cep.udfs.shedding.utility import StreamSheddingSpec
from tests.memory_store import InMemoryStore

if TYPE_CHECKING:
    from benchmarks.shed_queries import Query

# "none", or a policy of the library.
How = str
POLICIES: tuple[How, ...] = tuple(each for each in shed.POLICIES if each != "frequency")
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
        spec = None
        if how in shed.POLICIES:
            spec = StreamSheddingSpec(None, bound, None, how, SAFETY, 0, 1)  # type: ignore[arg-type]
        token = f"{how} {next(_tokens)}"
        return StreamJob(
            program,
            output,
            schema,
            make_identity(fingerprint(event_program(program)), schema, 1),
            token,
            spec,
        )


def _place(columns: Sequence[str]) -> int:
    return list(columns).index(ROW)


ROW = "row"
UNLIMITED = Limits(partial_matches=None, matches=None)


def work_of(query: Query, warm: float = 0.1, seed: int = 0, plan: PlanKind = "chain") -> Work:
    prepared = prepare(query.pattern(), query.columns(seed))
    numbered = prepared.table.append_column(ROW, pa.array(np.arange(prepared.table.num_rows)))
    # Without shedding some streams have more matches in a window than the limits allow.
    program = replace(prepared.program, columns=(*prepared.program.columns, ROW), limits=UNLIMITED)
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


def overloaded(work: Work, row_seconds: float, overload: int, bound: float = BOUND) -> np.ndarray:
    """Rows that come so fast that of the work so many per cent are too much for triggers that last
    the planned part of the bound."""
    planned = bound * SAFETY
    capacity = (planned - SPARK_SECONDS) / row_seconds / planned
    gap = (1 - overload / 100) / capacity
    return with_warming(np.arange(1, work.rows - work.warm + 1) * gap, work.warm)


# ---- a run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trigger:
    """`seconds` by the timer, `processor_seconds` of the worker's part in them. `kept_share`: of
    the rows that may be dropped. `cut`: matching was stopped at the deadline."""

    began: float
    seconds: float
    rows: int
    dropped: int
    expected: float
    kept_share: float = 1.0
    processor_seconds: float = 0.0
    cut: bool = False


@dataclass(frozen=True)
class Run:
    """`found`: a number for each match, made of its rows; `latency` of each match in seconds, and
    the trigger that brought its `last` row. `members`: the rows of all matches, those of each from
    `starts` on. Matches that end in rows to warm up with are not among them. `memory`: how far the
    process grew, in bytes; None where the system does not say."""

    triggers: tuple[Trigger, ...]
    found: np.ndarray = field(repr=False)
    latency: np.ndarray = field(repr=False)
    last: np.ndarray = field(repr=False)
    metrics: tuple[dict[str, Any], ...] = field(repr=False)
    learnings: int = 0
    members: np.ndarray = field(repr=False, default_factory=lambda: np.zeros(0, np.int64))
    starts: np.ndarray = field(repr=False, default_factory=lambda: np.zeros(0, np.int64))
    memory: int | None = None

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

    def by_chance(self, of: Run) -> float:
        """The share of these matches that is to be expected if as many rows were dropped at random
        in each trigger as in the run `of`, and nothing was cut."""
        return float(self._chances(of).mean()) if len(self.found) else 1.0

    def beside_chance(self, of: Run) -> tuple[float, float]:
        """The share of these matches that the run `of` found, and that is to be expected at random,
        of those none of whose rows came in a trigger that was cut: as many rows at random would
        have been cut there, too."""
        ends = np.cumsum([each.rows for each in of.triggers])
        cut = np.array([each.cut for each in of.triggers])
        of_row = cut[np.searchsorted(ends, self.members, side="right")]
        if not len(self.found):
            return 1.0, 1.0
        whole = ~np.logical_or.reduceat(of_row, self.starts)
        if not whole.any():
            return 1.0, 1.0
        kept = np.isin(self.found[whole], of.found)
        return float(kept.mean()), float(self._chances(of)[whole].mean())

    def _chances(self, of: Run) -> np.ndarray:
        logs = np.log(np.maximum([each.kept_share for each in of.triggers], 1e-12))
        of_row = np.repeat(logs, [each.rows for each in of.triggers])
        found: np.ndarray = np.exp(np.add.reduceat(of_row[self.members], self.starts))
        return found

    def share_of(self, full: Run) -> float:
        """Of the matches of all rows those that were found."""
        if not np.isin(self.found, full.found).all():
            raise AssertionError("a match was found that all rows do not give")
        if len(np.unique(self.found)) != len(self.found):
            raise AssertionError("a match was found twice")
        return len(self.found) / len(full.found) if len(full.found) else 1.0


class Clock:
    """What the worker takes for the time. While it works, a timer goes by."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self.now = 0.0
        self._timer = timer
        self._since: float | None = None

    def __call__(self) -> float:
        return self.now + (0.0 if self._since is None else self._timer() - self._since)

    @contextmanager
    def working(self) -> Iterator[None]:
        self._since = self._timer()
        yield
        self.now, self._since = self(), None


def run(
    work: Work,
    arrivals: np.ndarray,
    how: How,
    bound: float = BOUND,
    timer: Callable[[], float] = time.process_time,
) -> Run:
    state.forget_states()
    forget_shedders()
    memory_before = _reset_peak_memory()
    job, clock, store = work.job(how, bound), Clock(timer), InMemoryStore()
    assert isinstance(job.program, Program)
    shedder = None if job.shed is None else get_shedder(job.token, job.shed, job.program)
    if shedder is not None:
        shedder.clock = clock
    times, table = work.prepared.times(), work.prepared.table
    triggers: list[Trigger] = []
    answers: list[_Answer] = []
    told: list[dict[str, Any]] = []
    taken, horizon = 0, NO_WATERMARK
    while taken < work.rows:
        began = clock.now = max(clock.now, float(arrivals[taken]))
        until = int(np.searchsorted(arrivals, began, side="right"))
        clock.now += SPARK_SECONDS / 2
        piece = note_arrival(clock.now)(table.slice(taken, until - taken))
        arrived = TriggerInput(0, (to_blob(piece),), horizon, number=str(len(triggers)))
        busy = time.process_time()
        # Seconds of work are those of the clock.
        with mock.patch(_MEASURED_BY, timer), clock.working():
            blobs = list(run_trigger(job, store, arrived))
        busy = time.process_time() - busy
        clock.now += SPARK_SECONDS / 2
        metrics, answer = _read(blobs, work.warm, clock.now)
        answers.append(answer)
        told.append(metrics)
        kept, dropped = (
            sum(of) for of in zip(*metrics.get("shed", {"": (0, 0)}).values(), strict=True)
        )
        recall, came = metrics.get("shed_recall", {}).get("", (1.0, 1.0))
        triggers.append(
            Trigger(
                began,
                clock.now - began,
                until - taken,
                dropped,
                recall / came,
                kept / (kept + dropped) if dropped else 1.0,
                busy,
                bool(metrics.get("cut")),
            )
        )
        taken, horizon = until, int(times[until - 1])
    blobs = list(run_trigger(job, store, TriggerInput(0, (), _end(work), number="last")))
    answers.append(_read(blobs, work.warm, clock.now + SPARK_SECONDS)[1])
    memory = None if memory_before is None else (_memory("VmHWM") or 0) - memory_before
    rows = np.concatenate([each.last for each in answers])
    ends = np.cumsum([each.rows for each in triggers])
    sizes = np.concatenate([each.sizes for each in answers])
    return Run(
        tuple(triggers),
        np.concatenate([each.codes for each in answers]),
        np.concatenate([each.seen - arrivals[each.last] for each in answers]),
        np.searchsorted(ends, rows, side="right"),
        tuple(told),
        0 if shedder is None else shedder.learnings,
        np.concatenate([each.members for each in answers]),
        np.cumsum(sizes) - sizes,
        memory,
    )


def _reset_peak_memory() -> int | None:
    """The memory that the process holds now, as little as it can; its peak begins there."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _memory("VmRSS")


def _memory(name: str) -> int | None:
    """Of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return None


def _end(work: Work) -> int:
    """Behind all windows."""
    window = work.prepared.program.window
    assert window is not None
    return int(work.prepared.times()[-1] + 2 * window.size)


_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class _Answer:
    """The matches that were `seen` at one time: for each a number made of all its rows, its latest
    row and how many it has; and the rows of all."""

    seen: float
    codes: np.ndarray
    last: np.ndarray
    sizes: np.ndarray
    members: np.ndarray


def _read(blobs: Sequence[bytes], warm: int, seen: float) -> tuple[dict[str, Any], _Answer]:
    """The metrics, and the matches that end behind the rows to warm up with."""
    found = pa.concat_tables([from_blob(blob) for blob in blobs])
    metrics = json.loads(found.column("metrics")[-1].as_py())
    found = found.slice(0, found.num_rows - 1)
    number, variable, row = (
        found.column(name).to_numpy().astype(np.int64)
        for name in ("match_number", "variable", "f0")
    )
    if not len(number):
        return metrics, _Answer(seen, number.astype(np.uint64), number, number, number)
    # The rows of a match follow each other.
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    mixed = (
        row.astype(np.uint64) * np.uint64(64) + variable.astype(np.uint64) + np.uint64(1)
    ) * _MIX
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    last, sizes = np.maximum.reduceat(row, starts), np.diff(starts, append=len(row))
    counts = last >= warm
    codes = np.add.reduceat(mixed, starts)[counts]
    members = row[np.repeat(counts, sizes)].astype(np.int32)
    return metrics, _Answer(seen, codes, last[counts], sizes[counts], members)
