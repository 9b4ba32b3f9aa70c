"""Load shedding in front of the engine: one bucket's turn in one trigger."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from spark_cep.udfs.program import Program
from spark_cep.udfs.shedding.pace import read_arrival
from spark_cep.udfs.shedding.shedder import get_shedder

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.execution.job import StreamJob, TriggerInput
    from spark_cep.udfs.shedding.shedder import Admission, BucketTurn, Shedder


@dataclass
class TriggerShedding:
    """`rows`: those that the engine gets. `_began`: when it got them."""

    _shedder: Shedder
    _turn: BucketTurn
    _admitted: Admission
    _seconds: float
    _began: float

    @property
    def rows(self) -> pa.Table:
        return self._admitted.rows

    def finish(self) -> None:
        """To be called when the engine is done with the rows and has saved its state."""
        matching_seconds = perf_counter() - self._began
        self._shedder.record(self._turn, self._admitted, matching_seconds)
        began = perf_counter()
        self._shedder.learn_if_idle(self._turn, matching_seconds)
        self._seconds += perf_counter() - began

    def metrics(self) -> dict[str, Any]:
        """What was shed (`udfs/output.py`)."""
        came, recall = self._admitted.came, self._admitted.recall
        return {
            "shed": self._admitted.shed,
            "shed_recall": {"": [came * recall, came]} if came else {},
            "shedding_us": round(self._seconds * 1e6),
        }


def shed_rows(job: StreamJob, arrived: TriggerInput, rows: pa.Table) -> TriggerShedding:
    """Drops what there is no time for. `rows`: the bucket's new rows that are not late."""
    assert job.shed is not None
    assert isinstance(job.program, Program)
    began = perf_counter()
    shedder = get_shedder(job.token, job.shed, job.program)
    arrival = read_arrival(arrived.blobs)
    turn = shedder.turn(arrived.bucket, arrived.number, arrival, rows.num_rows)
    admitted = shedder.admit(turn, rows)
    now = perf_counter()
    return TriggerShedding(shedder, turn, admitted, now - began, now)
