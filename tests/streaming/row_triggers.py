"""Row patterns through triggers: one bucket, packed rows in, its answer out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_cep.udfs.output import Field
from spark_cep.udfs.rows.carried import fingerprint
from spark_cep.udfs.rows.output import RowOutput
from spark_cep.udfs.streaming import remembered
from spark_cep.udfs.streaming.header import identity
from spark_cep.udfs.streaming.job import Arrived, Job
from spark_cep.udfs.streaming.packing import from_blob, packed
from spark_cep.udfs.streaming.store import InMemory
from spark_cep.udfs.streaming.trigger import run_trigger
from tests.rows.advances import table
from tests.rows.programs import SCHEMA, K, T

if TYPE_CHECKING:
    from spark_cep.udfs.rows.program import RowProgram
    from tests.rows.reference import Row


class RowStream:
    def __init__(self, case: RowProgram) -> None:
        self._dropped = -2 if case.rows == "one" else -1
        output = RowOutput((Field(K, "k"), Field(T, "t")))
        self.job = Job(case, output, SCHEMA, identity(fingerprint(case), SCHEMA, 1), "one")
        self.store = InMemory()
        self.metrics: list[dict[str, Any]] = []
        remembered.forget()

    def trigger(self, rows: Sequence[Row], horizon: int) -> list[tuple[Any, ...]]:
        """The rows of the answer: key, time and measures."""
        arrived = table(rows).append_column("bucket", pa.array(np.zeros(len(rows), np.int32)))
        blobs = [
            blob.as_py() for batch in packed(arrived.to_batches()) for blob in batch.column("blob")
        ]
        answer = run_trigger(self.job, self.store, Arrived(0, tuple(blobs), horizon))
        given = [row for blob in answer for row in from_blob(blob).to_pylist()]
        self.metrics.append(json.loads(given[-1]["metrics"]))
        return [tuple(row.values())[: self._dropped] for row in given[:-1]]
