"""Load shedding around the engine: one bucket's turn in one trigger of a stream, and the deadline
of a task in a batch.

How many rows the engine gets follows from estimates. Where the user set a latency, the engine also
gets a deadline, which holds whatever the estimates say.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from spark_cep.udfs.events.deadline import Deadline
from spark_cep.udfs.events.engine import EventState
from spark_cep.udfs.program import Program
from spark_cep.udfs.shedding.pace import read_arrival
from spark_cep.udfs.shedding.shedder import JoinedRows, get_shedder

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from spark_cep.udfs.execution.job import StreamJob, TriggerInput
    from spark_cep.udfs.program import DroppingRule
    from spark_cep.udfs.shedding.shedder import Admission, BucketTurn, Shedder


# Of the part of a bound that is not planned with, a bucket may use so much before it is stopped.
# The rest is for what comes after matching: the last block, the state, the answer.
OVERTIME_SHARE: Final = 0.5
# What a bucket that was cut would have taken, at most so many times as long, as far as is learnt
# from it. What was left is counted in blocks of rows, and a deadline is there next time too.
MOST_WORK_FACTOR: Final = 3.0
# Matching has at least this part of the time, however long what comes after it takes.
LEAST_MATCHING_SHARE: Final = 0.5


def overtime(safety: float) -> float:
    """By how much a bucket may exceed the time that was planned for it, as a factor.

    >>> overtime(0.8), overtime(1.0)
    (1.125, 1.0)
    """
    return 1 + OVERTIME_SHARE * (1 - safety) / safety


# ---- a trigger of a stream -----------------------------------------------------------------------


@dataclass
class TriggerShedding:
    """`rows`: those that the engine gets. `deadline`: when it has to stop. `_began`: when it got
    them. `_arrived`: when the trigger began, and `_stops_at` the deadline, by the clock of the
    shedder."""

    deadline: Deadline | None
    _shedder: Shedder
    _turn: BucketTurn
    _admitted: Admission
    _seconds: float
    _began: float
    _arrived: float
    _stops_at: float

    @property
    def rows(self) -> pa.Table:
        return self._admitted.rows

    @property
    def rule(self) -> DroppingRule | None:
        """What the engine drops while it matches."""
        return self._admitted.rule

    def finish(self, joined: int, state: object) -> None:
        """To be called when the engine is done with the rows and has saved its state. `joined`: how
        many rows it has joined, those of earlier triggers included."""
        assert isinstance(state, EventState)
        matching_seconds = perf_counter() - self._began
        # What was not done would have taken time too.
        left = 0.0 if self.deadline is None else self.deadline.left_share
        work_seconds = matching_seconds / max(1 - left, 1 / MOST_WORK_FACTOR)
        done = JoinedRows(joined, state.owed_rows(), defers=state.waiting is None)
        self._shedder.record(self._turn, self._admitted, work_seconds, done)
        if self.deadline is not None and self.deadline.is_cut:
            # A process that did not run for a while says nothing of the next triggers.
            most = (1 - LEAST_MATCHING_SHARE) * (self._turn.budget or 0.0)
            self._shedder.observe_tail(min(self._shedder.clock() - self._stops_at, most))
        began = perf_counter()
        self._shedder.learn_if_idle(self._turn, matching_seconds)
        self._seconds += perf_counter() - began

    def metrics(self) -> dict[str, Any]:
        """What was shed (`udfs/output.py`)."""
        came, recall = self._admitted.came, self._admitted.recall
        return {
            "shed": self._admitted.shed,
            "shed_recall": _recall_counts(recall, came),
            "shedding_us": round(self._seconds * 1e6),
            **self._latency(),
        }

    def _latency(self) -> dict[str, int]:
        """How long the rows of the trigger have waited for the matches that they complete: the
        paper's Equation 2, but for the time before the trigger began."""
        bound = self._shedder.spec.latency
        if bound is None:
            return {}
        seconds = max(self._shedder.clock() - self._arrived, 0.0)
        return {"latency_us": round(seconds * 1e6), "bound_us": round(bound * 1e6)}


def _recall_counts(recall: float | None, came: int) -> dict[str, list[float]]:
    if not came:
        return {}
    return {"unknown": [0, came]} if recall is None else {"": [came * recall, came]}


def shed_rows(job: StreamJob, arrived: TriggerInput, rows: pa.Table) -> TriggerShedding:
    """Drops what there is no time for. `rows`: the bucket's new rows that are not late."""
    assert job.shed is not None
    assert isinstance(job.program, Program)
    began = perf_counter()
    shedder = get_shedder(job.token, job.shed, job.program)
    arrival = read_arrival(arrived.blobs)
    now = shedder.clock()
    turn = shedder.turn(arrived.bucket, arrived.number, arrival, rows.num_rows, arrived.horizon)
    deadline, stops_at = None, now
    if turn.budget is not None:
        whole = turn.budget * overtime(job.shed.safety)
        # What comes after matching has to end in time too.
        stops_at = now + max(whole - shedder.tail_seconds, LEAST_MATCHING_SHARE * whole)
        deadline = Deadline(stops_at, shedder.clock)
    admitted = shedder.admit(turn, rows)
    done = perf_counter()
    came = shedder.trigger_began
    return TriggerShedding(
        deadline,
        shedder,
        turn,
        admitted,
        done - began,
        done,
        now if came is None else came,
        stops_at,
    )


# ---- a task of a batch ---------------------------------------------------------------------------


@dataclass(frozen=True)
class StageBound:
    """How long the tasks that match a batch may take together: `seconds`, for about so many rows
    in all of them, `parallel` of them at a time. `stage`: its name, and the attempt; the worker
    knows it."""

    seconds: float
    rows: float
    parallel: int
    stage: str = ""


@dataclass
class _StageTime:
    """`began`: when this worker process had its first task of a stage. `done`: rows in the tasks
    that it has begun."""

    began: float
    done: int = 0


_MOST_STAGES: Final = 8
_stages: OrderedDict[str, _StageTime] = OrderedDict()


def begin_task(stage: str, now: float) -> None:
    """To be called before a task reads its rows, which counts for it."""
    _stages.setdefault(stage, _StageTime(now))
    while len(_stages) > _MOST_STAGES:
        _stages.popitem(last=False)


def task_deadline(
    bound: StageBound, rows: int | None, now: Callable[[], float] = perf_counter
) -> Deadline:
    """The deadline of a task with so many rows; None: unknown, as they do not fit into memory.

    Tasks know nothing of each other. A worker process has one task of the stage after the other,
    and takes it that each of the others does as much. What is left of the bound since its first
    task is divided by rows among those still to come. A worker process that Spark does not use
    again begins with the whole bound for each task, and the part of its rows is all that holds it.
    """
    begin_task(bound.stage, now())
    time = _stages[bound.stage]
    left = max(time.began + bound.seconds - now(), 0.0)
    share = 1.0
    if rows is not None:
        ahead = max(bound.rows - bound.parallel * time.done, float(rows), 1.0)
        share = min(1.0, bound.parallel * rows / ahead)
        time.done += rows
    return Deadline(now() + left * share, now)


def forget_stages() -> None:
    """Forgets all stages, as in a new worker."""
    _stages.clear()
