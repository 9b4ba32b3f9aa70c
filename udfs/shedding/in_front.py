"""A bucket's turn in a trigger, from its new rows to what is told of those that were dropped."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from spark_cep.udfs.program import Program
from spark_cep.udfs.shedding.arrival import arrival_of
from spark_cep.udfs.shedding.shedder import shedder_of

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.shedding.shedder import Admitted, Shedder, Turn
    from spark_cep.udfs.streaming.job import Arrived, Job


@dataclass
class InFront:
    """`rows`: those that the engine gets."""

    shedder: Shedder
    turn: Turn
    admitted: Admitted
    shedding_seconds: float
    _began: float

    @property
    def rows(self) -> pa.Table:
        return self.admitted.rows

    def ended(self) -> None:
        """The engine is done with them, and the state is written."""
        seconds = perf_counter() - self._began
        self.shedder.took(self.turn, self.admitted, seconds)
        began = perf_counter()
        self.shedder.learn_if_there_is_room(self.turn, seconds)
        self.shedding_seconds += perf_counter() - began

    def told(self) -> dict[str, Any]:
        """As metrics of the bucket (`udfs/output.py`)."""
        came, recall = self.admitted.came, self.admitted.recall
        return {
            "shed": self.admitted.shed,
            "shed_recall": {"": [came * recall, came]} if came else {},
            "shedding_us": round(self.shedding_seconds * 1e6),
        }


def in_front(job: Job, arrived: Arrived, fresh: pa.Table) -> InFront:
    """`fresh`: the bucket's new rows that are not late."""
    assert job.shed is not None
    assert isinstance(job.program, Program)
    began = perf_counter()
    shedder = shedder_of(job.token, job.shed, job.program)
    arrival = arrival_of(arrived.blobs)
    turn = shedder.turn(arrived.bucket, arrived.number, arrival, fresh.num_rows)
    admitted = shedder.admit(turn, fresh)
    now = perf_counter()
    return InFront(shedder, turn, admitted, now - began, now)
